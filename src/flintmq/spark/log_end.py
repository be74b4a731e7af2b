"""How far the records of a log go: where a stream or an archive may read to.

A file that another one follows is complete, so it is taken as a whole.  In the last file the
records are followed one by one, up to the first bytes that are no whole record: what a broker is
writing just now, what a crash has left, or damage.  Behind damage in the last file nothing is
given until the next file begins; then whoever reads the file meets the damage.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from flintmq.format.record import Blank, CheckedRecord, check_record
from flintmq.kernels.compiled import Ints, as_bytes
from flintmq.kernels.records import Stop, walk_records
from flintmq.offline.regions import open_for_reading
from flintmq.offline.resync import whole_record
from flintmq.spark.options import ReadOptions
from flintmq.spark.plan import StorePlan

_ROWS_MAX: Final = 65_536
_BYTES_MAX: Final = 64 << 20


class LogRange(NamedTuple):
    """Where a log starts and ends, as physical offsets."""

    start: int
    end: int


@dataclass(slots=True)
class Allowance:
    """How much of a log may be taken; None is no limit.  One record may always be."""

    size: int | None = None
    count: int | None = None
    parent: "Allowance | None" = None
    """Of what this is a share."""
    is_fresh: bool = True

    @property
    def is_unlimited(self) -> bool:
        """Whether everything may be taken."""
        return self.size is None and self.count is None

    def take(self, sizes: Ints) -> int:
        """Take records of these sizes as long as there is room; return how many."""
        taken = len(sizes)
        totals = np.cumsum(sizes, dtype=np.int64)
        if self.size is not None:
            taken = int(np.searchsorted(totals, self.size, side="right"))
        if self.count is not None:
            taken = min(taken, self.count)
        if self.is_fresh and len(sizes):
            taken = max(taken, 1)
            self.is_fresh = False
        self._spend(int(totals[taken - 1]) if taken else 0, taken)
        return taken

    def share(self, parties: int) -> "Allowance":
        """Return one of so many equal shares of what is left; what it takes is taken here too."""
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


class LogEnd:
    """Follows the log of one store directory while it grows."""

    def __init__(self, directory: Path, options: ReadOptions) -> None:
        self.directory = directory
        self._options = options
        self._known_end = 0

    def look(self) -> LogRange:
        """Return where the log starts and ends now."""
        plan = StorePlan(self.directory, self._options)
        files = plan.written_files()
        if not files:
            return LogRange(0, 0) if not plan.layout.log_files else _empty(plan)
        last = files[-1]
        start = last.first_offset
        if start <= self._known_end < start + last.size:
            start = self._known_end  # What was followed once need not be again.
        self._known_end = _Walk(plan, start, Allowance()).end()
        return LogRange(files[0].first_offset, self._known_end)

    def advance(self, start: int, allowance: Allowance) -> int:
        """Return how far one may read from ``start``, where a record stands or the log ends."""
        return _Walk(StorePlan(self.directory, self._options), start, allowance).end()


def _empty(plan: StorePlan) -> LogRange:
    start = plan.layout.log_files[0].first_offset
    return LogRange(start, start)


class _Walk:
    """One walk along a log."""

    def __init__(self, plan: StorePlan, start: int, allowance: Allowance) -> None:
        self._layout = plan.layout
        self._files = [
            file
            for file in plan.written_files()
            if file.first_offset + plan.layout.log_file_size > start
        ]
        self._position = start
        self._allowance = allowance

    def end(self) -> int:
        """Return how far one may read."""
        for file in self._files:
            self._position = max(self._position, file.first_offset)
            is_last = file is self._files[-1]
            file_end = file.first_offset + self._layout.log_file_size
            if is_last or not self._allowance.is_unlimited:
                region = open_for_reading(self._layout.files, file.path)
                if region is None:
                    continue
                with closing(region):
                    limit = min(region.size, self._layout.log_file_size)
                    if not self._passes(region.view, file.first_offset, limit, is_last=is_last):
                        break
            self._position = file_end
        return self._position

    def _passes(self, view: memoryview, base: int, limit: int, *, is_last: bool) -> bool:
        """Go on in a file; return whether all of it may be read, to its very end."""
        at, is_full = self._position - base, True
        while at < limit and is_full:
            # A file that another one follows has been written to its end; its reader checks it.
            walk = walk_records(
                as_bytes(view),
                at,
                limit,
                limit,
                base,
                rows_max=_ROWS_MAX,
                bytes_max=_BYTES_MAX,
                check_crc=is_last,
            )
            sizes = walk.table.size
            if is_last and len(sizes) and _is_unfinished(view, int(walk.table.position[-1]), limit):
                sizes = sizes[:-1]
            taken = self._allowance.take(sizes)
            at += int(sizes[:taken].sum(dtype=np.int64))
            self._position = base + at
            if taken < len(walk.table):
                return False
            is_full = walk.stop is Stop.FULL
        if at >= limit:
            return True
        return not is_last or isinstance(whole_record(view, at, limit, base), Blank)


def _is_unfinished(view: memoryview, position: int, limit: int) -> bool:
    """Whether the last record may still be being copied: its properties are its last bytes.

    The checksum covers the body alone.  Properties are text without zeros, and once another
    record follows, this one is complete.
    """
    record = check_record(view, position, limit, check_crc=False, expected_offset=None)
    assert isinstance(record, CheckedRecord), position
    end = position + record.size
    return not any(view[end : min(end + 8, limit)]) and b"\0" in record.properties
