"""From rows to messages: the columns that the sink knows, and what they say."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from flintmq.client.messaging.message_checks import RESERVED
from flintmq.client.messaging.messages import NO_PROPERTIES
from flintmq.model.property_names import KEYS, TAGS
from flintmq.spark.errors import ColumnError
from flintmq.spark.live.repeat_mark import ROW_MARK

_TEXT: Final = (StringType,)
_TEXT_OR_BYTES: Final = (BinaryType, StringType)
_INTEGER: Final = (ByteType, ShortType, IntegerType, LongType)
_TIME: Final = (TimestampType, TimestampNTZType, LongType)
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": _TEXT_OR_BYTES,
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": _TEXT,
    "properties": (MapType,),
    "brokerName": _TEXT,
    "queueId": _INTEGER,
    "shardingKey": _TEXT,
    "delayTimeLevel": _INTEGER,
    "deliverAt": _TIME,
    "flag": _INTEGER,
}
_KAFKA_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": _TEXT_OR_BYTES,
    "key": _TEXT_OR_BYTES,
    "topic": _TEXT,
    "partition": _INTEGER,
    "headers": (ArrayType,),
    # What the reader gives and a writer has no use for, so that rows can go on as they came.
    "offset": _INTEGER,
    "timestamp": _TIME,
    "timestampType": _INTEGER,
}
_SEPARATOR: Final = "\x02"
"""It cannot stand in a property."""

_PROPERTIES: Final = MapType(StringType(), StringType())
_HEADERS: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


class OutgoingRow(NamedTuple):
    """What one row says about its message.  Times are milliseconds."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = NO_PROPERTIES
    broker_name: str | None = None
    queue_id: int | None = None
    sharding_key: str | None = None
    delay_level: int | None = None
    deliver_at: int | None = None
    flag: int = 0

    def checksum(self) -> int:
        """Return what tells this row from another one."""
        properties = self.properties
        texts = (self.tag or "", self.keys or "", self.sharding_key or "", self.topic)
        joined = _SEPARATOR.join((*texts, *properties, *properties.values()))
        return zlib.crc32(joined.encode("utf-8", "surrogatepass"), zlib.crc32(self.body))


def check_columns(schema: StructType, *, kafka: bool, topic: str | None) -> None:
    """Raise ColumnError unless the sink can take rows of a schema."""
    columns = _KAFKA_COLUMNS if kafka else _COLUMNS
    required = "value" if kafka else "body"
    for field in schema.fields:
        kinds = columns.get(field.name)
        if kinds is None:
            raise ColumnError(
                f"the sink has no use for the column {field.name!r}; select some of "
                f"{', '.join(columns)}"
            )
        if not isinstance(field.dataType, kinds) or not _is_inside(field):
            wanted = _INSIDE.get(field.name) or " or ".join(kind().simpleString() for kind in kinds)
            actual = field.dataType.simpleString()
            raise ColumnError(f"the column {field.name} is {wanted} for the sink, not {actual}")
    if required not in schema.names:
        raise ColumnError(f"the sink needs a column {required}, binary or string")
    if topic is None and "topic" not in schema.names:
        raise ColumnError("the sink needs the option topic, or a column of that name")


_INSIDE: Final = {
    "properties": _PROPERTIES.simpleString(),
    "headers": ArrayType(_HEADERS).simpleString(),
}


def _is_inside(field: StructField) -> bool:
    """Whether the inner types of a column are right; what may be null does not matter."""
    kind = field.dataType
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if isinstance(kind, ArrayType):
        return kind.elementType.simpleString() == _HEADERS.simpleString()
    return True


def rows_of(batch: pa.RecordBatch, *, kafka: bool, topic: str | None) -> Iterator[OutgoingRow]:
    """Yield the rows of a batch; ``topic`` goes before the column.

    ValueError if a value has no meaning.
    """
    nothing = [None] * batch.num_rows

    def column(name: str) -> Sequence[Any]:
        return _values(batch.column(name)) if name in batch.schema.names else nothing

    topics = column("topic") if topic is None else [topic] * batch.num_rows
    if kafka:
        columns = [column(name) for name in ("value", "key", "headers", "partition")]
        return map(_from_kafka, topics, *columns)
    # The order of the columns is that of the fields of a row.
    return map(_from_columns, topics, *(column(name) for name in _COLUMNS if name != "topic"))


def _values(column: pa.Array) -> Sequence[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        # As whole milliseconds upwards: a message must not be delivered before its time.  Numbers,
        # since Spark has years that Python's calendar has not.
        times = column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        return [None if time is None else -(-time // 1000) for time in times]
    values: Sequence[Any] = column.to_pylist()
    return values


def _from_columns(
    topic: str | None,
    body: bytes | str | None,
    tag: str | None,
    keys: str | None,
    pairs: Iterable[tuple[str, str | None]] | None,
    broker_name: str | None,
    queue_id: int | None,
    sharding_key: str | None,
    delay_level: int | None,
    deliver_at: int | None,
    flag: int | None,
) -> OutgoingRow:
    properties: Mapping[str, str] = NO_PROPERTIES
    if pairs:
        given = dict(pairs)
        tag, keys = tag or given.get(TAGS), keys or given.get(KEYS)
        properties = _own_properties(given)
    return OutgoingRow(
        _known_topic(topic),
        _body(body, "body"),
        tag,
        keys,
        properties,
        broker_name,
        queue_id,
        sharding_key,
        delay_level,
        deliver_at,
        _flag(flag),
    )


def _from_kafka(
    topic: str | None,
    value: bytes | str | None,
    key: bytes | str | None,
    headers: Iterable[Mapping[str, Any] | None] | None,
    partition: int | None,
) -> OutgoingRow:
    text = _text(key, "column key")
    given = {
        one["key"]: _text(one["value"], f"header {one['key']!r} of the column headers")
        for one in headers or ()
        if one is not None
    }
    return OutgoingRow(
        _known_topic(topic),
        _body(value, "value"),
        given.get(TAGS),
        text or given.get(KEYS),
        _own_properties(given),
        queue_id=partition,
        sharding_key=text,
    )


def _own_properties(given: Mapping[str, str | None]) -> dict[str, str]:
    """Leave out what clients and brokers set themselves, so that rows can go on as they came."""
    return {
        name: value
        for name, value in given.items()
        if value is not None and name not in RESERVED and name != ROW_MARK
    }


def _known_topic(topic: str | None) -> str:
    if topic is None:
        raise ValueError("the column topic is null")
    return topic


def _body(value: bytes | str | None, column: str) -> bytes:
    if not value:
        raise ValueError(f"the column {column} is null or empty; a message needs at least one byte")
    return value.encode() if isinstance(value, str) else value


def _flag(value: int | None) -> int:
    if value is not None and not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"the column flag is {value}; a flag has 32 bits")
    return value or 0


def _text(value: bytes | str | None, what: str) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"the {what} is not UTF-8 text, which RocketMQ needs") from None
    return value
