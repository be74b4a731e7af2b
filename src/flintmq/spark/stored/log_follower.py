"""Follows a growing log: tells how far a stream or an archive may read.

A file that another one follows is complete, so it is read as a whole.  In the last file the
records are followed one by one.  The log ends behind the last whole record: what follows is what
a broker is writing just now, or what a crash has left.  Damage with whole records behind it is
part of the log (`SplitScan` judges that), so whoever reads up to the end meets it.  Damage right
before the end is not: a broker cuts it off when it starts, and writes over it.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from flintmq.format.stored.record import CheckedRecord, check_record
from flintmq.format.stored.record_layout import BLANK_SIZE
from flintmq.kernels.compiled import Ints, as_bytes
from flintmq.kernels.records import Stop, walk_records
from flintmq.offline.layout import DataFile
from flintmq.offline.regions import open_for_reading
from flintmq.spark.options.store_options import ReadOptions
from flintmq.spark.stored.log_identity import RecordIdentity, record_at
from flintmq.spark.stored.split_plan import StoreSplits
from flintmq.spark.stored.split_scan import SplitDamage, SplitScan

_ROWS_MAX: Final = 65_536
_BYTES_MAX: Final = 64 << 20


class LogRange(NamedTuple):
    """Where a log starts and ends, as physical offsets."""

    start: int
    end: int


class DamageBehind(NamedTuple):
    """A damaged range of a file behind which the log does not go on; the offsets are physical."""

    path: str
    start: int
    end: int
    reason: str
    is_body: bool = False


@dataclass(slots=True)
class Allowance:
    """How much of a log may be read; None is no limit.  One record may always be read."""

    size: int | None = None
    count: int | None = None
    parent: "Allowance | None" = None
    """The allowance that this one is a share of."""
    is_fresh: bool = True

    @property
    def is_unlimited(self) -> bool:
        """Whether everything may be read."""
        return self.size is None and self.count is None

    def take(self, sizes: Ints) -> int:
        """Take records of these sizes as long as there is room; return how many."""
        count = len(sizes)
        totals = np.cumsum(sizes, dtype=np.int64)
        if self.size is not None:
            count = int(np.searchsorted(totals, self.size, side="right"))
        if self.count is not None:
            count = min(count, self.count)
        if self.is_fresh and len(sizes):
            count = max(count, 1)
            self.is_fresh = False
        self._spend(int(totals[count - 1]) if count else 0, count)
        return count

    def share(self, parties: int) -> "Allowance":
        """Return one of ``parties`` equal shares of the rest; what it spends is spent here too."""
        size = None if self.size is None else max(self.size, 0) // parties
        count = None if self.count is None else max(self.count, 0) // parties
        return Allowance(size, count, self)

    def _spend(self, size: int, count: int) -> None:
        if self.size is not None:
            self.size -= size
        if self.count is not None:
            self.count -= count
        if self.parent is not None:
            self.parent._spend(size, count)


class LogFollower:
    """Follows the log of one store directory while it grows."""

    def __init__(self, directory: Path, options: ReadOptions) -> None:
        self.directory = directory
        self._options = options
        self._known_end = 0
        self._known_time = 0
        self._known_last: RecordIdentity | None = None
        self._searched_end = -1
        self.damage_behind: DamageBehind | None = None
        """What is damaged behind the end that was found last, and is no unfinished write."""

    def look(self) -> LogRange:
        """Return where the log starts and ends now."""
        plan = StoreSplits(self.directory, self._options, log_only=True)
        files = plan.written_files()
        if not files:
            return LogRange(0, 0) if not plan.layout.log_files else _empty(plan)
        last = files[-1]
        start, last_time = last.first_offset, plan.time_before(last)
        is_known = start <= self._known_end < start + last.size and self._is_known_log(plan)
        if is_known:
            # What was followed once need not be again.
            start, last_time = self._known_end, self._known_time
            if start == self._searched_end and _is_unwritten(plan, last, start):
                return LogRange(files[0].first_offset, start)
        walk = _Walk(plan, files, start, Allowance(), last_time)
        self._known_end = self._searched_end = walk.end()
        self._known_time = walk.last_time
        self.damage_behind = walk.damage_behind
        if walk.last_start is not None:
            self._known_last = record_at(plan.layout, walk.last_start)
        elif not is_known:
            self._known_last = None
        return LogRange(files[0].first_offset, self._known_end)

    def _is_known_log(self, plan: StoreSplits) -> bool:
        """Whether the log was not cut back since the last look: its last record is still there."""
        last = self._known_last
        return last is not None and record_at(plan.layout, last.physical_offset) == last

    def advance(self, start: int, allowance: Allowance) -> int:
        """Return how far one may read from ``start``, where a record stands or the log ends."""
        plan = StoreSplits(self.directory, self._options, log_only=True)
        return _Walk(plan, plan.written_files(), start, allowance, 0).end()


def _empty(plan: StoreSplits) -> LogRange:
    start = plan.layout.log_files[0].first_offset
    return LogRange(start, start)


def _is_unwritten(plan: StoreSplits, file: DataFile, offset: int) -> bool:
    """Whether nothing stands at an offset of a file: a broker goes on writing just there."""
    region = open_for_reading(plan.layout.files, file.path)
    if region is None:
        return False
    with closing(region):
        at = offset - file.first_offset
        return not any(region.view[at : at + BLANK_SIZE])


class _Walk:
    """One walk along a log."""

    def __init__(
        self,
        plan: StoreSplits,
        files: Sequence[DataFile],
        start: int,
        allowance: Allowance,
        last_time: int,
    ) -> None:
        self._plan = plan
        self._layout = plan.layout
        self._files = [
            file for file in files if file.first_offset + plan.layout.log_file_size > start
        ]
        self._position = start
        self._allowance = allowance
        self.last_time = last_time
        """The store time of the last record of the last file that was passed."""
        self.last_start: int | None = None
        """Where the last record of the last file starts that was passed, None if none was."""
        self.damage_behind: DamageBehind | None = None
        """What is damaged behind the last record, in one range."""

    def end(self) -> int:
        """Return how far one may read."""
        for file in self._files:
            self._position = max(self._position, file.first_offset)
            if file is self._files[-1]:
                passed = self._passes_last(file)
            else:
                passed = self._allowance.is_unlimited or self._passes(file)
            if not passed:
                break
            self._position = file.first_offset + self._layout.log_file_size
        return self._position

    def _passes(self, file: DataFile) -> bool:
        """Go on in a file that another one follows; return whether all of it may be read.

        Such a file has been written to its end, and its reader checks it.
        """
        region = open_for_reading(self._layout.files, file.path)
        if region is None:
            return True
        with closing(region):
            base, limit = file.first_offset, min(region.size, self._layout.log_file_size)
            at, is_full = self._position - base, True
            while at < limit and is_full:
                walk = walk_records(
                    as_bytes(region.view),
                    at,
                    limit,
                    limit,
                    base,
                    rows_max=_ROWS_MAX,
                    bytes_max=_BYTES_MAX,
                    check_crc=False,
                )
                count = self._allowance.take(walk.table.size)
                at += int(walk.table.size[:count].sum(dtype=np.int64))
                self._position = base + at
                if count < len(walk.table):
                    return False
                is_full = walk.stop is Stop.FULL
        return True

    def _passes_last(self, file: DataFile) -> bool:
        """Go on in the last file; return whether it was written to its very end."""
        split = self._plan.end_split(file, self._position, self.last_time)
        scan = SplitScan(split, rows_max=_ROWS_MAX, bytes_max=_BYTES_MAX)
        limit = split.file_size
        with closing(scan.found()) as every:
            for found in every:
                if isinstance(found, SplitDamage):
                    self._note(split.path, found)
                    continue
                sizes = found.size
                if _is_unfinished(scan.view, int(found.position[-1]), limit):
                    sizes = sizes[:-1]
                count = self._allowance.take(sizes)
                if count:
                    # Damage before these records is part of what may be read.
                    self.damage_behind = None
                    self.last_start = int(found.physical_offset[count - 1])
                    self._position = self.last_start + int(sizes[count - 1])
                    self.last_time = int(found.store_timestamp[count - 1])
                if count < len(found):
                    return False
        return scan.is_complete and self.damage_behind is None

    def _note(self, path: str, damage: SplitDamage) -> None:
        before = self.damage_behind
        if damage.is_tail:
            return
        if before is None:
            before = DamageBehind(path, damage.start, damage.end, damage.reason)
        self.damage_behind = before._replace(end=damage.end)


def _is_unfinished(view: memoryview, position: int, limit: int) -> bool:
    """Whether the last record may still be being copied: its properties are its last bytes.

    The checksum covers the body alone.  Properties are text without zeros, and once another
    record follows, this one is complete.
    """
    record = check_record(view, position, limit, check_crc=False, expected_offset=None)
    assert isinstance(record, CheckedRecord), position
    end = position + record.size
    return not any(view[end : min(end + 8, limit)]) and b"\0" in record.properties
