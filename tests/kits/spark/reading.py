"""Reading stores for tests: through Spark, and straight through the reader without it."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from flintmq.spark.options.store_options import OnCorrupt, parse_options
from flintmq.spark.rows.columns import arrow_schema, table_schema
from flintmq.spark.stored.log_reader import LogReader

SPLITS = (1, 2, 7)


def split_size(store: Path, count: int) -> str:
    """Return the size that cuts each log file of a store into ``count`` splits."""
    size = max(path.stat().st_size for path in (store / "commitlog").iterdir())
    return str(-(-size // count))


def load(spark: SparkSession, store: Path, *, splits: int = 1, **options: str) -> DataFrame:
    """Return a store as a table."""
    reader = spark.read.format("flintmq").option("splitSize", split_size(store, splits))
    return reader.options(**options).load(str(store))


def make_reader(store: Path, *, splits: int = 1, **options: str) -> LogReader:
    """Return the reader that Spark would use for all columns."""
    return make_projection(store, None, splits=splits, **options)


def make_projection(
    store: Path, schema: StructType | None, *, splits: int = 1, **options: str
) -> LogReader:
    """Return the reader that Spark would use for the columns of a schema."""
    parsed = parse_options({"path": str(store), "splitSize": split_size(store, splits), **options})
    if schema is None:
        schema = table_schema(with_corrupt=parsed.on_corrupt is OnCorrupt.ROW)
    return LogReader(parsed, arrow_schema(schema))


def read(store: Path, *, splits: int = 1, **options: str) -> list[dict[str, Any]]:
    """Return all rows of a store, in log order."""
    return rows_of(make_reader(store, splits=splits, **options))


def rows_of(reader: LogReader) -> list[dict[str, Any]]:
    """Return all rows of a reader, in log order."""
    return [
        row
        for split in reader.partitions()
        for batch in reader.read(split)
        for row in batch.to_pylist()
    ]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    """Return the physical offsets of rows."""
    return [row["physicalOffset"] for row in rows]


def as_expected(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in the words of the golden sets, as far as it tells the same."""
    body = bytes(row["body"])
    same = (
        "physicalOffset topic queueId queueOffset sysFlag flag bornHost storeHost reconsumeTimes "
        "preparedTransactionOffset bodyCRC"
    )
    return {name: row[name] for name in same.split()} | {
        "size": row["storeSize"],
        "bornTimestamp": _milliseconds(row["bornTimestamp"]),
        "storeTimestamp": _milliseconds(row["storeTimestamp"]),
        "properties": dict(row["properties"]),
        "msgId": row["offsetMsgId"],
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
