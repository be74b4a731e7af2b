"""From directories to splits: which files are read, and where each split starts.

In a file that is complete, a boundary is the first record behind each multiple of the split size
that a consume queue proves.  In the last file, and where no queue proves anything, the driver
follows the records from the start of the file.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Final

from flintmq.format.stored.record_layout import BLANK_SIZE
from flintmq.format.stored.record_search import find_proven, written_bounds
from flintmq.offline.dump import TIME_SLACK_MS
from flintmq.offline.layout import DataFile, StoreLayout, find_log, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_proof import QueueProof, queue_proof
from flintmq.offline.regions import Regions, open_for_reading
from flintmq.offline.set_aside_files import set_aside_logs
from flintmq.spark.errors import OptionError
from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.rows.row_filter import Bounds
from flintmq.spark.stored.log_split import LogSplit

SPLIT_COUNT_MAX: Final = 1_000_000
_SCHEME: Final = "file:"
_WILDCARD: Final = re.compile(r"[*?\[]")


def store_directories(paths: Sequence[str]) -> list[Path]:
    """Return the directories that paths and patterns name, each once, in a fixed order."""
    found: dict[Path, Path] = {}
    for text in paths:
        path = _without_scheme(text)
        directories = [path]
        if _is_pattern(path):
            directories = sorted(match for match in _matches(path) if match.is_dir())
            if not directories:
                raise OptionError(f"no directory matches {text!r}")
        for directory in directories:
            found.setdefault(directory.resolve(), directory)
    return list(found.values())


def _without_scheme(text: str) -> Path:
    if not text.startswith(_SCHEME):
        return Path(text)
    path = text.removeprefix(_SCHEME)
    return Path("/" + path.lstrip("/") if path.startswith("/") else path)


def _is_pattern(path: Path) -> bool:
    return _WILDCARD.search(str(path)) is not None and not path.exists()


def _matches(pattern: Path) -> Iterator[Path]:
    fixed = [*takewhile(lambda part: not _WILDCARD.search(part), pattern.parts)]
    return Path(*fixed).glob(str(Path(*pattern.parts[len(fixed) :])))


def broker_name(directory: Path, names: Mapping[str, str]) -> str | None:
    """Return the name that the option ``brokerName`` gives a directory."""
    return names.get(str(directory)) or names.get(directory.name) or names.get("") or None


def plan_splits(
    options: ReadOptions,
    store_time: Bounds,
    reach: Callable[[StoreLayout, str | None], Bounds] | None = None,
) -> list[LogSplit]:
    """Return the splits of all files that may hold records of the times asked for.

    ``reach`` tells, for a store and its broker's name, which physical offsets are worth a look.
    """
    splits: list[LogSplit] = []
    for directory in store_directories(options.paths):
        for plan in _plans(directory, options):
            physical = Bounds() if reach is None else reach(plan.layout, plan.broker_name)
            for split in plan.splits(store_time, physical):
                if len(splits) >= SPLIT_COUNT_MAX:
                    raise OptionError(
                        f"more than {SPLIT_COUNT_MAX} splits; the splitSize of "
                        f"{options.split_size} bytes is too small"
                    )
                splits.append(split)
    return splits


def _plans(directory: Path, options: ReadOptions) -> "list[StoreSplits]":
    """Return what plans the splits of a log, or of each file that was set aside."""
    if not options.set_aside:
        return [StoreSplits(directory, options)]
    cuts = set_aside_logs(find_store(directory))
    return [StoreSplits(directory, options, set_aside=cut) for cut in cuts]


@dataclass(frozen=True, slots=True)
class _PlannedFile:
    file: DataFile
    limit: int
    is_last: bool
    last_time: int


class StoreSplits:
    """The splits of one store."""

    def __init__(
        self,
        directory: Path,
        options: ReadOptions,
        *,
        set_aside: StoreLayout | None = None,
        log_only: bool = False,
    ) -> None:
        """Plan for the log of a directory, or for a file of it that was ``set_aside``.

        With ``log_only`` nobody looks for queues; splits then begin where records are followed.
        """
        find = find_log if log_only else find_store
        self.layout: StoreLayout = set_aside or find(directory)
        self._is_set_aside = set_aside is not None
        self.broker_name = broker_name(directory, options.broker_names)
        self._directory = directory
        self._split_size = options.split_size

    def splits(self, store_time: Bounds, physical: Bounds) -> Iterator[LogSplit]:
        """Yield the splits of the files that may hold records of these times and offsets."""
        layout = self.layout
        files = self.written_files()
        with Regions(layout.files) as regions, queue_proof(self._directory, layout) as proof:
            log = LogFiles(layout, regions)
            times = [log.first_store_time(file) for file in files]
            previous_end: int | None = None
            for number, file in enumerate(files):
                limit = min(file.size, layout.log_file_size)
                gap_start, previous_end = previous_end, file.first_offset + limit
                if _is_outside(times, number, store_time):
                    continue
                if previous_end <= physical.low or file.first_offset > physical.high:
                    continue
                if gap_start is not None and gap_start < file.first_offset:
                    yield self._gap(file, gap_start)
                last_time = times[number - 1] if number else None
                planned = _PlannedFile(file, limit, file is files[-1], last_time or 0)
                starts = self._starts(planned, proof)
                for start, end in pairwise([*starts, file.first_offset + limit]):
                    yield self._split(planned, start, end)

    def between(self, start: int, end: int) -> Iterator[LogSplit]:
        """Yield splits from one physical offset to another; a walk of the log has found both."""
        layout = self.layout
        at = start
        with queue_proof(self._directory, layout) as proof:
            for file in layout.log_files:
                first, limit = file.first_offset, min(file.size, layout.log_file_size)
                if at >= end or first + layout.log_file_size <= at or first >= end:
                    continue
                if at < first:
                    yield self._gap(file, at)
                    at = first
                # The log goes on behind ``end``, or would: nothing in here is its tail.
                planned = _PlannedFile(file, limit, is_last=False, last_time=0)
                stop = min(end, first + limit)
                if at < stop:
                    starts = self._starts_between(planned, at, stop, proof)
                    for begin, following in pairwise([at, *starts, stop]):
                        yield self._split(planned, begin, following)
                # A file that was cut short leaves a gap before the next one.
                at = max(at, first + limit)

    def _starts_between(
        self, planned: _PlannedFile, start: int, stop: int, proof: QueueProof
    ) -> list[int]:
        base = planned.file.first_offset
        if stop - start <= self._split_size:
            return []
        if stop == base + planned.limit and start == base:
            return self._starts(planned, proof)[1:]
        region = open_for_reading(self.layout.files, planned.file.path)
        if region is None:
            return []
        with closing(region):
            limit = min(planned.limit, region.size)
            found = self._walked_starts(region.view, limit, base, start - base, stop - base)
        return [base + position for position in found if start < base + position < stop]

    def time_before(self, file: DataFile) -> int:
        """Return a store time that no record of a file is older than, 0 if none is known."""
        before = [one for one in self.layout.log_files if one.first_offset < file.first_offset]
        if not before:
            return 0
        with Regions(self.layout.files) as regions:
            return LogFiles(self.layout, regions).first_store_time(before[-1]) or 0

    def end_split(self, file: DataFile, start: int, last_time: int) -> LogSplit:
        """Return the rest of the last file, in which the log ends.

        ``last_time`` is the store time of the record before ``start``, as far as it is known.
        """
        limit = min(file.size, self.layout.log_file_size)
        planned = _PlannedFile(file, limit, is_last=True, last_time=last_time)
        return self._split(planned, start, file.first_offset + limit)

    def written_files(self) -> list[DataFile]:
        """Return the files up to the last one that anything was written to."""
        files = list(self.layout.log_files)
        while files:
            region = open_for_reading(self.layout.files, files[-1].path)
            if region is not None:
                with closing(region):
                    if any(region.view[:BLANK_SIZE]):
                        break
                    if written_bounds(region.view, region.data_ranges(0), region.size):
                        break
            files.pop()
        return files

    def _split(self, planned: _PlannedFile, start: int, end: int) -> LogSplit:
        return LogSplit(
            files=self.layout.files,
            store=str(self._directory),
            broker_name=self.broker_name,
            path=str(planned.file.path),
            file_start=planned.file.first_offset,
            file_size=planned.limit,
            start=start,
            end=end,
            is_last_file=planned.is_last,
            last_time=planned.last_time,
            may_be_torn=planned.is_last and self.layout.has_abort,
            is_set_aside=self._is_set_aside,
        )

    def _gap(self, file: DataFile, start: int) -> LogSplit:
        return LogSplit(
            files=self.layout.files,
            store=str(self._directory),
            broker_name=self.broker_name,
            path=str(file.path),
            file_start=start,
            file_size=0,
            start=start,
            end=file.first_offset,
            gap="no file holds this range",
        )

    def _starts(self, planned: _PlannedFile, proof: QueueProof) -> list[int]:
        """Return where the splits of a file start, as physical offsets."""
        base, limit = planned.file.first_offset, planned.limit
        starts = [base]
        if self._split_size >= limit:
            return starts
        region = open_for_reading(self.layout.files, planned.file.path)
        if region is None:
            return starts
        with closing(region):
            limit = min(limit, region.size)
            found: list[int] = []
            # Behind the end of the log, records and units from before it was cut back may prove
            # each other, so in the last file only the chain of the records counts.
            if not planned.is_last:
                found = self._proven_starts(region.view, limit, base, proof)
            if not found:
                found = self._walked_starts(region.view, limit, base)
        return starts + [base + position for position in found]

    def _proven_starts(
        self, view: memoryview, limit: int, base: int, proof: QueueProof
    ) -> list[int]:
        starts: list[int] = []
        for at in range(self._split_size, limit, self._split_size):
            if starts and starts[-1] >= at:
                continue  # One record reaches over a whole split.
            window = [(at, min(at + self._split_size, limit))]
            position, *_ = find_proven(view, window, limit, base, proof)
            if position is not None:
                starts.append(position)
        return starts

    def _walked_starts(
        self, view: memoryview, limit: int, base: int, position: int = 0, stop: int | None = None
    ) -> list[int]:
        """Follow the records up to the first damage; what comes behind stays one split."""
        end = limit if stop is None else stop
        return walked_starts(view, position, end, limit, base, step=self._split_size)


def walked_starts(
    view: memoryview, start: int, stop: int, limit: int, base: int, *, step: int
) -> list[int]:
    """Follow the records from ``start`` and return the first one from each multiple of ``step`` on.

    The walk ends at ``stop``, or where there is no whole record; checksums are not looked at.
    """
    # Files of one split are planned without machine code.
    from flintmq.kernels.compiled import as_bytes
    from flintmq.kernels.records import skip_records

    data = as_bytes(view)
    starts: list[int] = []
    position, stop = start, min(stop, limit)
    while True:
        following = (position // step + 1) * step
        position = skip_records(data, position, min(following, stop), limit, base)
        if not following <= position < stop:
            return starts
        if skip_records(data, position, position + 1, limit, base) == position:
            return starts
        starts.append(position)


def _is_outside(times: Sequence[int | None], number: int, wanted: Bounds) -> bool:
    """Whether no record of a file can be of the times asked for.

    Store times ascend with the log as far as the broker's clock does, hence the slack.
    """
    first = times[number]
    if first is not None and first - TIME_SLACK_MS > wanted.high:
        return True
    following = times[number + 1] if number + 1 < len(times) else None
    return following is not None and following + TIME_SLACK_MS < wanted.low
