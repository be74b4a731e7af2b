"""Many records at once as they are in another log: with other offsets, else the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from flintmq.format.stored.consume_queue import UNIT_TABLE
from flintmq.format.stored.record_layout import PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT
from flintmq.kernels.derived_views import record_of
from flintmq.kernels.field_dtypes import field_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.format.stored.record import CheckedRecord
    from flintmq.kernels.compiled import Bytes, Longs
    from flintmq.offline.salvaging.queue_numbering import QueueNumbering
    from flintmq.store.recovery.bulk_records import SoundRecords

LONG_SIZE: Final = 8
UNIT_DTYPE: Final = field_dtype(UNIT_TABLE, ["physical_offset"])


class MovedRecords:
    """Sound records of one file with the queue offsets that they get in a new log."""

    def __init__(self, records: SoundRecords, queue_offsets: Longs) -> None:
        self._data = records.data
        self._table = records.table
        self._queue_offsets = queue_offsets

    def __len__(self) -> int:
        return len(self._table)

    def old_offset(self, row: int) -> int:
        """Return where a record stands in the log it comes from."""
        return int(self._table.physical_offset[row])

    def fitting(self, start: int, size: int) -> int:
        """Return how many records, from number ``start`` on, have at most so many bytes."""
        ends = self._table.position[start:] + self._table.size[start:]
        limit = int(self._table.position[start]) + size
        return int(np.searchsorted(ends, limit, side="right"))

    def moved(self, rows: range, physical_offset: int) -> bytearray:
        """Return the bytes of some records as they are at another place of a log."""
        first, last = int(self._table.position[rows.start]), rows.stop - 1
        end = int(self._table.position[last]) + int(self._table.size[last])
        raw = self._data[first:end].copy()
        starts = self._table.position[rows.start : rows.stop] - first
        queue_offsets = self._queue_offsets[rows.start : rows.stop]
        if not np.array_equal(queue_offsets, self._table.queue_offset[rows.start : rows.stop]):
            _put_longs(raw, starts + QUEUE_OFFSET_AT, queue_offsets)
        if physical_offset != self.old_offset(rows.start):
            _put_longs(raw, starts + PHYSICAL_OFFSET_AT, starts + physical_offset)
        return bytearray(raw)

    def ends_of_transactions(self, rows: range) -> Iterator[tuple[int, CheckedRecord]]:
        """Yield the records that name a half message, with their positions behind the first."""
        named = self._table.prepared_transaction_offset[rows.start : rows.stop] > 0
        for row in (np.flatnonzero(named) + rows.start).tolist():
            position = int(self._table.position[row] - self._table.position[rows.start])
            yield position, record_of(self._data, self._table, row)


def renumbered(records: SoundRecords, numbers: QueueNumbering) -> MovedRecords | None:
    """Give records the queue offsets of a new log; None if that takes a look at each of them."""
    views = records.derive()
    if views is None:
        return None
    slices = [((topic, queue_id), first, units) for topic, queue_id, first, units in views.slices]
    keys = {key for key, _, _ in slices}
    shifts = [numbers.shift_of(key, first) for key, first, _ in slices]
    if len(keys) < len(slices) or None in shifts:
        return None
    queue_offsets = records.table.queue_offset.copy()
    for (key, first, units), shift in zip(slices, shifts, strict=True):
        assert shift is not None
        unit_offsets = np.frombuffer(units, UNIT_DTYPE)["physical_offset"]
        if shift:
            rows = np.searchsorted(records.table.physical_offset, unit_offsets)
            queue_offsets[rows] -= shift
        numbers.went_on(key, first - shift + len(unit_offsets))
    return MovedRecords(records, queue_offsets)


def _put_longs(target: Bytes, positions: Longs, numbers: Longs) -> None:
    """Write numbers of eight bytes at any positions."""
    as_written = numbers.astype(">i8").view(np.uint8).reshape(-1, LONG_SIZE)
    target[positions[:, None] + np.arange(LONG_SIZE)] = as_written
