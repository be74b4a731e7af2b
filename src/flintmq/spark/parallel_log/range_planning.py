"""Cuts logs into ranges for tasks, and joins what the tasks have met into one scan.

The records of a file form one chain from its start.  A range in mid-file guesses where the chain
enters it; its result counts only if the range before it ends at that very offset.  Otherwise the
guess has met a body that looks like a record, or there is damage: the range is walked again from
where the chain really enters it.  So the records are those of a serial scan, whatever the log
holds, and no queue has to be right for it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, Protocol, TypeVar

from flintmq.offline.findings import Kind
from flintmq.offline.layout import DataFile, StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions
from flintmq.offline.scan import Damage, LogScan, Tail
from flintmq.spark.errors import OptionError
from flintmq.spark.parallel_log.range_walk import RangeScan, WalkRange

RANGE_SIZE: Final = 64 << 20
"""Bytes of a log file that one task walks, unless the caller says otherwise."""

RANGE_COUNT_MAX: Final = 1_000_000

TASK_SIZE_MIN: Final = 16 << 20
TASK_SIZE_MAX: Final = 512 << 20
"""Ranges are put together into tasks, since starting one costs as much as walking 40 MiB; but
what is lost with a worker has to be done again."""

TASKS_PER_CORE: Final = 4
"""So many tasks for each core, or more, keep all cores at work up to the end."""


class HasScan(Protocol):
    """The result of a task: the scan of its range, and whatever else it made of the records."""

    @property
    def scan(self) -> RangeScan:
        """What the walk has met."""
        ...


Result = TypeVar("Result", bound=HasScan)


def plan_ranges(layouts: Sequence[StoreLayout], range_size: int) -> list[WalkRange]:
    """Return the ranges of all logs, in log order for each store."""
    if range_size < 1:
        raise OptionError(f"a split of {range_size} bytes")
    ranges: list[WalkRange] = []
    for store, layout in enumerate(layouts):
        with Regions(layout.files) as regions:
            scan = LogScan(LogFiles(layout, regions), check_crc=True)
            files = scan.written_files()
        number = 0
        for file in files:
            limit = file.first_offset + min(file.size, layout.log_file_size)
            for start in range(file.first_offset, limit, range_size):
                if len(ranges) >= RANGE_COUNT_MAX:
                    raise OptionError(
                        f"more than {RANGE_COUNT_MAX} splits of {range_size} bytes; "
                        "give a larger split size"
                    )
                ranges.append(
                    WalkRange(
                        store=store,
                        number=number,
                        file=file,
                        is_last_file=file is files[-1],
                        start=start,
                        bound=min(start + range_size, limit),
                        is_known=start == file.first_offset,
                        last_time=None if number else 0,
                    )
                )
                number += 1
    return ranges


def task_count(ranges: Sequence[WalkRange], core_count: int) -> int:
    """Return into how many tasks of about equal size the ranges are best dealt out."""
    size = sum(log_range.bound - log_range.start for log_range in ranges)
    count = -(-size // TASK_SIZE_MIN)
    if count < TASKS_PER_CORE * core_count:
        count = min(count, core_count)
    else:
        count = max(TASKS_PER_CORE * core_count, -(-size // TASK_SIZE_MAX))
    return max(1, min(len(ranges), count))


def settle(
    ranges: Sequence[WalkRange], run: Callable[[list[WalkRange]], Iterable[Result]]
) -> list[Result]:
    """Have all ranges walked, again where a guess was wrong; return the results in log order."""
    results: dict[tuple[int, int], Result] = {}
    waiting = list(ranges)
    while waiting:
        for result in run(waiting):
            results[result.scan.log_range.store, result.scan.log_range.number] = result
        waiting = []
        for _, of_store in groupby(ranges, key=lambda log_range: log_range.store):
            waiting += _wrong_guesses(list(of_store), results)
    kept: list[Result] = []
    for _, of_file in groupby(
        ranges, key=lambda log_range: (log_range.store, log_range.file.first_offset)
    ):
        for log_range, expected in _chain(list(of_file), results):
            if expected < log_range.bound:
                kept.append(results[log_range.store, log_range.number])
    return kept


def _chain(
    ranges: Sequence[WalkRange], results: dict[tuple[int, int], Result]
) -> Iterable[tuple[WalkRange, int]]:
    """Yield the ranges of a file, each with the offset at which the records enter it."""
    expected = ranges[0].start
    for log_range in ranges:
        yield log_range, expected
        if expected < log_range.bound:
            expected = results[log_range.store, log_range.number].scan.end


def _wrong_guesses(
    ranges: Sequence[WalkRange], results: dict[tuple[int, int], Result]
) -> Iterable[WalkRange]:
    """Yield for each file of a store the first range that has to be walked again."""
    last_time: int | None = 0
    for _, of_file in groupby(ranges, key=lambda log_range: log_range.file.first_offset):
        for log_range, expected in _chain(list(of_file), results):
            if expected >= log_range.bound:
                continue
            scan = results[log_range.store, log_range.number].scan
            if scan.start != expected or (scan.is_blind and last_time is not None):
                yield replace(log_range, start=expected, is_known=True, last_time=last_time)
                last_time = None
                break
            if scan.record_count:
                last_time = scan.last_time


def join_scans(layout: StoreLayout, log: LogFiles, scans: Sequence[RangeScan]) -> LogScan:
    """Return a scan that has met what the scans of all ranges of a store have met."""
    joined = LogScan(log, check_crc=True)
    joined.written_files()
    previous: DataFile | None = None
    for scan in scans:
        file = scan.log_range.file
        if previous is not None and file != previous:
            _note_gap(joined, layout, previous, file)
        previous = file
        _join(joined, scan)
        if scan.blank_count:
            joined.blank_end = file.first_offset + layout.log_file_size
    return joined


def _note_gap(joined: LogScan, layout: StoreLayout, before: DataFile, file: DataFile) -> None:
    start = before.first_offset + layout.log_file_size
    if start < file.first_offset:
        reason = "no file holds this range"
        name = layout.name_of(file.path)
        joined.note_damage(Damage(start, file.first_offset, Kind.LOG_GAP, name, reason))


def _join(joined: LogScan, scan: RangeScan) -> None:
    for damage in scan.damages:
        joined.note_damage(damage)
    joined.damage_count += scan.damage_count - len(scan.damages)
    joined.damage_bytes += scan.damage_bytes - sum(end - start for start, end, *_ in scan.damages)
    joined.record_count += scan.record_count
    joined.record_bytes += scan.record_bytes
    joined.blank_count += scan.blank_count
    if scan.record_count:
        joined.end = scan.last_record_end
    if scan.is_deleted and scan.log_range.file not in joined.deleted_files:
        joined.deleted_files.append(scan.log_range.file)
    # A file that was made ahead of its need follows the blank: that is no end.
    if scan.tail is not Tail.CLEAN and not (scan.tail is Tail.BLANK and joined.unused_files):
        joined.tail, joined.tail_reason = scan.tail, scan.tail_reason
        joined.tail_start, joined.tail_end = scan.tail_start, scan.tail_end
