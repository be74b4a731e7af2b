"""From records to Arrow batches: the wanted rows, a bounded size each, damage as asked for."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from flintmq.kernels.records import RecordTable, walk_records
from flintmq.kernels.texts import first_not_utf8
from flintmq.spark.errors import CorruptLogError
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.rows.bodies import sent_bodies, stored_bodies
from flintmq.spark.rows.columns import CORRUPT_REASON, CORRUPT_SIZE
from flintmq.spark.rows.row_batches import Faults, RowBuilder
from flintmq.spark.rows.row_filter import RowFilter
from flintmq.spark.stored.log_split import LogSplit
from flintmq.spark.stored.split_scan import (
    BYTES_MAX,
    ROWS_MAX,
    Found,
    SplitDamage,
    SplitScan,
)

BATCH_ROWS_MAX: Final = ROWS_MAX
BATCH_BYTES_MAX: Final = BYTES_MAX
"""Of stored records; a single body may be larger once it is decompressed."""


PassedOver: TypeAlias = Callable[[SplitDamage], None]
"""Is told of each damaged range that has no row, or no body, because damage is to be skipped."""

FileDeleted: TypeAlias = Callable[[str, SplitDamage], None]
"""Is told of the file of a split that is gone, instead of that being damage."""


class _RowChunk(NamedTuple):
    """Some rows, and how many bytes they stand for."""

    rows: pa.RecordBatch
    size: int


class BatchReader:
    """Gives one split as Arrow batches.

    Nothing here keeps the bytes of the file in a variable: the trace of an error would keep
    them too, and then the file could not be closed.
    """

    def __init__(
        self,
        split: LogSplit,
        schema: pa.Schema,
        row_filter: RowFilter,
        on_corrupt: OnCorrupt,
        passed_over: PassedOver | None = None,
        deleted: FileDeleted | None = None,
    ) -> None:
        self._split = split
        self._deleted = deleted
        self._passed_over = passed_over
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
                for chunk in self._chunks(found):
                    if not pending.has_room_for(chunk):
                        yield pending.take()
                    pending.add(chunk)
                    if pending.is_full:
                        yield pending.take()
        if pending.rows:
            yield pending.take()

    def _chunks(self, found: Found) -> Iterator[_RowChunk]:
        if isinstance(found, SplitDamage):
            yield from self._damage_chunks(found)
            return
        while len(found):
            good = first_not_utf8(self._scan.data, found.topic_at, found.topic_size)
            if good == len(found):
                yield from self._wanted_chunks(found)
                return
            yield from self._wanted_chunks(found.take(slice(good)))
            start = int(found.physical_offset[good])
            end = start + int(found.size[good])
            yield from self._damage_chunks(SplitDamage(start, end, "the topic is not UTF-8"))
            found = found.take(slice(good + 1, None))

    def _wanted_chunks(self, table: RecordTable) -> Iterator[_RowChunk]:
        mask = self._filter.mask(self._scan.data, table)
        yield from self._built_chunks(table if mask is None else table.take(mask))

    def _built_chunks(
        self, table: RecordTable, damage: SplitDamage | None = None
    ) -> Iterator[_RowChunk]:
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
            self._pass_bodies(table, bodies.faults)
            some = table.take(slice(bodies.rows))
            reasons = bodies.faults if damage is None else {0: damage.reason}
            faults = Faults(reasons, crc_ok=damage is None)
            rows = self._builder.build(self._scan.data, some, bodies.pieces, faults)
            yield _RowChunk(rows, int(some.size.sum(dtype=np.int64)) + bodies.grown)
            table = table.take(slice(bodies.rows, None))

    def _pass_bodies(self, table: RecordTable, faults: Mapping[int, str]) -> None:
        if self._on_corrupt is not OnCorrupt.SKIP or self._passed_over is None:
            return
        for row, reason in faults.items():
            start = int(table.physical_offset[row])
            end = start + int(table.size[row])
            self._passed_over(SplitDamage(start, end, reason, is_body=True))

    def _damage_chunks(self, damage: SplitDamage) -> Iterator[_RowChunk]:
        if damage.is_tail and self._on_corrupt is not OnCorrupt.ROW:
            return
        if damage.is_deleted and self._deleted is not None:
            self._deleted(self._split.path, damage)
            return
        if self._on_corrupt is OnCorrupt.FAIL:
            raise CorruptLogError(self._split.path, damage.start, damage.end, damage.reason)
        if self._on_corrupt is OnCorrupt.SKIP:
            if self._passed_over is not None:
                self._passed_over(damage)
            return
        if damage.record is not None:
            if self._filter.wants(damage.record):
                yield from self._built_chunks(self._table_of(damage), damage)
            return
        if self._filter.drops_damage:
            return
        known = {
            "physicalOffset": damage.start,
            CORRUPT_REASON: damage.reason,
            CORRUPT_SIZE: damage.end - damage.start,
        }
        yield _RowChunk(self._builder.build_one(known), 0)

    def _table_of(self, damage: SplitDamage) -> RecordTable:
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

    Mostly a chunk is a batch as it is; only small ones, between damage or left over by a filter,
    are put together.
    """

    def __init__(self) -> None:
        self._chunks: list[pa.RecordBatch] = []
        self.rows = 0
        self._size = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= BATCH_ROWS_MAX or self._size >= BATCH_BYTES_MAX

    def has_room_for(self, chunk: _RowChunk) -> bool:
        rows, size = self.rows + chunk.rows.num_rows, self._size + chunk.size
        return not self.rows or (rows <= BATCH_ROWS_MAX and size <= BATCH_BYTES_MAX)

    def add(self, chunk: _RowChunk) -> None:
        self._chunks.append(chunk.rows)
        self.rows += chunk.rows.num_rows
        self._size += chunk.size

    def take(self) -> pa.RecordBatch:
        batches = self._chunks
        self._chunks, self.rows, self._size = [], 0, 0
        if len(batches) == 1:
            return batches[0]
        (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return batch
