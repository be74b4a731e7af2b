"""Cutting logs into parts for tasks, and joining what the tasks have met into one scan.

The records of a file form one chain from its start.  A part in mid-file guesses where the chain
enters it; its result counts only if the part before it ends at that very offset.  Otherwise the
guess has met a body that looks like a record, or there is damage: the part is walked again from
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
from flintmq.spark.log_walk import LogPart, PartScan

PART_SIZE: Final = 64 << 20
"""Bytes of a log file that one task walks, unless the caller says otherwise."""

PART_COUNT_MAX: Final = 1_000_000

TASK_SIZE_MIN: Final = 16 << 20
TASK_SIZE_MAX: Final = 512 << 20
"""Parts are put together into tasks, since starting one costs as much as walking 40 MiB; but
what is lost with a worker has to be done again."""

TASKS_PER_CORE: Final = 4
"""So many tasks for each core, or more, keep all cores at work up to the end."""


class HasScan(Protocol):
    """What a task gives back: its scan, and whatever else it made of the records."""

    @property
    def scan(self) -> PartScan:
        """What the walk has met."""
        ...


Result = TypeVar("Result", bound=HasScan)


def plan_parts(layouts: Sequence[StoreLayout], part_size: int) -> list[LogPart]:
    """Return the parts of all logs, in log order for each store."""
    if part_size < 1:
        raise OptionError(f"a split of {part_size} bytes")
    parts: list[LogPart] = []
    for store, layout in enumerate(layouts):
        with Regions(layout.files) as regions:
            scan = LogScan(LogFiles(layout, regions), check_crc=True)
            files = scan.written_files()
        number = 0
        for file in files:
            limit = file.first_offset + min(file.size, layout.log_file_size)
            for start in range(file.first_offset, limit, part_size):
                if len(parts) >= PART_COUNT_MAX:
                    raise OptionError(
                        f"more than {PART_COUNT_MAX} splits of {part_size} bytes; "
                        "give a larger split size"
                    )
                parts.append(
                    LogPart(
                        store=store,
                        number=number,
                        file=file,
                        is_last_file=file is files[-1],
                        start=start,
                        bound=min(start + part_size, limit),
                        is_known=start == file.first_offset,
                        last_time=None if number else 0,
                    )
                )
                number += 1
    return parts


def task_count(parts: Sequence[LogPart], core_count: int) -> int:
    """Return into how many tasks of about equal size the parts are best dealt out."""
    size = sum(part.bound - part.start for part in parts)
    count = -(-size // TASK_SIZE_MIN)
    if count < TASKS_PER_CORE * core_count:
        count = min(count, core_count)
    else:
        count = max(TASKS_PER_CORE * core_count, -(-size // TASK_SIZE_MAX))
    return max(1, min(len(parts), count))


def settle(
    parts: Sequence[LogPart], run: Callable[[list[LogPart]], Iterable[Result]]
) -> list[Result]:
    """Have the parts walked, again where a guess was wrong; return what counts, in log order."""
    results: dict[tuple[int, int], Result] = {}
    waiting = list(parts)
    while waiting:
        for result in run(waiting):
            results[result.scan.part.store, result.scan.part.number] = result
        waiting = []
        for _, of_store in groupby(parts, key=lambda part: part.store):
            waiting += _wrong_guesses(list(of_store), results)
    kept: list[Result] = []
    for _, of_file in groupby(parts, key=lambda part: (part.store, part.file.first_offset)):
        for part, expected in _chain(list(of_file), results):
            if expected < part.bound:
                kept.append(results[part.store, part.number])
    return kept


def _chain(
    parts: Sequence[LogPart], results: dict[tuple[int, int], Result]
) -> Iterable[tuple[LogPart, int]]:
    """Yield the parts of a file, each with the offset at which the records enter it."""
    expected = parts[0].start
    for part in parts:
        yield part, expected
        if expected < part.bound:
            expected = results[part.store, part.number].scan.end


def _wrong_guesses(
    parts: Sequence[LogPart], results: dict[tuple[int, int], Result]
) -> Iterable[LogPart]:
    """Yield for each file of a store the first part that has to be walked again."""
    last_time: int | None = 0
    for _, of_file in groupby(parts, key=lambda part: part.file.first_offset):
        for part, expected in _chain(list(of_file), results):
            if expected >= part.bound:
                continue
            scan = results[part.store, part.number].scan
            if scan.start != expected or (scan.is_blind and last_time is not None):
                yield replace(part, start=expected, is_known=True, last_time=last_time)
                last_time = None
                break
            if scan.record_count:
                last_time = scan.last_time


def join_scans(layout: StoreLayout, log: LogFiles, scans: Sequence[PartScan]) -> LogScan:
    """Return a scan that has met what the scans of all parts of a store have met."""
    joined = LogScan(log, check_crc=True)
    joined.written_files()
    previous: DataFile | None = None
    for scan in scans:
        file = scan.part.file
        if previous is not None and file != previous:
            _note_gap(joined, layout, previous, file)
        previous = file
        _join(joined, scan)
    return joined


def _note_gap(joined: LogScan, layout: StoreLayout, before: DataFile, file: DataFile) -> None:
    start = before.first_offset + layout.log_file_size
    if start < file.first_offset:
        reason = "no file holds this range"
        name = layout.name_of(file.path)
        joined.note_damage(Damage(start, file.first_offset, Kind.LOG_GAP, name, reason))


def _join(joined: LogScan, scan: PartScan) -> None:
    for damage in scan.damages:
        joined.note_damage(damage)
    joined.damage_count += scan.damage_count - len(scan.damages)
    joined.damage_bytes += scan.damage_bytes - sum(end - start for start, end, *_ in scan.damages)
    joined.record_count += scan.record_count
    joined.record_bytes += scan.record_bytes
    joined.blank_count += scan.blank_count
    if scan.record_count:
        joined.end = scan.last_record_end
    if scan.is_deleted and scan.part.file not in joined.deleted_files:
        joined.deleted_files.append(scan.part.file)
    # A file that was made ahead of its need follows the blank: that is no end.
    if scan.tail is not Tail.CLEAN and not (scan.tail is Tail.BLANK and joined.unused_files):
        joined.tail, joined.tail_reason = scan.tail, scan.tail_reason
        joined.tail_start, joined.tail_end = scan.tail_start, scan.tail_end
