"""Reading a commit log from its start to its end, over damage if need be.

A scan gives the whole records in batches and keeps what it had to skip.  It goes over the files
that existed when it began; where a broker appends meanwhile, it ends where the records end.
With machine code it gives them in tables, where they are sound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from contextlib import closing
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.stored.record import Blank, CheckedRecord, check_record
from flintmq.format.stored.record_layout import BLANK_SIZE, BODY_CRC_AT, MAGIC_AT, MESSAGE_MAGIC
from flintmq.format.stored.record_search import record_behind, whole_record, written_bounds
from flintmq.offline.findings import Kind
from flintmq.offline.layout import DataFile
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import open_for_reading
from flintmq.store.errors import StoreError
from flintmq.store.files.interface import MappedRegion

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from flintmq.store.recovery.bulk_records import BulkRecords, SoundRecords

BATCH_COUNT: Final = 256
"""Fewer than the allocations that set off a garbage collection, so that hardly any runs."""

SINGLE_RECORDS_MAX: Final = 20_000
"""With fewer records a scan is done before machine code is loaded."""

DAMAGE_COUNT_MAX: Final = 100_000
"""How many damaged ranges are remembered; more are only counted."""

_MAGIC_BYTES: Final = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)

Progress: TypeAlias = Callable[[int, int], None]
"""Is told how many bytes are done, and of how many."""

LoadBulk: TypeAlias = "Callable[[], BulkRecords | None]"
"""Loads machine code; gives None where there is none."""


class Damage(NamedTuple):
    """A range of the log that holds no whole record with a true checksum."""

    start: int
    end: int
    kind: Kind
    file: str
    reason: str


class _FileBytes(NamedTuple):
    """The part of a log file that may hold records."""

    view: memoryview
    size: int
    first_offset: int


class Tail(Enum):
    """What follows the last record of a log."""

    CLEAN = "nothing was written after the last record"
    BLANK = "the last file ends with a blank, and there is no next one"
    TORN = "a record was begun and not finished"
    GARBAGE = "bytes that are no record"
    LEFTOVER = "older records than the last one, from before the log was cut back"


class LogScan:
    """One pass over the records of a log.

    ``damages`` and the counters grow while ``batches`` is read; ``end`` and ``tail`` are final
    when it is exhausted.
    """

    def __init__(
        self,
        log: LogFiles,
        *,
        check_crc: bool,
        start: int | None = None,
        last_time: int = 0,
        progress: Progress | None = None,
        load_bulk: LoadBulk | None = None,
    ) -> None:
        """Scan ``log`` from ``start``, where a record must stand; from its beginning for None.

        ``last_time`` is the store time of the record before ``start``, as far as it is known.
        ``load_bulk`` is asked once for machine code, when there are many records.
        """
        self._log = log
        self._proof = log.proof()
        self._check_crc = check_crc
        self._start = log.start if start is None else start
        self._progress = progress
        self._load_bulk = load_bulk
        self._bulk: BulkRecords | None = None
        self._total = log.size
        self._done = 0
        self._last_time = last_time
        self._ended = False
        self._starts: list[int] = []
        self.end = self._start
        self.record_count = 0
        self.record_bytes = 0
        self.blank_count = 0
        self.blank_end = 0
        """Where the last file ends that has a blank at its end."""
        self.damages: list[Damage] = []
        self.damage_count = 0
        self.damage_bytes = 0
        self.tail = Tail.CLEAN
        self.tail_reason = ""
        self.tail_start = self.tail_end = self._start
        self.unused_files: list[DataFile] = []
        self.deleted_files: list[DataFile] = []

    @property
    def flushed_end(self) -> int:
        """Up to where the log has what was flushed: behind the last record, or a blank after it."""
        return max(self.end, self.blank_end)

    def batches(self) -> Generator[list[CheckedRecord], None, None]:
        """Yield the records in log order, many at a time."""
        return _in_lists(self.pieces())

    def pieces(self) -> Generator[list[CheckedRecord] | SoundRecords, None, None]:
        """Yield the records in log order, in tables if there is machine code.

        A table is good until the next piece is asked for.
        """
        files = self.written_files()
        previous_end: int | None = None
        for file in files:
            if file.first_offset + file.size <= self._start:
                self._done += file.size
                continue
            if previous_end is not None and file.first_offset > previous_end:
                reason = "no file holds this range"
                self._damage(previous_end, file.first_offset, Kind.LOG_GAP, file, reason)
            previous_end = file.first_offset + self._log.file_size
            yield from self._scan_pieces(file, is_last=file is files[-1])
            self._done += file.size
            if self._ended:
                return

    def damaged_between(self, start: int, end: int) -> bool:
        """Whether something was lost in the log between two offsets, or deleted meanwhile."""
        for file in self.deleted_files:
            if file.first_offset < end and start < file.first_offset + file.size:
                return True
        at = bisect_left(self._starts, start)
        if at and self.damages[at - 1].end > start:
            return True
        return at < len(self._starts) and self._starts[at] < end

    def written_files(self) -> list[DataFile]:
        """Return the files up to the last one that anything was written to."""
        files = list(self._log.files)
        while files:
            region = open_for_reading(self._log.layer, files[-1].path)
            if region is not None:
                with closing(region):
                    if any(region.view[:BLANK_SIZE]):
                        break
                    if written_bounds(region.view, _ranges(region, 0), region.size):
                        break
            self.unused_files.insert(0, files.pop())
        return files

    def scan_file(
        self, file: DataFile, *, is_last: bool
    ) -> Generator[list[CheckedRecord], None, None]:
        """Yield the records of one file; behind those of the last one the log ends."""
        return _in_lists(self._scan_pieces(file, is_last=is_last))

    def _scan_pieces(
        self, file: DataFile, *, is_last: bool
    ) -> Generator[list[CheckedRecord] | SoundRecords, None, None]:
        region = open_for_reading(self._log.layer, file.path)
        if region is None:
            self.deleted_files.append(file)
            return
        with closing(region):
            yield from self._scan_region(region, file, is_last=is_last)

    def _scan_region(
        self, region: MappedRegion, file: DataFile, *, is_last: bool
    ) -> Iterator[list[CheckedRecord] | SoundRecords]:
        view, base = region.view, file.first_offset
        limit = min(region.size, self._log.file_size)
        position = max(self._start - base, 0)
        check, check_crc = check_record, self._check_crc
        batch: list[CheckedRecord] = []
        while position < limit:
            if not batch and (bulk := self._ready()) is not None:
                file_bytes = _FileBytes(view, limit, base)
                position = yield from self._sound_records(bulk, file_bytes, position)
                if position >= limit:
                    break
            try:
                record = check(
                    view, position, limit, check_crc=check_crc, expected_offset=base + position
                )
            except CorruptRecordError as error:
                if batch:
                    self._account(batch, position)
                    yield batch
                    batch = []
                found = self._judge(error, region, file, position, limit, is_last=is_last)
                if isinstance(found, int):
                    position = found
                    continue
                record = found
            if isinstance(record, Blank):
                self._end_file(base + position, base + limit, is_last=is_last)
                break
            batch.append(record)
            position += record[0]
            if len(batch) >= BATCH_COUNT:
                self._account(batch, position)
                yield batch
                batch = []
        if batch:
            self._account(batch, position)
            yield batch

    def _ready(self) -> BulkRecords | None:
        """Return machine code, loaded when enough records were read without it."""
        if self._load_bulk is not None and self.record_count >= SINGLE_RECORDS_MAX:
            self._bulk, self._load_bulk = self._load_bulk(), None
        return self._bulk

    def _sound_records(
        self, bulk: BulkRecords, file: _FileBytes, position: int
    ) -> Generator[SoundRecords, None, int]:
        """Yield the sound records from a position on; return where something else stands."""
        base, end = file.first_offset, file.first_offset + file.size
        views = bulk.views()
        while base + position < end:
            table = bulk.table(file, base + position, end, views, check_crc=self._check_crc)
            if not len(table):
                break
            position = table.end - base
            self.record_count += len(table)
            self.record_bytes += table.byte_count
            self._went_on(table.last_time, table.end, position)
            try:
                yield table
            finally:
                table.release()
        return position

    def _account(self, batch: list[CheckedRecord], position: int) -> None:
        last = batch[-1]
        self.record_count += len(batch)
        self.record_bytes += sum([record[0] for record in batch])
        self._went_on(last.store_timestamp, last.physical_offset + last.size, position)

    def _went_on(self, last_time: int, end: int, position: int) -> None:
        self._last_time = last_time
        self.end = end
        if self._progress is not None:
            self._progress(self._done + min(position, self._log.file_size), self._total)

    def _end_file(self, offset: int, file_end: int, *, is_last: bool) -> None:
        self.blank_count += 1
        self.blank_end = file_end
        if is_last and not self.unused_files:
            self.tail, self.tail_reason = Tail.BLANK, Tail.BLANK.value
            self.tail_start, self.tail_end = offset, file_end

    def _judge(
        self,
        error: CorruptRecordError,
        region: MappedRegion,
        file: DataFile,
        position: int,
        limit: int,
        *,
        is_last: bool,
    ) -> CheckedRecord | Blank | int:
        """Return a record that is whole but for its checksum, else where to go on."""
        view, base = region.view, file.first_offset
        offset = base + position
        if self._check_crc and not isinstance(error, EndOfRecords):
            record = whole_record(view, position, limit, base)
            if isinstance(record, CheckedRecord):
                end = offset + record.size
                self._damage(offset, end, Kind.CHECKSUM, file, error.reason)
                return record
        following = record_behind(
            view,
            position,
            _ranges(region, position + 1),
            self._proof,
            stop=limit,
            limit=limit,
            base=base,
            doubts_queues=True,
        )
        if following is not None and not (is_last and self._is_stale(view, following, limit, base)):
            end = base + following
            self._damage(offset, end, Kind.DAMAGED_RECORD, file, error.reason)
            return following
        if is_last:
            self._end_log(error, region, file, position, limit, leftover=following is not None)
        else:
            self._damage(offset, base + limit, Kind.DAMAGED_RECORD, file, error.reason)
        return limit

    def _is_stale(self, view: memoryview, position: int, limit: int, base: int) -> bool:
        """Whether a record behind a damaged range is older than the last good one.

        A Java broker that cuts its log back leaves the bytes, and writes over them from there.
        """
        record = whole_record(view, position, limit, base)
        return isinstance(record, CheckedRecord) and record.store_timestamp < self._last_time

    def _end_log(
        self,
        error: CorruptRecordError,
        region: MappedRegion,
        file: DataFile,
        position: int,
        limit: int,
        *,
        leftover: bool,
    ) -> None:
        self._ended = True
        bounds = written_bounds(region.view, _ranges(region, position), limit)
        if bounds is None:
            return
        at_once = not isinstance(error, EndOfRecords)
        self.tail_start = file.first_offset + (position if at_once else bounds[0])
        self.tail_end = file.first_offset + bounds[1]
        self.tail_reason = error.reason
        if leftover:
            self.tail = Tail.LEFTOVER
        elif region.view[position + MAGIC_AT : position + BODY_CRC_AT] == _MAGIC_BYTES:
            self.tail = Tail.TORN
        else:
            self.tail = Tail.GARBAGE
            if isinstance(error, EndOfRecords):
                self.tail_reason = "something was written behind the end of the log"

    def _damage(self, start: int, end: int, kind: Kind, file: DataFile, reason: str) -> None:
        self.note_damage(Damage(start, end, kind, self._log.name_of(file.path), reason))

    def note_damage(self, damage: Damage) -> None:
        """Remember a damaged range, which starts behind all that were noted before."""
        self.damage_count += 1
        self.damage_bytes += damage.end - damage.start
        if len(self.damages) < DAMAGE_COUNT_MAX:
            self._starts.append(damage.start)
            self.damages.append(damage)


def _in_lists(
    pieces: Iterator[list[CheckedRecord] | SoundRecords],
) -> Generator[list[CheckedRecord], None, None]:
    for piece in pieces:
        yield piece if isinstance(piece, list) else list(piece)


def _ranges(region: MappedRegion, start: int) -> list[tuple[int, int]]:
    """Return where a file is no hole; all of it when it was deleted and cannot be asked."""
    try:
        return list(region.data_ranges(start))
    except StoreError:
        return [(start, region.size)]
