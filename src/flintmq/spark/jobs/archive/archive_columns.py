"""The columns of an archive: those of messages, and what it takes to restore their records.

A record is encoded anew from its columns.  Three columns hold what that needs besides, and are
null in most rows:

    storedBody     the body as it was stored, where it was compressed
    rawProperties  the property string, where the map does not give the same bytes
    rawRecord      the whole record, where even with these other bytes would come out: a time
                   beyond the calendar, a host that has two notations, a negative length
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from flintmq.format.sys_flag import COMPRESSED
from flintmq.kernels.compiled import Bools, Bytes, Longs
from flintmq.kernels.texts import NULL, Pieces, gather
from flintmq.spark.jobs.archive.record_codec import (
    body_positions,
    differing,
    encode_records,
    hash_pieces,
    joined_properties,
    properties_positions,
)
from flintmq.spark.rows.columns import BINARY, LONG, MESSAGE, STRING, ColumnSet

STORED_BODY: Final = "storedBody"
RAW_PROPERTIES: Final = "rawProperties"
RAW_RECORD: Final = "rawRecord"
STORE: Final = "store"
DAY: Final = "day"
RECORD_HASH: Final = "recordHash"
ROW_TOPIC: Final = "rowTopic"
ROW_DAY: Final = "rowDay"
"""Topic and day of a row in a file that several of them share."""

SEVERAL: Final = "several"
"""Stands for topic and day in the path of such a file; no day has this name."""

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Spark takes for the partition of null."""

_NULL_TOPICS: Final = pa.array(["", NULL_PARTITION])
NO_DAY: Final = "none"
"""The day of a record whose store time no calendar has."""

ARCHIVE: Final = ColumnSet(
    {
        **MESSAGE.kinds,
        STORED_BODY: BINARY,
        RAW_PROPERTIES: BINARY,
        RAW_RECORD: BINARY,
        STORE: STRING,
        DAY: STRING,
    }
)
WITH_HASH: Final = ColumnSet({**ARCHIVE.kinds, RECORD_HASH: LONG})
"""What tasks hand to Spark; the hash is summed up and not written."""


def archive_schema() -> StructType:
    """Return the columns of an archive as Spark reads them, with the run they came with."""
    return ColumnSet({**ARCHIVE.kinds, "run": STRING}).struct()


def shared_schema() -> StructType:
    """Return the columns of files that several topics share, as Spark reads them."""
    return ColumnSet({**ARCHIVE.kinds, "run": STRING, ROW_TOPIC: STRING, ROW_DAY: STRING}).struct()


def with_topic(rows: pa.Table, topic: str | None) -> pa.Table:
    """Return the rows of a file with their topics; None says that several share the file."""
    if topic is not None:
        return rows.append_column("topic", pa.repeat(topic, rows.num_rows))
    at = rows.schema.get_field_index(ROW_TOPIC)
    return rows.set_column(at, "topic", rows.column(at)).drop_columns([ROW_DAY])


@dataclass(frozen=True, slots=True)
class ExactRows:
    """Completes rows of messages so that their records can be restored."""

    store: str

    def complete(self, batch: pa.RecordBatch, data: Bytes, positions: Longs) -> pa.RecordBatch:
        """Return the rows with all columns; their records start at ``positions`` of ``data``."""
        sizes = batch.column("storeSize").to_numpy()
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= self._raw_columns(batch, data, positions)
        encoded = encode_records(columns)
        differs = differing(data, positions, sizes, encoded)
        # Spark reads these names of partitions as null, so such records are kept as they are.
        differs |= pc.is_in(batch.column("topic"), value_set=_NULL_TOPICS).to_numpy(
            zero_copy_only=False
        )
        columns[RAW_RECORD] = _pieces(data, positions, sizes, differs)
        columns[RECORD_HASH] = pa.array(hash_pieces(data, positions, sizes))
        columns[STORE] = pa.repeat(self.store, batch.num_rows)
        columns[DAY] = _days(batch.column("storeTimestamp"))
        schema = WITH_HASH.arrow()
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _raw_columns(
        self, batch: pa.RecordBatch, data: Bytes, positions: Longs
    ) -> dict[str, pa.Array]:
        sys_flags = batch.column("sysFlag").to_numpy()
        body_at, body_size = body_positions(data, positions, sys_flags)
        compressed = (sys_flags & COMPRESSED != 0) & (body_size > 0)
        sizes = batch.column("storeSize").to_numpy()
        at, size = properties_positions(data, positions, sizes, body_at + body_size)
        joined = joined_properties(batch.column("properties"))
        differs = differing(data, at, size, joined)
        return {
            STORED_BODY: _pieces(data, body_at, body_size, compressed),
            RAW_PROPERTIES: _pieces(data, at, size, differs),
            RAW_RECORD: pa.nulls(batch.num_rows, pa.binary()),
        }


def _pieces(data: Bytes, at: Longs, size: npt.NDArray[np.integer], wanted: Bools) -> pa.Array:
    """Return pieces of a file as a column that is null where they are not wanted."""
    found = gather(data, Pieces(at, np.where(wanted, size, NULL).astype(np.int32)))
    texts = pa.Array.from_buffers(
        pa.binary(), len(at), [None, pa.py_buffer(found.offsets), pa.py_buffer(found.data)]
    )
    if found.valid is None:
        return texts
    return pc.if_else(pa.array(found.valid), texts, pa.scalar(None, pa.binary()))


def _days(times: pa.Array) -> pa.Array:
    return pc.fill_null(pc.strftime(times, format="%Y-%m-%d"), NO_DAY)
