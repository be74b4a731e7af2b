"""Walking one part of a log file, by kernel where it is plain and as the serial scan elsewhere.

A part that begins in mid-file has to find its first record, and a body may hold bytes that look
like one.  So the beginning is only a guess, and the driver keeps the result of a part only if
the part before it ends just there (`flintmq.spark.log_parts`).  Nothing but the log is asked.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from flintmq.errors import FlintError
from flintmq.kernels.compiled import Bytes, as_bytes
from flintmq.kernels.records import RecordTable, Stop, walk_records
from flintmq.offline.layout import DataFile, StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions, open_for_reading
from flintmq.offline.resync import candidates, whole_record
from flintmq.offline.scan import Damage, LogScan, Tail

ROWS_MAX: Final = 65_536
BYTES_MAX: Final = 32 << 20
"""Tables of more rows or bytes do not fit into the caches of a processor."""

DAMAGES_MAX: Final = 100_000
"""How many damaged ranges of one part are remembered; more are only counted."""

TakeTable: TypeAlias = Callable[[Bytes, RecordTable], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A part of a file that one task walks.  ``start`` and ``bound`` are physical offsets.

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
class PartScan:
    """What the walk over a part has met.  Offsets are physical ones."""

    part: LogPart
    start: int | None = None
    """Where the first record is; None when there is none."""
    end: int = 0
    """Where the next part has to begin."""
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
    """The fields of a PartScan that grow during the walk."""

    record_count: int = 0
    record_bytes: int = 0
    blank_count: int = 0
    last_record_end: int = 0
    last_time: int | None = None
    damages: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    damage_bytes: int = 0
    is_blind: bool = False


def walk_part(layout: StoreLayout, part: LogPart, take: TakeTable) -> PartScan:
    """Walk the records of a part, hand them on as tables, and return what was met."""
    region = open_for_reading(layout.files, part.file.path)
    if region is None:
        return PartScan(part=part, start=part.start, end=part.bound, is_deleted=True)
    with closing(region):
        limit = min(region.size, layout.log_file_size)
        begin = part.start
        if not part.is_known:
            guess = _find_start(region, part, limit)
            if guess is None:
                return PartScan(part=part)
            begin = guess
        walk = _PartWalk(layout, part, take, limit)
        data = as_bytes(region.view)
        try:
            return walk.run(data, begin)
        finally:
            # An array that is still there would keep the file from being unmapped.
            del data


def _find_start(region: Any, part: LogPart, limit: int) -> int | None:
    """Return the first offset in the part where a whole record or blank seems to begin."""
    base = part.file.first_offset
    begin, bound = part.start - base, min(part.bound - base, limit)
    try:
        found = list(region.data_ranges(begin))
    except FlintError:
        found = [(begin, bound)]  # A file that was deleted cannot be asked.
    ranges = [(low, min(high, bound)) for low, high in found if low < bound]
    for position in candidates(region.view, ranges, limit, base):
        if whole_record(region.view, position, limit, base, check_crc=True) is not None:
            return base + position
    return None


class _PartWalk:
    def __init__(self, layout: StoreLayout, part: LogPart, take: TakeTable, limit: int) -> None:
        self._layout = layout
        self._part = part
        self._take = take
        self._limit = limit
        self._base = part.file.first_offset
        self._stop = min(part.bound - self._base, limit)
        self._counts = _Counts(last_time=part.last_time)
        self._scan: LogScan | None = None

    def run(self, data: Bytes, start: int) -> PartScan:
        base, stop, limit = self._base, self._stop, self._limit
        position = start - base
        while position < stop:
            walk = walk_records(
                data, position, stop, limit, base, rows_max=ROWS_MAX, bytes_max=BYTES_MAX
            )
            self._account(data, walk.table)
            position = walk.position
            if walk.stop is Stop.ODD:
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
        """Let the serial scan judge the place at ``position``; return where the walk goes on."""
        part, base, counts = self._part, self._base, self._counts
        with Regions(self._layout.files) as regions:
            scan = LogScan(
                LogFiles(self._layout, regions),
                check_crc=True,
                start=base + position,
                last_time=counts.last_time or 0,
            )
            with closing(scan.scan_file(part.file, is_last=part.is_last_file)) as batches:
                batch = next(batches, [])
        is_damaged = bool(scan.damage_count) or scan.tail is not Tail.CLEAN
        if is_damaged and part.is_last_file and counts.last_time is None:
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

    def _result(self, start: int, end: int) -> PartScan:
        counts = self._counts
        result = PartScan(
            part=self._part,
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
        if scan is None or not self._part.is_last_file:
            return result
        return replace(
            result,
            tail=scan.tail,
            tail_reason=scan.tail_reason,
            tail_start=scan.tail_start,
            tail_end=scan.tail_end,
        )
