"""What the views must hold for one split of the log: units by queue, and entries of the index.

The same as `flintmq.offline.derive.Derivation` gives, but for many records at once, and without
a word about what it means: a queue whose offsets jump comes as several slices, and whoever takes
the slices of all splits in order judges the jump.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from flintmq.format.delay_levels import DelayLevels
from flintmq.format.java import extend_hash, index_hash
from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.format.stored.dispatch_fields import BadDelayLevelError, dispatch_fields
from flintmq.format.stored.queue_claims import queue_claims
from flintmq.format.stored.record import CheckedRecord
from flintmq.format.sys_flag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flintmq.kernels.compiled import Bytes, Ints, Longs
from flintmq.kernels.dispatch_fields import (
    IS_MULTI,
    IS_SPECIAL,
    DispatchTable,
    dispatch_records,
)
from flintmq.kernels.queue_numbers import QueueName, QueueNumbers, key_prefix
from flintmq.kernels.queue_units import gather_slices
from flintmq.kernels.records import RecordTable

HASHES_PER_RECORD: Final = 4
HASHES_MORE: Final = 32_768
"""Above the number of keys that one property can hold."""

OFFSET_CLAIM_MAX: Final = 1 << 62
"""A property can claim any queue offset; what lies above this is in no file either way."""

BAD_LEVELS_MAX: Final = 10_000
"""How many records of a split without a delay level are remembered."""

MORE_LEVELS: Final = "more records without a delay level than can be kept"

_LONG_WRAP: Final = 1 << 64


def partition_of(name: QueueName, count: int) -> int:
    """Return which of ``count`` partitions a queue belongs to, by its name as files have it."""
    topic = name[0].decode("utf-8", "replace").encode()
    return zlib.crc32(b"%d/" % name[1] + topic) % count


class BadLevel(NamedTuple):
    """A delayed record whose level is no number."""

    physical_offset: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Entries of the key index in log order: side by side hash, record and store time."""

    hashes: Ints
    offsets: Longs
    times: Longs

    def __len__(self) -> int:
        return len(self.hashes)


@dataclass(frozen=True, slots=True, eq=False)
class UnitSlices:
    """The units of all queues of a split, queue by queue; each queue has at least one slice.

    A slice holds units of one queue whose offsets follow each other.
    """

    names: Sequence[QueueName]
    slice_queue: Longs
    """The number of the queue of each slice, ascending."""
    slice_first: Longs
    """The queue offset of the first unit of each slice."""
    slice_at: Longs
    """The number of its first unit in ``units``."""
    units: Bytes
    """All units as they stand in files."""

    def units_of(self, number: int) -> Bytes:
        """Return the units of one slice."""
        end = (
            self.slice_at[number + 1] * UNIT_SIZE
            if number + 1 < len(self.slice_at)
            else len(self.units)
        )
        return self.units[self.slice_at[number] * UNIT_SIZE : end]


class _UnitRows(NamedTuple):
    """Units that are asked for, side by side, in log order."""

    queues: Ints
    queue_offset: Longs
    physical_offset: Longs
    size: Ints
    code: Longs

    def take(self, rows: "slice | npt.NDArray[np.bool_] | Longs") -> "_UnitRows":
        """Return some of the rows."""
        return _UnitRows(
            self.queues[rows],
            self.queue_offset[rows],
            self.physical_offset[rows],
            self.size[rows],
            self.code[rows],
        )

    @classmethod
    def join(cls, parts: "Sequence[_UnitRows]") -> "_UnitRows":
        """Return the rows of all parts."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            _joined_ints([part.queues for part in parts]),
            _joined_longs([part.queue_offset for part in parts]),
            _joined_longs([part.physical_offset for part in parts]),
            _joined_ints([part.size for part in parts]),
            _joined_longs([part.code for part in parts]),
        )


def _wrapped(code: int) -> int:
    """Return a number as Java's arithmetic of 64 bits has it."""
    return (code + _LONG_WRAP // 2) % _LONG_WRAP - _LONG_WRAP // 2


class SplitViews:
    """Gathers units and entries from the tables of one split, which come in log order."""

    def __init__(
        self,
        *,
        delay_levels: DelayLevels,
        lmq: bool,
        wants_units: bool,
        wants_keys: bool,
        multi: bool = True,
    ) -> None:
        """Begin with nothing; without ``multi`` each record has a unit in its own queue only."""
        self._delay_levels = delay_levels
        self._lmq = lmq
        self._multi = multi
        self._wants_units = wants_units
        self._wants_keys = wants_keys
        self._numbers = QueueNumbers()
        self._rows: list[_UnitRows] = []
        self._entries: list[Entries] = []
        self._extra: dict[QueueName, int] = {}
        self.bad_level_count = 0
        self.bad_levels: list[BadLevel] = []

    def take(self, data: Bytes, table: RecordTable) -> None:
        """Take the next records, whose parts stand in ``data``."""
        if not len(table):
            return
        queues = self._numbers.number(data, table)
        codes, key_counts, flags, hashes = self._derive(data, table, queues)
        special_rows = np.flatnonzero(flags & IS_SPECIAL)
        if len(special_rows):
            hashes = self._derive_special(data, table, special_rows, codes, key_counts, hashes)
        if self._wants_units:
            rows = _UnitRows(queues, table.queue_offset, table.physical_offset, table.size, codes)
            multi_rows = np.flatnonzero((flags & IS_MULTI != 0) & self._multi)
            self._add_units(data, table, rows, multi_rows)
        if self._wants_keys:
            self._add_entries(table, key_counts, hashes)

    def _derive(self, data: Bytes, table: RecordTable, queues: Ints) -> DispatchTable:
        """Return what the kernel finds in the properties of the records."""
        count = len(table)
        found = DispatchTable(
            np.empty(count, np.int64),
            np.empty(count, np.int32),
            np.empty(count, np.uint8),
            np.empty(count * HASHES_PER_RECORD + HASHES_MORE, np.int32),
        )
        done = hash_count = 0
        while True:
            done, hash_count = dispatch_records(
                data,
                table.properties_at,
                table.properties_size,
                queues,
                self._numbers.prefixes,
                found,
                done,
                hash_count,
            )
            hashes = found.hashes[:hash_count]
            if done == count:
                return found._replace(hashes=hashes)
            found = found._replace(hashes=np.concatenate([hashes, np.empty_like(found.hashes)]))

    # -- records for Python ------------------------------------------------------------------

    def _derive_special(
        self,
        data: Bytes,
        table: RecordTable,
        rows: Longs,
        codes: Longs,
        key_counts: Ints,
        hashes: Ints,
    ) -> Ints:
        """Fill in what the kernel leaves to Python; return the hashes of all records."""
        ends = np.cumsum(key_counts)
        pieces: list[Ints] = []
        done = 0
        for row in rows.tolist():
            code, keys = self._fields(data, table, row)
            codes[row] = _wrapped(code)
            key_counts[row] = len(keys)
            pieces += [hashes[done : ends[row]], np.array(keys, np.int32)]
            done = ends[row]
        return np.concatenate([*pieces, hashes[done:]])

    def _fields(self, data: Bytes, table: RecordTable, row: int) -> tuple[int, list[int]]:
        record = record_of(data, table, row)
        try:
            code, keys = dispatch_fields(
                record.topic,
                record.properties,
                record.store_timestamp,
                self._delay_levels,
            )
        except BadDelayLevelError as error:
            self.bad_level_count += 1
            if len(self.bad_levels) < BAD_LEVELS_MAX:
                self.bad_levels.append(BadLevel(record.physical_offset, error.reason))
            code, keys = error.fields
        prefix = key_prefix(record.topic)
        return code, [index_hash(extend_hash(prefix, key)) for key in keys]

    # -- units -------------------------------------------------------------------------------

    def _add_units(
        self, data: Bytes, table: RecordTable, rows: _UnitRows, multi_rows: Longs
    ) -> None:
        """Keep the rows that have a unit, and further units of some of them behind them."""
        has_unit = table.sys_flag & TRANSACTION_PREPARED == 0
        done = 0
        for row in multi_rows.tolist():
            claims = queue_claims(record_of(data, table, row), lmq=self._lmq)[1:]
            if not claims:
                continue
            self._rows.append(rows.take(slice(done, row + 1)).take(has_unit[done : row + 1]))
            done = row + 1
            names = [(topic.encode(), queue_id) for topic, queue_id, _ in claims]
            numbers = [self._extra.setdefault(name, -1 - len(self._extra)) for name in names]
            offsets = [min(offset, OFFSET_CLAIM_MAX) for _, _, offset in claims]
            copies = rows.take(np.full(len(claims), row, np.int64))
            self._rows.append(
                copies._replace(
                    queues=np.array(numbers, np.int32), queue_offset=np.array(offsets, np.int64)
                )
            )
        rest = rows.take(slice(done, None))
        self._rows.append(rest if has_unit[done:].all() else rest.take(has_unit[done:]))

    def slices(self, partition_count: int = 1) -> UnitSlices:
        """Return the units of all queues, those of one partition side by side."""
        rows, self._rows = _UnitRows.join(self._rows), []
        queues, names = rows.queues, list(self._numbers.names)
        if self._extra:
            names = self._number_extra(queues, names)
        counts = np.bincount(queues, minlength=len(names))
        partitions = np.array([partition_of(name, partition_count) for name in names], np.int64)
        order = np.lexsort((np.arange(len(names)), partitions))
        places_of = np.empty(len(names), np.int64)
        places_of[order] = np.cumsum(counts[order]) - counts[order]
        starts = places_of.copy()
        units = np.empty(len(queues) * UNIT_SIZE, np.uint8)
        slice_at, slice_first = np.empty(len(queues), np.int64), np.empty(len(queues), np.int64)
        slice_count = gather_slices(*rows, places_of, units, slice_at, slice_first)
        by_place = np.argsort(slice_at[:slice_count], kind="stable")
        slice_at, slice_first = slice_at[by_place], slice_first[by_place]
        used = order[counts[order] > 0]
        slice_queue = np.searchsorted(starts[used], slice_at, side="right") - 1
        return UnitSlices(
            [names[number] for number in used], slice_queue, slice_first, slice_at, units
        )

    def _number_extra(self, queues: Ints, names: list[QueueName]) -> list[QueueName]:
        """Give the queues that only properties name their numbers; return all names."""
        known = {name: number for number, name in enumerate(names)}
        places = np.empty(len(self._extra), np.int32)
        for name, number in self._extra.items():
            places[-1 - number] = known.setdefault(name, len(known))
        is_extra = queues < 0
        queues[is_extra] = places[-1 - queues[is_extra]]
        return list(known)

    # -- entries and counts ------------------------------------------------------------------

    def _add_entries(self, table: RecordTable, key_counts: Ints, hashes: Ints) -> None:
        counts: Ints = key_counts
        rolled_back = table.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK
        if rolled_back.any():
            hashes = hashes[~np.repeat(rolled_back, key_counts)]
            counts = np.where(rolled_back, 0, key_counts).astype(np.int32)
        self._entries.append(
            Entries(
                hashes.copy(),
                np.repeat(table.physical_offset, counts),
                np.repeat(table.store_timestamp, counts),
            )
        )

    def entries(self) -> Entries:
        """Return the entries of all records."""
        entries, self._entries = self._entries, []
        return Entries(
            _joined_ints([part.hashes for part in entries]),
            _joined_longs([part.offsets for part in entries]),
            _joined_longs([part.times for part in entries]),
        )

    def topic_totals(self) -> dict[bytes, tuple[int, int]]:
        """Return for each topic how many records and bytes it has in this split."""
        totals: dict[bytes, tuple[int, int]] = {}
        numbers = self._numbers
        for number, (topic, _) in enumerate(numbers.names):
            count, size = totals.get(topic, (0, 0))
            totals[topic] = (
                count + int(numbers.record_counts[number]),
                size + int(numbers.record_bytes[number]),
            )
        return totals


def _joined_ints(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int32), *parts])


def _joined_longs(parts: Sequence[Longs]) -> Longs:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def record_of(data: Bytes, table: RecordTable, row: int) -> CheckedRecord:
    """Return one record of a table in the form that the code in Python takes."""
    topic_at, properties_at = int(table.topic_at[row]), int(table.properties_at[row])
    return CheckedRecord(
        size=int(table.size[row]),
        queue_id=int(table.queue_id[row]),
        queue_offset=int(table.queue_offset[row]),
        physical_offset=int(table.physical_offset[row]),
        sys_flag=int(table.sys_flag[row]),
        store_timestamp=int(table.store_timestamp[row]),
        topic=data[topic_at : topic_at + int(table.topic_size[row])].tobytes(),
        properties=data[properties_at : properties_at + int(table.properties_size[row])].tobytes(),
        prepared_transaction_offset=int(table.prepared_transaction_offset[row]),
    )
