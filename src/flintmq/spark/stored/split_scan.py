"""Reading one split of a commit-log file: records in order, and what had to be skipped.

A split starts and ends where a record is known to start, so its records form a chain from one
to the other.  If they do not, the queues contradict the log and reading fails: that makes every
boundary part of the chain that begins with the file, whatever bodies hold.
"""

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from flintmq.errors import FlintError
from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.stored.record import Blank, CheckedRecord, check_record
from flintmq.format.stored.record_search import (
    RecordProof,
    record_behind,
    whole_record,
    written_bounds,
)
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.records import RecordTable, Stop, Walk, walk_records
from flintmq.offline.queue_proof import queue_proof
from flintmq.offline.regions import open_for_reading
from flintmq.spark.errors import SplitError
from flintmq.spark.stored.log_split import LogSplit

ROWS_MAX: Final = 16_384
BYTES_MAX: Final = 16 << 20
"""A table of records ends behind so many bytes, or has a single record."""

_NO_BYTES: Final = as_bytes(b"")


class SplitDamage(NamedTuple):
    """A range that holds no whole record with a true checksum.

    ``record`` is there if only the checksum is wrong.  ``is_tail`` marks what stands behind the
    last record of the log: a crash leaves it, and a broker cuts it off when it starts.
    ``is_deleted`` marks a file that was there when the splits were planned, ``is_body`` a record
    that is there, without its body, which cannot be decompressed.
    """

    start: int
    end: int
    reason: str
    record: CheckedRecord | None = None
    is_tail: bool = False
    is_deleted: bool = False
    is_body: bool = False


Found: TypeAlias = RecordTable | SplitDamage
Ranges: TypeAlias = list[tuple[int, int]]


class _NoProof:
    """Knows nothing about any record."""

    def says(self, record: CheckedRecord) -> bool | None:
        """Return None, as where there is no unit."""
        return None


def _proof_for(split: LogSplit) -> AbstractContextManager[RecordProof]:
    if split.is_set_aside:
        return nullcontext(_NoProof())
    return queue_proof(Path(split.store))


class SplitScan:
    """One pass over a split.  ``view`` and ``data`` are the file while ``found`` is being read.

    A caller that keeps one of them longer keeps the file from being unmapped.  ``is_complete``
    is true once the records were followed to the end of the split, the blank of the file included.
    """

    def __init__(
        self, split: LogSplit, *, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX
    ) -> None:
        self._split = split
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._base = split.file_start
        self._stop = split.end - split.file_start
        self._limit = split.file_size
        self._last_time = split.last_time
        self._ended = False
        # Up to here the log is known to go on.
        self._good_at = -1
        self.is_complete = False
        self.view = memoryview(b"")
        self.data = _NO_BYTES

    def found(self) -> Generator[Found, None, None]:
        """Yield the records, as tables of ``data``, and the damage between them."""
        split = self._split
        if split.gap:
            yield SplitDamage(split.start, split.end, split.gap)
            return
        region = open_for_reading(split.files, Path(split.path))
        if region is None:
            reason = "the file was deleted meanwhile"
            yield SplitDamage(split.start, split.end, reason, is_deleted=True)
            return
        with closing(region), _proof_for(split) as proof:
            self.view = region.view
            self.data = as_bytes(region.view)
            self._limit = min(self._limit, region.size)
            self._stop = min(self._stop, self._limit)
            self._data_ranges = region.data_ranges
            self._proof = proof
            try:
                yield from self._scan()
            finally:
                self.view = memoryview(b"")
                self.data = _NO_BYTES

    def _scan(self) -> Iterator[Found]:
        base, limit, stop = self._base, self._limit, self._stop
        position = self._split.start - base
        doubted = -1
        while position < stop:
            table, position, reason = self._walk(position)
            if len(table):
                self._last_time = int(table.store_timestamp[-1])
                yield table
            if reason is not Stop.SPECIAL:
                continue
            try:
                record = check_record(
                    self.view, position, limit, check_crc=True, expected_offset=base + position
                )
            except CorruptRecordError as error:
                damage = self._judge(error, position)
                if self._may_be_torn and not self._ended and self._is_whole(position):
                    continue  # A broker was writing it, and what follows, at this moment.
                if damage is not None:
                    yield damage
                if self._ended or damage is None:
                    return
                position = damage.end - base
                continue
            if isinstance(record, Blank):
                position = limit
                break
            # A broker has completed the record since the kernel looked at it: once more.
            assert position != doubted, f"the kernel refuses the record at {base + position}"
            doubted = position
        if position > stop:
            raise SplitError(self._split.path, base + position, base + stop)
        self.is_complete = True

    def _walk(self, position: int) -> Walk:
        return walk_records(
            self.data,
            position,
            self._stop,
            self._limit,
            self._base,
            rows_max=self._rows_max,
            bytes_max=self._bytes_max,
        )

    def _judge(self, error: CorruptRecordError, position: int) -> SplitDamage | None:
        """Return what is damaged from ``position`` on; None at the clean end of the log."""
        base = self._base
        if self._may_be_torn and not self._goes_on(position):
            return self._log_end(error, position)
        if not isinstance(error, EndOfRecords):
            record = whole_record(self.view, position, self._limit, base)
            if isinstance(record, CheckedRecord):
                self._last_time = record.store_timestamp
                end = base + position + record.size
                return SplitDamage(base + position, end, error.reason, record)
        following = self._next_record(position)
        if following is None or (self._has_log_end and self._is_stale(following)):
            if self._has_log_end:
                return self._log_end(error, position)
            following = self._stop
        return SplitDamage(base + position, base + following, error.reason)

    @property
    def _has_log_end(self) -> bool:
        """Whether the log ends in this split."""
        return self._split.is_last_file and self._stop == self._limit

    @property
    def _may_be_torn(self) -> bool:
        """Whether the end of the last write stands in this split, and may be unfinished."""
        return self._split.may_be_torn and self._has_log_end

    def _goes_on(self, position: int) -> bool:
        """Whether a whole record stands at ``position`` or behind that belongs to the log."""
        following: int | None = position
        while following is not None and following < self._limit:
            if following <= self._good_at:
                return True
            if self._is_whole(following):
                if self._is_stale(following):
                    return False
                self._good_at = following
                return True
            following = self._next_record(following)
        return False

    def _is_whole(self, position: int) -> bool:
        """Whether a record or a blank with a true checksum stands at a position."""
        found = whole_record(self.view, position, self._limit, self._base, check_crc=True)
        return found is not None

    def _next_record(self, position: int) -> int | None:
        """Return where the records go on behind damage at ``position``."""
        return record_behind(
            self.view,
            position,
            self._ranges(position + 1),
            self._proof,
            stop=self._stop,
            limit=self._limit,
            base=self._base,
        )

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

    def _log_end(self, error: CorruptRecordError, position: int) -> SplitDamage | None:
        """Return what stands behind the end of the log, None where nothing was written."""
        self._ended = True
        bounds = written_bounds(self.view, self._ranges(position), self._limit)
        if bounds is None:
            return None
        at_once = not isinstance(error, EndOfRecords)
        start = position if at_once else bounds[0]
        reason = f"behind the end of the log: {error.reason}"
        return SplitDamage(self._base + start, self._base + bounds[1], reason, is_tail=True)
