"""Reading one split of a commit-log file: records in order, and what had to be skipped.

A split starts and ends where a record is known to start, so its records form a chain from one
to the other.  If they do not, the queues contradict the log and reading fails: that makes every
boundary part of the chain that begins with the file, whatever bodies hold.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark.sql.datasource import InputPartition

from flintmq.errors import FlintError
from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.record import Blank, CheckedRecord, check_record
from flintmq.offline.regions import open_for_reading
from flintmq.offline.resync import written_bounds
from flintmq.spark.anchors import QueueProof, claimed_ends, find_proven, whole_record
from flintmq.spark.errors import SplitError

BATCH_COUNT: Final = 256
"""Fewer than the allocations that set off a garbage collection, so that hardly any runs."""

BATCH_BYTES: Final = 1 << 20
"""A batch of records ends behind so many bytes, or has a single record."""


@dataclass(frozen=True, kw_only=True)
class LogSplit(InputPartition):
    """A part of one log file.  All but sizes are physical offsets.

    ``gap`` says why nothing can be read from ``start`` to ``end``; then there is no file.
    ``files`` is the file layer of the layout, whose type belongs to the store.
    """

    files: Any
    store: str
    broker_name: str | None
    path: str
    file_start: int
    file_size: int
    start: int
    end: int
    is_last_file: bool = False
    last_time: int = 0
    gap: str = ""


class Damage(NamedTuple):
    """A range that holds no whole record with a true checksum.

    ``record`` is there if only the checksum is wrong.  ``is_tail`` marks what stands behind the
    last record of the log: a crash leaves it, and a broker cuts it off when it starts.
    """

    start: int
    end: int
    reason: str
    record: CheckedRecord | None = None
    is_tail: bool = False


Found: TypeAlias = list[CheckedRecord] | Damage
Ranges: TypeAlias = list[tuple[int, int]]


class SplitScan:
    """One pass over a split.  ``view`` is the file while ``found`` is being read."""

    def __init__(self, split: LogSplit) -> None:
        self._split = split
        self._base = split.file_start
        self._stop = split.end - split.file_start
        self._limit = split.file_size
        self._last_time = split.last_time
        self._ended = False
        self.view = memoryview(b"")

    def found(self) -> Generator[Found, None, None]:
        """Yield the records, many at a time, and the damage between them."""
        split = self._split
        if split.gap:
            yield Damage(split.start, split.end, split.gap)
            return
        region = open_for_reading(split.files, Path(split.path))
        if region is None:
            yield Damage(split.start, split.end, "the file was deleted meanwhile")
            return
        with closing(region), QueueProof(Path(split.store)) as proof:
            self.view = region.view
            self._limit = min(self._limit, region.size)
            self._stop = min(self._stop, self._limit)
            self._data_ranges = region.data_ranges
            self._proof = proof
            try:
                yield from self._scan()
            finally:
                # A view that is still held would keep the file from being unmapped.
                self.view = memoryview(b"")

    def _scan(self) -> Iterator[Found]:
        view, base, limit, stop = self.view, self._base, self._limit, self._stop
        check = check_record
        position = self._split.start - base
        full = position + BATCH_BYTES
        batch: list[CheckedRecord] = []
        while position < stop:
            try:
                record = check(
                    view, position, limit, check_crc=True, expected_offset=base + position
                )
            except CorruptRecordError as error:
                if batch:
                    self._last_time = batch[-1].store_timestamp
                    yield batch
                    batch = []
                damage = self._judge(error, position)
                if damage is not None:
                    yield damage
                if self._ended or damage is None:
                    return
                position = damage.end - base
                continue
            if isinstance(record, Blank):
                position = limit
                break
            batch.append(record)
            position += record[0]
            if position >= full or len(batch) >= BATCH_COUNT:
                self._last_time = record.store_timestamp
                yield batch
                batch = []
                full = position + BATCH_BYTES
        if batch:
            yield batch
        if position > stop:
            raise SplitError(self._split.path, base + position, base + stop)

    def _judge(self, error: CorruptRecordError, position: int) -> Damage | None:
        """Return what is damaged from ``position`` on; None at the clean end of the log."""
        base = self._base
        if not isinstance(error, EndOfRecords):
            record = whole_record(self.view, position, self._limit, base)
            if isinstance(record, CheckedRecord):
                self._last_time = record.store_timestamp
                end = base + position + record.size
                return Damage(base + position, end, error.reason, record)
        is_tail = self._split.is_last_file and self._stop == self._limit
        following = self._next_record(position)
        if following is None or (is_tail and self._is_stale(following)):
            if is_tail:
                self._ended = True
                return self._tail(error, position)
            following = self._stop
        return Damage(base + position, base + following, error.reason)

    def _next_record(self, position: int) -> int | None:
        """Return where the records go on behind damage at ``position``."""
        view, base, limit = self.view, self._base, self._limit
        for end in claimed_ends(view, position, limit, base):
            if end == self._stop < limit:
                return end
            record = whole_record(view, end, limit, base) if end < self._stop else None
            if isinstance(record, Blank) or (record and self._proof.says(record) is not False):
                return end
        ranges = self._ranges(position + 1)
        proven, maybe = find_proven(view, ranges, limit, base, self._proof)
        return maybe if proven is None else proven

    def _ranges(self, start: int) -> Ranges:
        """Return where the rest of the split is no hole."""
        try:
            found = list(self._data_ranges(start))
        except FlintError:
            found = [(start, self._stop)]  # A file that was deleted cannot be asked.
        return [(begin, min(end, self._stop)) for begin, end in found if begin < self._stop]

    def _is_stale(self, position: int) -> bool:
        """Whether a record behind damage is older than the last good one.

        A Java broker that cuts its log back leaves the bytes, and writes over them from there.
        """
        record = whole_record(self.view, position, self._limit, self._base)
        return isinstance(record, CheckedRecord) and record.store_timestamp < self._last_time

    def _tail(self, error: CorruptRecordError, position: int) -> Damage | None:
        bounds = written_bounds(self.view, self._ranges(position), self._limit)
        if bounds is None:
            return None
        at_once = not isinstance(error, EndOfRecords)
        start = position if at_once else bounds[0]
        reason = f"behind the end of the log: {error.reason}"
        return Damage(self._base + start, self._base + bounds[1], reason, is_tail=True)
