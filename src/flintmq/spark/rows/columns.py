"""The columns of each table: names, types, and which of them a reader has to build."""

from collections.abc import Mapping
from dataclasses import dataclass
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

STRING: Final = (StringType(), pa.string())
INT: Final = (IntegerType(), pa.int32())
LONG: Final = (LongType(), pa.int64())
BOOLEAN: Final = (BooleanType(), pa.bool_())
BINARY: Final = (BinaryType(), pa.binary())
TIME: Final = (TimestampType(), pa.timestamp("us", tz="UTC"))
MAP: Final = (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string()))


@dataclass(frozen=True, slots=True)
class ColumnSet:
    """The columns that a table has, each with its type in Spark and in Arrow."""

    kinds: Mapping[str, tuple[DataType, pa.DataType]]

    def struct(self) -> StructType:
        """Return the schema that Spark shows."""
        return StructType([StructField(name, kind) for name, (kind, _) in self.kinds.items()])

    def arrow(self, schema: StructType | None = None) -> pa.Schema:
        """Return the Arrow form of a schema, of all columns for None.

        ColumnError if the table does not have the columns that the schema asks for.
        """
        return pa.schema([self._field(field) for field in (schema or self.struct()).fields])

    def _field(self, field: StructField) -> pa.Field:
        if field.name not in self.kinds:
            known = ", ".join(self.kinds)
            raise ColumnError(f"there is no column {field.name!r}; there are {known}")
        kind, arrow = self.kinds[field.name]
        if field.dataType != kind:
            wanted, actual = field.dataType.simpleString(), kind.simpleString()
            raise ColumnError(f"the column {field.name} is {actual}, not {wanted}")
        return pa.field(field.name, arrow, nullable=field.nullable)


MESSAGE: Final = ColumnSet(
    {
        "topic": STRING,
        "brokerName": STRING,
        "queueId": INT,
        "queueOffset": LONG,
        "body": BINARY,
        "tags": STRING,
        "keys": STRING,
        "properties": MAP,
        "storeTimestamp": TIME,
        "bornTimestamp": TIME,
        "bornHost": STRING,
        "storeHost": STRING,
        "msgId": STRING,
        "offsetMsgId": STRING,
        "sysFlag": INT,
        "flag": INT,
        "reconsumeTimes": INT,
        "preparedTransactionOffset": LONG,
        "physicalOffset": LONG,
        "storeSize": INT,
        "bodyCRC": INT,
        "crcOk": BOOLEAN,
        "fileName": STRING,
        "path": STRING,
    }
)
MESSAGE_OR_DAMAGE: Final = ColumnSet(
    {**MESSAGE.kinds, CORRUPT_REASON: STRING, CORRUPT_SIZE: LONG},
)


def table_schema(*, with_corrupt: bool) -> StructType:
    """Return the schema of messages; the corrupt columns are there when damage gives rows."""
    return (MESSAGE_OR_DAMAGE if with_corrupt else MESSAGE).struct()


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow form of a schema of messages."""
    return MESSAGE_OR_DAMAGE.arrow(schema)
