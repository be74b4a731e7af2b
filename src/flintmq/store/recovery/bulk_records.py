"""Many sound records at a time, in machine code: counted, and turned into what the views hold.

Whatever a kernel does not understand is left to `LogWalk.judge` and to the code that takes records
one by one, so that there is one place that decides.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from flintmq.format.host import IPV4_HOST_SIZE
from flintmq.format.stored.index_file import ENTRY_SIZE, entry_position, file_size
from flintmq.format.stored.record_encoding import encode_record
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.derived_views import SplitViews, record_of
from flintmq.kernels.index import chain_timed_entries, match_timed_entries
from flintmq.kernels.records import count_records, walk_records
from flintmq.store.files.interface import is_safe_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.format.stored.record import CheckedRecord
    from flintmq.kernels.compiled import Bytes, Ints, Longs
    from flintmq.kernels.records import Counted, RecordTable

ROWS_MAX: Final = 32_768
BYTES_MAX: Final = 16 << 20
"""Records and bytes of a table."""

_NO_BYTES: Final = as_bytes(b"")


class LogFile(Protocol):
    """What a walk needs to know of a file of the log."""

    @property
    def view(self) -> memoryview:
        """Its bytes."""
        ...

    @property
    def size(self) -> int:
        """How many bytes it has."""
        ...

    @property
    def first_offset(self) -> int:
        """The physical offset of its first byte."""
        ...


class SortedKeys:
    """Index entries of a table, in log order."""

    def __init__(self, hashes: Ints, offsets: Longs, times: Longs) -> None:
        self._hashes = hashes
        self._offsets = offsets
        self._times = times

    @property
    def count(self) -> int:
        """How many entries these are."""
        return len(self._hashes)

    def behind(self, physical_offset: int) -> SortedKeys:
        """Return the entries of records behind an offset."""
        start = int(np.searchsorted(self._offsets, physical_offset, side="right"))
        return SortedKeys(self._hashes[start:], self._offsets[start:], self._times[start:])

    def between(self, start: int, end: int) -> SortedKeys:
        """Return some of the entries, by their numbers here."""
        rows = slice(start, end)
        return SortedKeys(self._hashes[rows], self._offsets[rows], self._times[rows])

    def lists(self) -> tuple[list[int], list[int], list[int]]:
        """Return hashes, physical offsets and store times side by side."""
        return self._hashes.tolist(), self._offsets.tolist(), self._times.tolist()

    def match(
        self, view: memoryview, newest: array[int], *, entry_base: int, first: int, begin_time: int
    ) -> int:
        """Return how many entries of a file, from number ``first`` on, are just these.

        ``newest`` has for each slot the last entry that leads there, before and after the call.
        """
        return int(
            match_timed_entries(
                as_bytes(view),
                self._hashes,
                self._offsets,
                self._times,
                np.frombuffer(newest, np.int32),
                entry_base,
                first,
                begin_time,
            )
        )

    def entry(self, number: int) -> tuple[int, int, int]:
        """Return hash, physical offset and store time of an entry."""
        return int(self._hashes[number]), int(self._offsets[number]), int(self._times[number])

    def chain(
        self, view: memoryview, keys: range, *, slots: int, first: int, begin_time: int
    ) -> tuple[memoryview, int]:
        """Have slots lead to some of the entries; return those, and how many slots are new."""
        rows = slice(keys.start, keys.stop)
        entries = np.empty(len(keys) * ENTRY_SIZE, np.uint8)
        used = chain_timed_entries(
            np.frombuffer(view, np.uint8),
            self._hashes[rows],
            self._offsets[rows],
            self._times[rows],
            slots,
            first,
            begin_time,
            entries,
        )
        return entries.data, int(used)


class UnitSlice(NamedTuple):
    """Units of one queue whose offsets follow each other."""

    topic: str
    queue_id: int
    first: int
    units: memoryview


class TableViews(NamedTuple):
    """What the views hold of the records of one table."""

    slices: list[UnitSlice]
    keys: SortedKeys
    has_bad_levels: bool
    """Whether the delay level of a record is no number."""


class SoundRecords:
    """Records of one log file that follow each other."""

    def __init__(self, data: Bytes, table: RecordTable, views: SplitViews) -> None:
        self._data = data
        self._table = table
        self._views = views
        self._derived: TableViews | None = None
        self._is_derived = False

    def __len__(self) -> int:
        return len(self._table)

    @property
    def physical_offset(self) -> int:
        """The physical offset of the first record."""
        return int(self._table.physical_offset[0])

    @property
    def end(self) -> int:
        """The physical offset behind the last record."""
        return int(self._table.physical_offset[-1]) + int(self._table.size[-1])

    def __iter__(self) -> Iterator[CheckedRecord]:
        for row in range(len(self._table)):
            yield record_of(self._data, self._table, row)

    @property
    def byte_count(self) -> int:
        """How many bytes the records have."""
        return self.end - self.physical_offset

    @property
    def last_time(self) -> int:
        """The store time of the last record."""
        return int(self._table.store_timestamp[-1])

    @property
    def data(self) -> Bytes:
        """The bytes of the file, into which ``table`` leads."""
        return self._data

    @property
    def table(self) -> RecordTable:
        """What the records say, side by side."""
        return self._table

    def release(self) -> None:
        """Let go of the file, so that it can be unmapped; nothing can be read after that."""
        self._data = _NO_BYTES

    def derive_ahead(self) -> None:
        """Find out what the views hold, so that `derive` has it; any thread may do it."""
        if len(self._table):
            self._derived, self._is_derived = self._derive(), True

    def derive(self) -> TableViews | None:
        """Return what the views hold; None if a name is no topic, or not as it is written."""
        return self._derived if self._is_derived else self._derive()

    def _derive(self) -> TableViews | None:
        bad_level_count = self._views.bad_level_count
        self._views.take(self._data, self._table)
        found, entries = self._views.slices(), self._views.entries()
        names = [(topic.decode("utf-8", "replace"), queue_id) for topic, queue_id in found.names]
        if not all(is_safe_name(name) for name, _ in names) or len(set(names)) < len(names):
            return None
        slices = [
            UnitSlice(names[queue][0], names[queue][1], first, found.units_of(number).data)
            for number, (queue, first) in enumerate(
                zip(found.slice_queue.tolist(), found.slice_first.tolist(), strict=True)
            )
        ]
        return TableViews(
            slices,
            SortedKeys(entries.hashes, entries.offsets, entries.times),
            self._views.bad_level_count > bad_level_count,
        )


class BulkRecords:
    """Reads sound records of log files by kernels."""

    def __init__(self, *, delay_levels: DelayLevels, multi: bool, lmq: bool) -> None:
        self._delay_levels = delay_levels
        self._multi = multi
        self._lmq = lmq

    def count(
        self, file: LogFile, start: int, stop: int, *, check_crc: bool, no_zeros: bool
    ) -> Counted:
        """Count the sound records that start from one physical offset to another."""
        base = file.first_offset
        return count_records(
            as_bytes(file.view),
            start - base,
            stop - base,
            file.size,
            base,
            check_crc=check_crc,
            no_zeros=no_zeros,
        )

    def views(self) -> SplitViews:
        """Return what gathers units and keys of the tables of one file."""
        return SplitViews(
            delay_levels=self._delay_levels,
            lmq=self._lmq,
            wants_units=True,
            wants_keys=True,
            multi=self._multi,
        )

    def table(
        self, file: LogFile, start: int, stop: int, views: SplitViews, *, check_crc: bool = False
    ) -> SoundRecords:
        """Return the sound records from ``start`` on, up to ``stop`` or as many as a table has."""
        base, data = file.first_offset, as_bytes(file.view)
        walk = walk_records(
            data,
            start - base,
            stop - base,
            file.size,
            base,
            rows_max=ROWS_MAX,
            bytes_max=BYTES_MAX,
            check_crc=check_crc,
        )
        return SoundRecords(data, walk.table, views)


class _SampleFile(NamedTuple):
    """A log file of one record."""

    view: memoryview
    size: int
    first_offset: int = 0


def ready_records(*, delay_levels: DelayLevels, multi: bool, lmq: bool) -> BulkRecords:
    """Return the reader with its machine code loaded, or compiled where it never was."""
    bulk = BulkRecords(delay_levels=delay_levels, multi=multi, lmq=lmq)
    host = bytes(IPV4_HOST_SIZE)
    record = encode_record(
        topic=b"warm",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=host,
        store_timestamp=0,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"body",
        properties=b"UNIQ_KEY\x01id\x02KEYS\x01key\x02",
    )
    sample = _SampleFile(memoryview(record), len(record))
    counted = bulk.count(sample, 0, len(record), check_crc=True, no_zeros=True)
    assert counted.record_count == 1
    found = bulk.table(sample, 0, len(record), bulk.views()).derive()
    assert found is not None
    index = memoryview(bytearray(file_size(1, 4)))
    entries, _ = found.keys.chain(index, range(2), slots=1, first=1, begin_time=0)
    first_at = entry_position(1, 1)
    index[first_at : first_at + len(entries)] = entries
    newest = array("i", [0])
    matched = found.keys.match(
        index, newest, entry_base=entry_position(1, 0), first=1, begin_time=0
    )
    assert matched == 2
    return bulk
