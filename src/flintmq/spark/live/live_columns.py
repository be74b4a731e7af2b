"""The columns of live topics: those of a store as far as a broker tells them, or Kafka's."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from flintmq.spark.live.live_options import ColumnOptions
from flintmq.spark.rows.columns import BINARY, INT, LONG, MESSAGE, STRING, TIME, ColumnSet

_FILES_ONLY: Final = ("crcOk", "fileName", "path")
LIVE: Final = ColumnSet(
    {name: kinds for name, kinds in MESSAGE.kinds.items() if name not in _FILES_ONLY}
)

_HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
KAFKA: Final = ColumnSet(
    {
        "key": BINARY,
        "value": BINARY,
        "topic": STRING,
        "partition": INT,
        "offset": LONG,
        "timestamp": TIME,
        "timestampType": INT,
    }
)
KAFKA_AND_HEADERS: Final = ColumnSet(
    {**KAFKA.kinds, "headers": (_HEADERS, to_arrow_type(_HEADERS))}
)
_KAFKA_PICKED: Final = ColumnSet({**KAFKA_AND_HEADERS.kinds, "brokerName": STRING})
"""What a schema of the user's own may name: queues of two brokers have the same numbers."""

LOG_APPEND_TIME: Final = 1
"""Kafka's word for a time that the broker has set."""

_SOURCES: Final = {
    "key": "keys",
    "value": "body",
    "topic": "topic",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "timestampType": "queueId",
    "headers": "properties",
    "brokerName": "brokerName",
}
"""By column of Kafka, the column of a message that it is made of."""


def live_schema(options: ColumnOptions) -> StructType:
    """Return all columns."""
    if not options.kafka:
        return LIVE.struct()
    return (KAFKA_AND_HEADERS if options.headers else KAFKA).struct()


class OutputColumns:
    """Turns columns of messages into the columns that were asked for."""

    def __init__(self, schema: StructType, options: ColumnOptions) -> None:
        columns = _KAFKA_PICKED if options.kafka else LIVE
        self._schema = columns.arrow(schema)
        self.messages = self._schema
        """The columns of messages that are needed."""
        if options.kafka:
            names = dict.fromkeys(_SOURCES[name] for name in self._schema.names)
            self.messages = pa.schema([pa.field(name, LIVE.kinds[name][1]) for name in names])

    def make(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the columns asked for, made of a batch of columns of messages."""
        if self.messages is self._schema:
            return batch
        arrays = [
            _MAKERS.get(field.name, _same)(batch.column(_SOURCES[field.name]), field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _same(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column


def _as_bytes(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column.cast(kind)


def _time_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(LOG_APPEND_TIME, kind), len(column))


def _headers(column: pa.MapArray, kind: pa.DataType) -> pa.Array:
    pairs = pa.StructArray.from_arrays(
        [column.keys, pc.cast(column.items, pa.binary())], fields=list(kind.value_type)
    )
    return pa.ListArray.from_arrays(column.offsets, pairs, type=kind)


_MAKERS: Final[dict[str, Callable[[pa.Array, pa.DataType], pa.Array]]] = {
    "key": _as_bytes,
    "timestampType": _time_type,
    "headers": _headers,
}
