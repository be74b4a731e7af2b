"""Walking a log that may be damaged: from record to record, as far as they are good."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.stored.record import Blank, check_record
from flintmq.store.log.dispatch_request import request_from_record
from flintmq.store.log.torn_write import is_torn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.format.stored.record import CheckedRecord
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.log.dispatch_request import DispatchRequest

OFFSET_MAX: Final = (1 << 63) - 1

NOT_WRITTEN: Final = "nothing was written here"
"""What is wrong with zeros; they are damage only where records follow them."""

StepOver: TypeAlias = "Callable[[int, str], int | None]"
"""Is told the offset of damage and its reason."""


_Found = TypeVar("_Found", covariant=True)


class WalkFile(Protocol[_Found]):
    """Walks one file of the log."""

    def __call__(self, file: MappedFile, offset: int, /) -> Generator[_Found, None, LogEnd]:
        """Yield what is found from ``offset`` on; without a reason the next file goes on."""
        ...


def _stay(_offset: int, _reason: str) -> int | None:
    """End the log at any damage."""
    return None


class LogEnd(NamedTuple):
    """Where a walk ended; the reason is empty where nothing was written any more."""

    offset: int
    reason: str


class LogWalk:
    """Reads the records of a loaded log for recovery."""

    def __init__(self, config: StoreConfig, log: CommitLog, *, delay_levels: DelayLevels) -> None:
        self._config = config
        self._log = log
        self._delay_levels = delay_levels
        self.torn_from = OFFSET_MAX
        """From this log offset on a power failure may have torn records."""
        self.end = LogEnd(0, "")
        """Where the last walk ended."""
        self.step_over: StepOver = _stay
        """Tells where records go on behind damage at an offset, None where the log ends."""
        self.last_time = 0
        """When the last good record before damage was stored, 0 for none."""
        self.damaged_at: dict[int, str] = {}
        """Where damage starts that was found before, and what is wrong there."""

    def request(self, record: CheckedRecord) -> DispatchRequest:
        """Return what the views need to know of a record."""
        return request_from_record(
            record,
            delay_levels=self._delay_levels,
            multi_dispatch=self._config.enable_multi_dispatch,
            lmq=self._config.enable_lmq,
        )

    def record_at(self, physical_offset: int) -> CheckedRecord | None:
        """Return the record that starts at an offset, None where none does."""
        record = self._checked_at(physical_offset)
        return None if isinstance(record, Blank) else record

    def behind_blank(self, physical_offset: int) -> int:
        """Return where the blank ends that starts at an offset, the offset where none does."""
        file = self._log.files.find(physical_offset)
        if file is None or not isinstance(self._checked_at(physical_offset), Blank):
            return physical_offset
        return file.end_offset

    def _checked_at(self, physical_offset: int) -> CheckedRecord | Blank | None:
        file = self._log.files.find(physical_offset)
        if file is None:
            return None
        try:
            return check_record(
                file.view,
                physical_offset - file.first_offset,
                file.size,
                check_crc=False,
                expected_offset=physical_offset,
            )
        except CorruptRecordError:
            return None

    def file_behind(self, file: MappedFile) -> MappedFile | None:
        """Return the file of the log that goes on where another one ends."""
        return self._log.files.find(file.end_offset)

    def has_whole_file(self, start: int, size: int) -> bool:
        """Whether a file has so many bytes behind an offset, and goes on in another one."""
        file = self._log.files.find(start)
        if file is None or file.end_offset - start < size:
            return False
        return self.file_behind(file) is not None

    def store_time_of(self, physical_offset: int) -> int:
        """Return the store time of the record at an offset, 0 where there is none."""
        record = self.record_at(physical_offset)
        return record.store_timestamp if record is not None else 0

    def records(self, start: int, end: int) -> Iterator[CheckedRecord]:
        """Yield the records between two offsets, as far as they are good."""
        for record in self.walk(start, check_crc=False):
            if record.physical_offset >= end:
                return
            yield record

    def walk(self, start: int, *, check_crc: bool) -> Iterator[CheckedRecord]:
        """Yield good records from ``start`` on; ``end`` tells where and why it ended."""
        return self.over_files(start, functools.partial(self._walk_file, check_crc=check_crc))

    def over_files(self, start: int, walk_file: WalkFile[_Found]) -> Iterator[_Found]:
        """Yield what ``walk_file`` finds from ``start`` on; ``end`` tells where and why it ended.

        Damage that ``step_over`` knows a way past is left out, and the walk goes on behind it.
        """
        self.end = LogEnd(start, "")
        self.last_time = 0
        files = list(self._log.files_from(start))
        offset = max(start, files[0].first_offset) if files else start
        number = 0
        while number < len(files):
            file = files[number]
            if offset < file.first_offset:
                reason = f"{file.path.name} does not follow"
            else:
                found = yield from walk_file(file, offset)
                offset, reason = found.offset, found.reason
                if not reason:
                    # A blank with nothing behind it counts as not written.
                    self.end = LogEnd(offset, "")
                    number += 1
                    if number < len(files):
                        offset = file.end_offset
                    continue
            following = self.step_over(offset, reason)
            if following is None:
                if offset >= file.first_offset:
                    self.end = LogEnd(offset, "" if reason == NOT_WRITTEN else reason)
                else:
                    self.end = LogEnd(self.end.offset, reason)
                return
            offset = following
            while number < len(files) and files[number].end_offset <= offset:
                number += 1

    def _walk_file(
        self, file: MappedFile, offset: int, *, check_crc: bool
    ) -> Generator[CheckedRecord, None, LogEnd]:
        """Yield the good records of one file; without a reason the next file goes on."""
        last: CheckedRecord | None = None
        try:
            while offset < file.end_offset:
                found = self.judge(file, offset, check_crc=check_crc)
                if isinstance(found, LogEnd):
                    return found
                offset += found.size
                last = found
                yield found
        finally:
            if last is not None:
                self.last_time = last.store_timestamp
        return LogEnd(offset, "")

    def judge(self, file: MappedFile, offset: int, *, check_crc: bool) -> CheckedRecord | LogEnd:
        """Return the good record at an offset of a file, or why there is none.

        Without a reason the next file goes on: a blank is there.
        """
        if offset in self.damaged_at:
            return LogEnd(offset, self.damaged_at[offset])
        position = offset - file.first_offset
        try:
            record = check_record(
                file.view, position, file.size, check_crc=check_crc, expected_offset=offset
            )
        except EndOfRecords:
            return LogEnd(offset, NOT_WRITTEN)
        except CorruptRecordError as error:
            return LogEnd(offset, error.reason)
        if isinstance(record, Blank):
            return LogEnd(offset, "")
        if offset >= self.torn_from and is_torn(record, file.view, position):
            return LogEnd(offset, "torn by a power failure")
        return record
