"""From directories to splits: which files are read, and where each part of them starts.

In a file that is complete, a boundary is the first record behind each multiple of the split size
that a consume queue proves.  In the last file, and where no queue proves anything, the driver
follows the records from the start of the file.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Final

from flintmq.format.record import BLANK_SIZE, CheckedRecord
from flintmq.offline.dump import TIME_SLACK_MS
from flintmq.offline.layout import DataFile, StoreLayout, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions, open_for_reading
from flintmq.offline.resync import written_bounds
from flintmq.spark.anchors import QueueProof, find_proven, whole_record
from flintmq.spark.errors import OptionError
from flintmq.spark.options import ReadOptions
from flintmq.spark.row_filter import Bounds
from flintmq.spark.split_scan import LogSplit

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


def plan_splits(options: ReadOptions, store_time: Bounds) -> list[LogSplit]:
    """Return the splits of all files that may hold records of the times asked for."""
    splits: list[LogSplit] = []
    for directory in store_directories(options.paths):
        for split in _StorePlan(directory, options).splits(store_time):
            if len(splits) >= SPLIT_COUNT_MAX:
                raise OptionError(
                    f"more than {SPLIT_COUNT_MAX} splits; the splitSize of {options.split_size} "
                    "bytes is too small"
                )
            splits.append(split)
    return splits


@dataclass(frozen=True, slots=True)
class _PlannedFile:
    file: DataFile
    limit: int
    is_last: bool
    last_time: int


class _StorePlan:
    """The splits of one store."""

    def __init__(self, directory: Path, options: ReadOptions) -> None:
        self._layout: StoreLayout = find_store(directory)
        self._directory = directory
        self._split_size = options.split_size
        names = options.broker_names
        self._broker_name = (
            names.get(str(directory)) or names.get(directory.name) or names.get("") or None
        )

    def splits(self, store_time: Bounds) -> Iterator[LogSplit]:
        layout = self._layout
        files = self._written_files()
        with Regions(layout.files) as regions, QueueProof(self._directory, layout) as proof:
            log = LogFiles(layout, regions)
            times = [log.first_store_time(file) for file in files]
            previous_end: int | None = None
            for number, file in enumerate(files):
                gap_start, previous_end = previous_end, file.first_offset + layout.log_file_size
                if _is_outside(times, number, store_time):
                    continue
                if gap_start is not None and gap_start < file.first_offset:
                    yield self._gap(file, gap_start)
                last_time = times[number - 1] if number else None
                limit = min(file.size, layout.log_file_size)
                planned = _PlannedFile(file, limit, file is files[-1], last_time or 0)
                starts = self._starts(planned, proof)
                for start, end in pairwise([*starts, file.first_offset + limit]):
                    yield self._split(planned, start, end)

    def _written_files(self) -> list[DataFile]:
        """Return the files up to the last one that anything was written to."""
        files = list(self._layout.log_files)
        while files:
            region = open_for_reading(self._layout.files, files[-1].path)
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
            files=self._layout.files,
            store=str(self._directory),
            broker_name=self._broker_name,
            path=str(planned.file.path),
            file_start=planned.file.first_offset,
            file_size=planned.limit,
            start=start,
            end=end,
            is_last_file=planned.is_last,
            last_time=planned.last_time,
        )

    def _gap(self, file: DataFile, start: int) -> LogSplit:
        return LogSplit(
            files=self._layout.files,
            store=str(self._directory),
            broker_name=self._broker_name,
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
        region = open_for_reading(self._layout.files, planned.file.path)
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
            position, _ = find_proven(view, window, limit, base, proof)
            if position is not None:
                starts.append(position)
        return starts

    def _walked_starts(self, view: memoryview, limit: int, base: int) -> list[int]:
        """Follow the records up to the first damage; what comes behind stays one split."""
        starts: list[int] = []
        position, following = 0, self._split_size
        while position < limit:
            record = whole_record(view, position, limit, base)
            if not isinstance(record, CheckedRecord):
                break
            if position >= following:
                starts.append(position)
                following = (position // self._split_size + 1) * self._split_size
            position += record[0]
        return starts


def _is_outside(times: Sequence[int | None], number: int, wanted: Bounds) -> bool:
    """Whether no record of a file can be of the times asked for.

    Store times ascend with the log as far as the broker's clock does, hence the slack.
    """
    first = times[number]
    if first is not None and first - TIME_SLACK_MS > wanted.high:
        return True
    following = times[number + 1] if number + 1 < len(times) else None
    return following is not None and following + TIME_SLACK_MS < wanted.low
