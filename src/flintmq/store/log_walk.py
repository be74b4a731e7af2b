"""Walking a log that may be damaged: from record to record, as far as they are good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.record import Blank, check_record
from flintmq.store.dispatch_request import request_from_record
from flintmq.store.torn_write import is_torn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.format.record import CheckedRecord
    from flintmq.store.commit_log import CommitLog
    from flintmq.store.config import StoreConfig
    from flintmq.store.dispatch_request import DispatchRequest
    from flintmq.store.mapped_file import MappedFile

OFFSET_MAX: Final = (1 << 63) - 1


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
        file = self._log.files.find(physical_offset)
        if file is None:
            return None
        try:
            record = check_record(
                file.view,
                physical_offset - file.first_offset,
                file.size,
                check_crc=False,
                expected_offset=physical_offset,
            )
        except CorruptRecordError:
            return None
        return None if isinstance(record, Blank) else record

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
        self.end = LogEnd(start, "")
        previous: MappedFile | None = None
        for file in self._log.files_from(start):
            if previous is not None and file.first_offset != previous.end_offset:
                self.end = LogEnd(self.end.offset, f"{file.path.name} does not follow")
                return
            previous = file
            offset = max(start, file.first_offset)
            view, first_offset, size = file.view, file.first_offset, file.size
            try:
                while offset < file.end_offset:
                    record = check_record(
                        view,
                        offset - first_offset,
                        size,
                        check_crc=check_crc,
                        expected_offset=offset,
                    )
                    if isinstance(record, Blank):
                        break
                    if offset >= self.torn_from and is_torn(record, view, offset - first_offset):
                        self.end = LogEnd(offset, "torn by a power failure")
                        return
                    offset += record.size
                    yield record
            except EndOfRecords:
                self.end = LogEnd(offset, "")
                return
            except CorruptRecordError as error:
                self.end = LogEnd(offset, error.reason)
                return
            # A blank with nothing behind it counts as not written.
            self.end = LogEnd(offset, "")
