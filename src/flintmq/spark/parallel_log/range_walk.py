"""Walks one range of a log file: by kernel over sound records, by the serial scan elsewhere.

A range that begins in mid-file has to find its first record, and a body may hold bytes that look
like one.  So the beginning is only a guess, and the driver keeps the result of a range only if
the range before it ends at that very offset (`flintmq.spark.parallel_log.range_planning`).  No
queue is read for it, only the log.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from flintmq.errors import FlintError
from flintmq.format.stored.record_search import candidates, whole_record
from flintmq.kernels.compiled import Bytes, as_bytes
from flintmq.kernels.records import RecordTable, Stop, walk_records
from flintmq.offline.layout import DataFile, StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions, StoreRegion, open_for_reading
from flintmq.offline.scan import Damage, LogScan, Tail

ROWS_MAX: Final = 65_536
BYTES_MAX: Final = 32 << 20
"""Tables of more rows or bytes do not fit into the caches of a processor."""

DAMAGES_MAX: Final = 100_000
"""How many damaged ranges of one walk are remembered; more are only counted."""

TakeTable: TypeAlias = Callable[[Bytes, RecordTable], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkRange:
    """A range of a log file that one task walks.  ``start`` and ``bound`` are physical offsets.

    All records that begin from ``start`` to ``bound`` belong to it.  Without ``is_known`` the
    start is only where to look for the first record.
    """

    store: int
    number: int
    file: DataFile
    is_last_file: bool
    start: int
    bound: int
    is_known: bool
    last_time: int | None = None
    """The store time of the record before; None while it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeScan:
    """What the walk over a range has met.  Offsets are physical ones."""

    log_range: WalkRange
    start: int | None = None
    """Where the first record is; None when there is none."""
    end: int = 0
    """Where the next range has to begin."""
    record_count: int = 0
    record_bytes: int = 0
    blank_count: int = 0
    last_record_end: int = 0
    last_time: int | None = None
    damages: tuple[Damage, ...] = ()
    damage_count: int = 0
    damage_bytes: int = 0
    tail: Tail = Tail.CLEAN
    tail_reason: str = ""
    tail_start: int = 0
    tail_end: int = 0
    is_deleted: bool = False
    is_blind: bool = False
    """Whether the time of the record before mattered and was not known."""


@dataclass(slots=True)
class _Counts:
    """The fields of a `RangeScan` that grow during the walk."""

    record_count: int = 0
    record_bytes: int = 0
    blank_count: int = 0
    last_record_end: int = 0
    last_time: int | None = None
    damages: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    damage_bytes: int = 0
    is_blind: bool = False


def walk_range(layout: StoreLayout, log_range: WalkRange, take: TakeTable) -> RangeScan:
    """Walk the records of a range, hand them on as tables, and return what was met."""
    region = open_for_reading(layout.files, log_range.file.path)
    if region is None:
        return RangeScan(
            log_range=log_range, start=log_range.start, end=log_range.bound, is_deleted=True
        )
    with closing(region):
        limit = min(region.size, layout.log_file_size)
        begin = log_range.start
        if not log_range.is_known:
            guess = _find_start(region, log_range, limit)
            if guess is None:
                return RangeScan(log_range=log_range)
            begin = guess
        walk = _RangeWalk(layout, log_range, take, limit)
        data = as_bytes(region.view)
        try:
            return walk.run(data, begin)
        finally:
            # An array that is still there would keep the file from being unmapped.
            del data


def _find_start(region: StoreRegion, log_range: WalkRange, limit: int) -> int | None:
    """Return the first offset in the range where a whole record or blank seems to begin."""
    base = log_range.file.first_offset
    begin, bound = log_range.start - base, min(log_range.bound - base, limit)
    try:
        found = list(region.data_ranges(begin))
    except FlintError:
        found = [(begin, bound)]  # A file that was deleted cannot be asked.
    ranges = [(low, min(high, bound)) for low, high in found if low < bound]
    for position in candidates(region.view, ranges, limit, base):
        if whole_record(region.view, position, limit, base, check_crc=True) is not None:
            return base + position
    return None


class _RangeWalk:
    """One walk over a range, and what it has counted so far."""

    def __init__(
        self, layout: StoreLayout, log_range: WalkRange, take: TakeTable, limit: int
    ) -> None:
        self._layout = layout
        self._range = log_range
        self._take = take
        self._limit = limit
        self._base = log_range.file.first_offset
        self._stop = min(log_range.bound - self._base, limit)
        self._counts = _Counts(last_time=log_range.last_time)
        self._scan: LogScan | None = None

    def run(self, data: Bytes, start: int) -> RangeScan:
        base, stop, limit = self._base, self._stop, self._limit
        position = start - base
        while position < stop:
            walk = walk_records(
                data, position, stop, limit, base, rows_max=ROWS_MAX, bytes_max=BYTES_MAX
            )
            self._account(data, walk.table)
            position = walk.position
            if walk.stop is Stop.SPECIAL:
                position = self._judge(data, position)
        return self._result(start, base + position)

    def _account(self, data: Bytes, table: RecordTable) -> None:
        if not len(table):
            return
        counts = self._counts
        counts.record_count += len(table)
        counts.record_bytes += int(table.size.sum())
        counts.last_record_end = int(table.physical_offset[-1]) + int(table.size[-1])
        counts.last_time = int(table.store_timestamp[-1])
        self._take(data, table)

    def _judge(self, data: Bytes, position: int) -> int:
        """Let the serial scan judge the bytes at ``position``; return where the walk goes on."""
        log_range, base, counts = self._range, self._base, self._counts
        with Regions(self._layout.files) as regions:
            scan = LogScan(
                LogFiles(self._layout, regions),
                check_crc=True,
                start=base + position,
                last_time=counts.last_time or 0,
            )
            with closing(scan.scan_file(log_range.file, is_last=log_range.is_last_file)) as batches:
                batch = next(batches, [])
        is_damaged = bool(scan.damage_count) or scan.tail is not Tail.CLEAN
        if is_damaged and log_range.is_last_file and counts.last_time is None:
            counts.is_blind = True
        counts.damage_count += scan.damage_count
        counts.damage_bytes += scan.damage_bytes
        counts.damages += scan.damages[: DAMAGES_MAX - len(counts.damages)]
        mine = [record for record in batch if record.physical_offset - base < self._stop]
        if mine:
            first, last = mine[0].physical_offset - base, mine[-1].physical_offset - base
            walk = walk_records(
                data,
                first,
                last + 1,
                self._limit,
                base,
                rows_max=len(mine),
                bytes_max=self._limit,
                check_crc=False,
            )
            assert len(walk.table) == len(mine), (first, len(walk.table), len(mine))
            self._account(data, walk.table)
        if len(mine) < len(batch):
            return batch[len(mine)].physical_offset - base
        if batch and not scan.blank_count:
            return batch[-1].physical_offset + batch[-1].size - base
        counts.blank_count += scan.blank_count
        self._scan = scan
        return self._limit

    def _result(self, start: int, end: int) -> RangeScan:
        counts = self._counts
        result = RangeScan(
            log_range=self._range,
            start=start,
            end=end,
            record_count=counts.record_count,
            record_bytes=counts.record_bytes,
            blank_count=counts.blank_count,
            last_record_end=counts.last_record_end,
            last_time=counts.last_time,
            damages=tuple(counts.damages),
            damage_count=counts.damage_count,
            damage_bytes=counts.damage_bytes,
            is_blind=counts.is_blind,
        )
        scan = self._scan
        if scan is None or not self._range.is_last_file:
            return result
        return replace(
            result,
            tail=scan.tail,
            tail_reason=scan.tail_reason,
            tail_start=scan.tail_start,
            tail_end=scan.tail_end,
        )
