"""The columns of the table: names, types, and which of them a reader has to build."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from flintmq.spark.errors import ColumnError

CORRUPT_REASON: Final = "_corruptReason"
CORRUPT_SIZE: Final = "_corruptSize"

_STRING: Final = (StringType(), pa.string())
_INT: Final = (IntegerType(), pa.int32())
_LONG: Final = (LongType(), pa.int64())
_BOOLEAN: Final = (BooleanType(), pa.bool_())
_BINARY: Final = (BinaryType(), pa.binary())
_TIME: Final = (TimestampType(), pa.timestamp("us", tz="UTC"))
_MAP: Final = (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string()))

_MESSAGE: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "topic": _STRING,
    "brokerName": _STRING,
    "queueId": _INT,
    "queueOffset": _LONG,
    "body": _BINARY,
    "tags": _STRING,
    "keys": _STRING,
    "properties": _MAP,
    "storeTimestamp": _TIME,
    "bornTimestamp": _TIME,
    "bornHost": _STRING,
    "storeHost": _STRING,
    "msgId": _STRING,
    "offsetMsgId": _STRING,
    "sysFlag": _INT,
    "flag": _INT,
    "reconsumeTimes": _INT,
    "preparedTransactionOffset": _LONG,
    "physicalOffset": _LONG,
    "storeSize": _INT,
    "bodyCRC": _INT,
    "crcOk": _BOOLEAN,
    "fileName": _STRING,
    "path": _STRING,
}
_CORRUPT: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    CORRUPT_REASON: _STRING,
    CORRUPT_SIZE: _LONG,
}
_ALL: Final = _MESSAGE | _CORRUPT


def table_schema(*, with_corrupt: bool) -> StructType:
    """Return the schema of the table; the corrupt columns are there when damage gives rows."""
    columns = _ALL if with_corrupt else _MESSAGE
    return StructType([StructField(name, kind) for name, (kind, _) in columns.items()])


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow form of a schema; ColumnError if the table does not have its columns."""
    fields = []
    for field in schema.fields:
        if field.name not in _ALL:
            raise ColumnError(f"there is no column {field.name!r}; there are {', '.join(_ALL)}")
        kind, arrow = _ALL[field.name]
        if field.dataType != kind:
            wanted, actual = field.dataType.simpleString(), kind.simpleString()
            raise ColumnError(f"the column {field.name} is {actual}, not {wanted}")
        fields.append(pa.field(field.name, arrow, nullable=field.nullable))
    return pa.schema(fields)
