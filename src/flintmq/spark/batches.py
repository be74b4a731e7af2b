"""From records to Arrow batches: the wanted rows, a bounded size each, damage as asked for."""

from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from flintmq.kernels.records import RecordTable, walk_records
from flintmq.kernels.texts import first_not_utf8
from flintmq.spark.bodies import sent_bodies, stored_bodies
from flintmq.spark.columns import CORRUPT_REASON, CORRUPT_SIZE
from flintmq.spark.errors import CorruptLogError
from flintmq.spark.options import OnCorrupt
from flintmq.spark.row_filter import RowFilter
from flintmq.spark.rows import Faults, RowBuilder
from flintmq.spark.split_scan import BYTES_MAX, ROWS_MAX, Damage, Found, LogSplit, SplitScan

BATCH_ROWS_MAX: Final = ROWS_MAX
BATCH_BYTES_MAX: Final = BYTES_MAX
"""Of stored records; a single body may be larger once it is decompressed."""


class _Part(NamedTuple):
    """Some rows, and how many bytes they stand for."""

    rows: pa.RecordBatch
    size: int


class BatchReader:
    """Gives one split as Arrow batches.

    Nothing here keeps the bytes of the file in a variable: the trace of an error would keep
    them too, and then the file could not be closed.
    """

    def __init__(
        self, split: LogSplit, schema: pa.Schema, row_filter: RowFilter, on_corrupt: OnCorrupt
    ) -> None:
        self._split = split
        self._filter = row_filter
        self._on_corrupt = on_corrupt
        self._has_body = "body" in schema.names
        self._scan = SplitScan(split, rows_max=BATCH_ROWS_MAX, bytes_max=BATCH_BYTES_MAX)
        constants = {
            "brokerName": split.broker_name,
            "fileName": split.path.rpartition("/")[2],
            "path": split.store,
        }
        self._builder = RowBuilder(schema, constants)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows; CorruptLogError at damage if that is asked for."""
        pending = _Pending()
        with closing(self._scan.found()) as every:
            for found in every:
                for part in self._parts(found):
                    if not pending.has_room_for(part):
                        yield pending.take()
                    pending.add(part)
                    if pending.is_full:
                        yield pending.take()
        if pending.rows:
            yield pending.take()

    def _parts(self, found: Found) -> Iterator[_Part]:
        if isinstance(found, Damage):
            yield from self._damage_parts(found)
            return
        while len(found):
            good = first_not_utf8(self._scan.data, found.topic_at, found.topic_size)
            if good == len(found):
                yield from self._wanted_parts(found)
                return
            yield from self._wanted_parts(found.take(slice(good)))
            start = int(found.physical_offset[good])
            end = start + int(found.size[good])
            yield from self._damage_parts(Damage(start, end, "the topic is not UTF-8"))
            found = found.take(slice(good + 1, None))

    def _wanted_parts(self, table: RecordTable) -> Iterator[_Part]:
        mask = self._filter.mask(self._scan.data, table)
        yield from self._built_parts(table if mask is None else table.take(mask))

    def _built_parts(self, table: RecordTable, damage: Damage | None = None) -> Iterator[_Part]:
        """Yield the rows of a table; ``damage`` tells what is wrong with the one that it has."""
        while len(table):
            bodies = stored_bodies(table)
            if self._has_body:
                bodies = sent_bodies(self._scan.data, table, bytes_max=BATCH_BYTES_MAX)
            if bodies.faults and damage is None and self._on_corrupt is OnCorrupt.FAIL:
                row, reason = next(iter(bodies.faults.items()))
                start = int(table.physical_offset[row])
                end = start + int(table.size[row])
                raise CorruptLogError(self._split.path, start, end, reason)
            some = table.take(slice(bodies.rows))
            reasons = bodies.faults if damage is None else {0: damage.reason}
            faults = Faults(reasons, crc_ok=damage is None)
            rows = self._builder.build(self._scan.data, some, bodies.pieces, faults)
            yield _Part(rows, int(some.size.sum(dtype=np.int64)) + bodies.grown)
            table = table.take(slice(bodies.rows, None))

    def _damage_parts(self, damage: Damage) -> Iterator[_Part]:
        if damage.is_tail and self._on_corrupt is not OnCorrupt.ROW:
            return
        if self._on_corrupt is OnCorrupt.FAIL:
            raise CorruptLogError(self._split.path, damage.start, damage.end, damage.reason)
        if self._on_corrupt is OnCorrupt.SKIP:
            return
        if damage.record is not None:
            if self._filter.wants(damage.record):
                yield from self._built_parts(self._table_of(damage), damage)
            return
        if self._filter.drops_damage:
            return
        known = {
            "physicalOffset": damage.start,
            CORRUPT_REASON: damage.reason,
            CORRUPT_SIZE: damage.end - damage.start,
        }
        yield _Part(self._builder.build_one(known), 0)

    def _table_of(self, damage: Damage) -> RecordTable:
        """Return the record whose checksum is wrong."""
        base = self._split.file_start
        start, end = damage.start - base, damage.end - base
        walk = walk_records(
            self._scan.data, start, end, end, base, rows_max=1, bytes_max=1, check_crc=False
        )
        assert len(walk.table) == 1, damage
        return walk.table


class _Pending:
    """Rows that wait until they are enough for a batch.

    Mostly a part is a batch as it is; only small ones, between damage or left over by a filter,
    are put together.
    """

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        self.rows = 0
        self._size = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= BATCH_ROWS_MAX or self._size >= BATCH_BYTES_MAX

    def has_room_for(self, part: _Part) -> bool:
        rows, size = self.rows + part.rows.num_rows, self._size + part.size
        return not self.rows or (rows <= BATCH_ROWS_MAX and size <= BATCH_BYTES_MAX)

    def add(self, part: _Part) -> None:
        self._parts.append(part.rows)
        self.rows += part.rows.num_rows
        self._size += part.size

    def take(self) -> pa.RecordBatch:
        parts = self._parts
        self._parts, self.rows, self._size = [], 0, 0
        if len(parts) == 1:
            return parts[0]
        (batch,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        return batch
