"""From a table of records to one Arrow batch of only the columns that are asked for."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from flintmq.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintmq.kernels.compiled import Bytes
from flintmq.kernels.properties import PropertyTable, read_properties
from flintmq.kernels.records import RecordTable
from flintmq.kernels.texts import Gathered, Pieces
from flintmq.model import property_names
from flintmq.spark.rows.arrow_columns import (
    host_array,
    id_array,
    map_array,
    number_array,
    offset_ids,
    piece_array,
    time_array,
    with_default,
)
from flintmq.spark.rows.columns import CORRUPT_REASON, CORRUPT_SIZE
from flintmq.spark.rows.row_filter import TIME_MAX_MS, TIME_MIN_MS

_NUMBERS: Final = {
    "storeSize": "size",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
    "bodyCRC": "body_crc",
}
"""Columns that are a number of the table as it is."""

_TIMES: Final = {"storeTimestamp": "store_timestamp", "bornTimestamp": "born_timestamp"}
_PROPERTIES: Final = {
    "tags": property_names.TAGS,
    "keys": property_names.KEYS,
    "msgId": property_names.UNIQ_KEY,
}


class Faults(NamedTuple):
    """What is wrong with some rows, by their number."""

    reasons: Mapping[int, str] = {}
    crc_ok: bool = True


class RowBuilder:
    """Makes batches of one schema; ``constants`` are the columns that are alike in all rows."""

    def __init__(self, schema: pa.Schema, constants: Mapping[str, str | None]) -> None:
        self._schema = schema
        self._constants = constants
        names = frozenset(schema.names)
        self._has_pairs = "properties" in names
        self._has_properties = self._has_pairs or not names.isdisjoint(_PROPERTIES)
        self._has_ids = not names.isdisjoint(("msgId", "offsetMsgId"))
        self._repeated: dict[tuple[Any, pa.DataType], pa.Array] = {}

    def build(
        self, data: Bytes, table: RecordTable, bodies: Pieces, faults: Faults
    ) -> pa.RecordBatch:
        """Return the rows of a table of ``data``; ``bodies`` are what the body column shows."""
        columns = _TableColumns(data, table, bodies, faults)
        if self._has_properties:
            columns.properties = read_properties(
                data, table.properties_at, table.properties_size, with_pairs=self._has_pairs
            )
        if self._has_ids:
            is_v6 = table.sys_flag & STORE_HOST_V6 != 0
            columns.ids = offset_ids(data, table.store_host_at, is_v6, table.physical_offset)
        arrays = [self._array(columns, field.name, field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def build_one(self, values: Mapping[str, Any]) -> pa.RecordBatch:
        """Return one row with these values; the columns that are not named are null."""
        known = {**self._constants, **values}
        arrays = [pa.array([known.get(field.name)], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, columns: "_TableColumns", name: str, kind: pa.DataType) -> pa.Array:
        if name in _NUMBERS:
            return number_array(getattr(columns.table, _NUMBERS[name]), kind)
        if name in _TIMES:
            times = getattr(columns.table, _TIMES[name])
            return time_array(times, low=TIME_MIN_MS, high=TIME_MAX_MS, kind=kind)
        if name in self._constants:
            return self._repeat(self._constants[name], kind, len(columns.table))
        if name == "crcOk":
            return self._repeat(columns.faults.crc_ok, kind, len(columns.table))
        if name in (CORRUPT_REASON, CORRUPT_SIZE):
            return self._fault_array(columns, name, kind)
        return columns.array(name, kind)

    def _repeat(self, value: Any, kind: pa.DataType, count: int) -> pa.Array:
        # Most batches have as many rows as the one before.
        array = self._repeated.get((value, kind))
        if array is None or len(array) < count:
            array = pa.repeat(pa.scalar(value, kind), count)
            self._repeated[value, kind] = array
        return array[:count]

    def _fault_array(self, columns: "_TableColumns", name: str, kind: pa.DataType) -> pa.Array:
        reasons = columns.faults.reasons
        if not reasons:
            return self._repeat(None, kind, len(columns.table))
        values: list[str | int | None] = [None] * len(columns.table)
        for row, reason in reasons.items():
            values[row] = reason if name == CORRUPT_REASON else int(columns.table.size[row])
        return pa.array(values, kind)


class _TableColumns:
    """One table on its way to a batch, with what several columns need."""

    properties: PropertyTable
    ids: Gathered

    def __init__(self, data: Bytes, table: RecordTable, bodies: Pieces, faults: Faults) -> None:
        self._data = data
        self.table = table
        self._bodies = bodies
        self.faults = faults

    def array(self, name: str, kind: pa.DataType) -> pa.Array:
        data, table = self._data, self.table
        if name == "topic":
            return piece_array(data, Pieces(table.topic_at, table.topic_size), kind)
        if name == "body":
            return piece_array(data, self._bodies, kind)
        if name in ("tags", "keys"):
            return piece_array(data, self.properties.dispatched[_PROPERTIES[name]], kind)
        if name == "properties":
            assert self.properties.pairs is not None
            return map_array(data, self.properties.pairs, kind)
        if name == "bornHost":
            return host_array(data, table.born_host_at, table.sys_flag & BORN_HOST_V6 != 0, kind)
        if name == "storeHost":
            return host_array(data, table.store_host_at, table.sys_flag & STORE_HOST_V6 != 0, kind)
        if name == "offsetMsgId":
            return id_array(self.ids, kind)
        assert name == "msgId", name
        unique = self.properties.dispatched[_PROPERTIES[name]]
        return piece_array(data, with_default(unique, self.ids), kind)
