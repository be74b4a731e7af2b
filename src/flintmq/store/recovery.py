"""Recovery: from whatever a stop left on the disk to a store without holes.

The log is the truth and the views are derived from it.  Recovery

1. loads what is there and decides where to start: at the checkpoint's exact marks, or, when a
   Java broker wrote the store, at the file that broker would choose;
2. cuts queues and index back to that start, since nothing after it is known to be whole;
3. scans the log from there, checking every record, and dispatches it again;
4. ends the log behind the last good record, and zeroes what follows;
5. fills holes: a record that is ahead of its queue proves that units are missing before it, a
   census that differs from the marks proves that whole queues are.

Java's recovery trusts the checkpoint and dispatches only from the start on; the holes stay.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from flintmq.format.consume_queue import PRE_BLANK_SIZE, UNIT_SIZE
from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.record import Blank, check_record
from flintmq.format.sys_flag import TRANSACTION_ROLLBACK, transaction_type
from flintmq.store.dispatch import BATCH_COUNT_MAX, request_from_record
from flintmq.store.errors import DiskFullError
from flintmq.store.files import is_safe_name
from flintmq.store.key_index import IndexedMessage
from flintmq.store.torn_write import is_torn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flintmq.format.checkpoint import Checkpoint, CheckpointMarks
    from flintmq.format.delay_levels import DelayLevels
    from flintmq.format.record import CheckedRecord
    from flintmq.store.clock import Clock
    from flintmq.store.commit_log import CommitLog
    from flintmq.store.config import StoreConfig
    from flintmq.store.dispatch import Dispatcher, DispatchRequest
    from flintmq.store.key_index import KeyIndex
    from flintmq.store.mapped_file import MappedFile
    from flintmq.store.queue_table import QueueTable, StoredQueue

logger = logging.getLogger(__name__)

FILES_CHECKED_AFTER_CLEAN_STOP: Final = 3
"""Without marks, this many files of the log are checked again, as RocketMQ does."""

UNIT_GAP_MAX: Final = 1_000_000
"""Records that are lost leave blank units; a larger gap is taken for a damaged queue offset."""

OFFSET_MAX: Final = (1 << 63) - 1
WRITE_SIZE: Final = 1 << 20

CHECKPOINT_MARGIN_MS: Final = 3000
"""RocketMQ's allowance between the checkpoint's times and the data they speak of."""


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did; kept by the store for later display."""

    clean_exit: bool = True
    start_reason: str = ""
    log_start: int = 0
    scan_start: int = 0
    log_end: int = 0
    stop_reason: str = ""
    records_scanned: int = 0
    bytes_truncated: int = 0
    log_files_removed: list[str] = field(default_factory=list)
    units_cut: int = 0
    units_rebuilt: int = 0
    queues_filled: list[str] = field(default_factory=list)
    fill_start: int = -1
    index_entries_rebuilt: int = 0
    index_files_dropped: int = 0
    lost_ranges: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    duration_ms: int = 0

    @property
    def summary(self) -> str:
        """One line for the log."""
        parts = [
            f"{'clean' if self.clean_exit else 'abnormal'} exit",
            f"log {self.log_start}..{self.log_end}",
            f"scanned {self.records_scanned} records from {self.scan_start} ({self.start_reason})",
        ]
        if self.bytes_truncated:
            parts.append(f"cut {self.bytes_truncated} bytes ({self.stop_reason})")
        if self.units_rebuilt:
            parts.append(f"rebuilt {self.units_rebuilt} queue units")
        if self.queues_filled:
            parts.append(f"filled holes in {len(self.queues_filled)} queues")
        if self.index_entries_rebuilt:
            parts.append(f"rebuilt {self.index_entries_rebuilt} index entries")
        parts.extend(self.lost_ranges)
        parts.extend(self.problems)
        return "; ".join(parts) + f"; {self.duration_ms} ms"


@dataclass(slots=True)
class _LogEnd:
    offset: int
    reason: str


class Recovery:
    """One run of recovery over loaded files."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        *,
        checkpoint: Checkpoint,
        delay_levels: DelayLevels,
        clean_exit: bool,
        pages_lost: bool = False,
        damaged_queues: Iterable[StoredQueue] = (),
        clock: Clock,
    ) -> None:
        """Take over what was loaded; ``damaged_queues`` were, and are empty now.

        ``pages_lost`` says that a sync has failed before: bytes that are seen may not be on the
        disk, and the kernel takes them for clean.
        """
        self._pages_lost = pages_lost
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._delay_levels = delay_levels
        self._clock = clock
        self.report = RecoveryReport(clean_exit=clean_exit)
        self._holed: dict[tuple[str, int], int] = {}
        """Queues with missing units, and the log offset from which to fill them."""
        for queue in damaged_queues:
            self._mark_hole(queue, 0)
        self._marks: CheckpointMarks | None = None
        self._torn_from = OFFSET_MAX if clean_exit else 0
        """From this log offset on a power failure may have torn records."""
        self._index_after = -1
        """The newest record that the index is known to hold; it goes on behind it."""
        self._index_in_scan = False
        """Whether the index goes on where the scan starts; else it is fed when holes are."""
        self._fill_unknown = False
        """Whether queues that are not on disk at all must be looked for in the whole log."""
        self._stopped = _LogEnd(0, "")
        self._index_batch: list[IndexedMessage] = []
        self._dispatched_to: int | None = None
        """Where a full disk has stopped the dispatch, if it has."""
        self.next_offsets: dict[tuple[str, int], int] = {}
        """For queues that a full disk keeps back, the offset of the next message."""

    def run(self) -> RecoveryReport:
        """Recover, and return what was done."""
        began = self._clock.monotonic()
        report = self.report
        report.log_start = self._log.min_offset
        start = self._choose_start()
        report.scan_start = start
        self._cut_views(start)
        end = self._scan(start)
        self._end_log(end)
        self._fill_holes(start)
        self._finish()
        report.duration_ms = int((self._clock.monotonic() - began) * 1000)
        logger.info("recovered: %s", report.summary)
        return report

    # -- where to start ----------------------------------------------------------------------

    def _choose_start(self) -> int:
        report = self.report
        files = self._log.files.snapshot()
        if not files:
            report.start_reason = "no log files"
            return 0
        marks = self._checkpoint.marks
        if marks is not None:
            start = min(marks.log_flushed, marks.dispatched)
            if self._is_boundary(start):
                self._marks = marks
                self._torn_from = max(self._torn_from, marks.log_flushed)
                report.start_reason = "exact marks"
                return max(start, self._log.min_offset)
            report.problems.append(f"the marks name {start}, where no record starts")
        for gap in self._log.files.check_continuity():
            report.problems.append(f"gap in the log: {gap}")
        if report.clean_exit:
            first = files[max(0, len(files) - FILES_CHECKED_AFTER_CLEAN_STOP)]
            report.start_reason = "last files after a clean stop"
            return first.first_offset
        limit = max(0, min(self._checkpoint.physic, self._checkpoint.logics) - CHECKPOINT_MARGIN_MS)
        if self._config.index_enabled and self._config.index_safe:
            limit = min(limit, self._checkpoint.index)
        for file in reversed(files):
            time = self._first_store_time(file)
            if 0 < time <= limit:
                report.start_reason = "file before the checkpoint's times"
                return file.first_offset
        report.start_reason = "oldest file"
        return files[0].first_offset

    def _is_boundary(self, offset: int) -> bool:
        """Whether the log still has the place ``offset``; after it anything may be torn."""
        if offset <= self._log.min_offset or self._log.files.find(offset) is not None:
            return True
        last = self._log.files.last
        return last is not None and offset == last.end_offset

    def _first_store_time(self, file: MappedFile) -> int:
        try:
            record = check_record(
                file.view, 0, file.size, check_crc=False, expected_offset=file.first_offset
            )
        except CorruptRecordError:
            return 0
        return 0 if isinstance(record, Blank) else record.store_timestamp

    # -- cutting the views back --------------------------------------------------------------

    def _cut_views(self, start: int) -> None:
        log_min = self._log.min_offset
        # After a clean stop units behind the start are kept if the scan proves them right: what
        # a Java broker has put into the extension could not be made again.
        keep_below = self._log.files.max_wrote if self.report.clean_exit else start
        for queue in self._queues:
            if queue.is_empty:
                continue
            end = queue.find_end(keep_below, self._unit_check(queue))
            self.report.units_cut += queue.cut(end)
            if self._marks is None:
                self._suspect(queue, log_min)
        self._cut_index(start)
        self._index_in_scan = self._index is not None and self._index_after >= start - 1
        if self._marks is not None:
            census = self._queues.census
            if census != (self._marks.queue_count, self._marks.unit_total):
                self.report.problems.append(
                    f"{census.queue_count} queues with {census.unit_total} units on disk, "
                    f"the checkpoint counted {self._marks.queue_count} with "
                    f"{self._marks.unit_total}"
                )
                self._mark_all(log_min)

    def _unit_check(self, queue: StoredQueue) -> Callable[[int, int, int], bool]:
        """Return a test whether a unit leads to the record that belongs there."""
        place = (queue.topic, queue.queue_id)

        def is_true(queue_offset: int, physical_offset: int, size: int) -> bool:
            if physical_offset < self._log.min_offset:
                return True  # The record is gone; what led to it can only have been right.
            record = self._record_at(physical_offset)
            if record is None or record.size != size:
                return False
            request = self._request(record)
            slots = [(request.topic, request.queue_id, request.queue_offset), *request.multi]
            return (*place, queue_offset) in slots

        return is_true

    def _suspect(self, queue: StoredQueue, log_min: int) -> None:
        """Without marks to count by, look for signs that a whole file of a queue is missing.

        A queue that starts in its address space behind a kept record may lack its first files;
        one that ends with a full file may lack its last ones.  Either is rare enough to be
        worth a look into the log.
        """
        first, last = queue.files.first, queue.files.last
        if first is None or last is None:
            return
        unit = queue.unit_at(first.first_offset // UNIT_SIZE)
        lacks_front = unit is None or unit[0] > log_min or unit[1] == PRE_BLANK_SIZE
        if first.first_offset > 0 and lacks_front:
            self._mark_hole(queue, log_min)
        elif last.is_full:
            self._mark_hole(queue, queue.max_physical_offset)

    def _mark_hole(self, queue: StoredQueue, start: int) -> None:
        """Have a queue filled from ``start``; from the log's start it is made anew."""
        if start <= self._log.min_offset:
            queue.destroy()
        key = (queue.topic, queue.queue_id)
        self._holed[key] = start

    def _mark_all(self, log_min: int) -> None:
        for queue in self._queues:
            last = queue.unit_at(queue.max_offset - 1) if not queue.is_empty else None
            self._holed[(queue.topic, queue.queue_id)] = (
                last[0] + last[1] if last is not None else log_min
            )
        self._fill_unknown = True

    def _cut_index(self, start: int) -> None:
        """Leave in the index only what is known to be whole, and note where to go on."""
        index = self._index
        if index is None:
            return
        log_min = self._log.min_offset
        if self._marks is not None and self._cut_index_at_marks(self._marks):
            self._index_after = start - 1
            return
        if not self.report.clean_exit:
            keep = 0
            for file in index.files:
                # At the very time of the checkpoint more entries may have come after it.
                if not file.is_full or file.end_time >= self._checkpoint.index:
                    break
                keep += 1
            self.report.index_files_dropped += len(index.files) - keep
            index.drop_from(keep)
        if index.files and (not self.report.clean_exit or index.lacks_files):
            # The keys of its last message may go on in a file that was dropped.
            self._cut_index_below(index.files[-1].end_offset)
        self._index_after = log_min - 1
        if not index.files:
            return
        if index.files[0].begin_offset > log_min and self._is_keyed_before(
            index.files[0].begin_offset
        ):
            self.report.problems.append("the index does not reach back to the log's start")
            index.destroy()
            return
        self._index_after = index.end_offset

    def _cut_index_below(self, physical_offset: int) -> None:
        """Drop the entries of records from ``physical_offset`` on."""
        index = self._index
        assert index is not None
        while index.files and index.files[-1].begin_offset >= physical_offset:
            index.drop_from(len(index.files) - 1)
            self.report.index_files_dropped += 1
        if index.files:
            last = index.files[-1]
            last.cut(last.count_below(physical_offset), self._store_time_of)
        index.forget_last()

    def _cut_index_at_marks(self, marks: CheckpointMarks) -> bool:
        index = self._index
        assert index is not None
        if marks.index_file == 0:
            self.report.index_files_dropped += len(index.files)
            index.destroy()
            return True
        names = [file.name for file in index.files]
        if marks.index_file not in names:
            self.report.problems.append(f"index file {marks.index_file} is missing")
            return False
        number = names.index(marks.index_file)
        self.report.index_files_dropped += len(names) - number - 1
        index.drop_from(number + 1)
        file = index.files[number]
        # Looking at every slot takes a moment; after a clean stop the counters prove the file.
        if not (self.report.clean_exit and file.count == marks.index_count):
            count = min(max(marks.index_count, 1), file.entries)
            file.cut(count, self._store_time_of, slot_count=marks.index_slot_count)
        return True

    def _store_time_of(self, physical_offset: int) -> int:
        record = self._record_at(physical_offset)
        return record.store_timestamp if record is not None else 0

    def _is_keyed_before(self, offset: int) -> bool:
        """Whether a record below ``offset`` has keys, so that the index should know it."""
        for record in self._records(self._log.min_offset, offset):
            if self._request(record).keys and transaction_type(record.sys_flag) != (
                TRANSACTION_ROLLBACK
            ):
                return True
        return False

    # -- scanning ----------------------------------------------------------------------------

    def _record_at(self, physical_offset: int) -> CheckedRecord | None:
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

    def _request(self, record: CheckedRecord) -> DispatchRequest:
        return request_from_record(
            record,
            delay_levels=self._delay_levels,
            multi_dispatch=self._config.enable_multi_dispatch,
            lmq=self._config.enable_lmq,
        )

    def _walk(self, start: int, *, check_crc: bool) -> Iterator[CheckedRecord]:
        """Yield good records from ``start``; ``self._stopped`` tells where and why it ended."""
        position_after = start
        previous_end: int | None = None
        for file in self._log.files_from(start):
            if previous_end is not None and file.first_offset != previous_end:
                self._stopped = _LogEnd(position_after, f"{file.path.name} does not follow")
                return
            previous_end = file.end_offset
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
                    if offset >= self._torn_from and is_torn(record, view, offset - first_offset):
                        self._stopped = _LogEnd(offset, "torn by a power failure")
                        return
                    offset += record.size
                    position_after = offset
                    yield record
            except EndOfRecords:
                self._stopped = _LogEnd(offset, "")
                return
            except CorruptRecordError as error:
                self._stopped = _LogEnd(offset, error.reason)
                return
        self._stopped = _LogEnd(position_after, "")

    def _records(self, start: int, end: int) -> Iterator[CheckedRecord]:
        for record in self._walk(start, check_crc=False):
            if record.physical_offset >= end:
                return
            yield record

    def _scan(self, start: int) -> _LogEnd:
        """Check every record from ``start`` on and dispatch it to the views."""
        self._stopped = _LogEnd(start, "")
        report = self.report
        dispatch, request = self._dispatch, self._request
        count = 0
        for record in self._walk(start, check_crc=self._config.check_crc_on_recover):
            count += 1
            one = request(record)
            if self._dispatched_to is not None:
                self._note_waiting(one)
                continue
            try:
                dispatch(one)
            except DiskFullError as error:
                self._stop_dispatch(record.physical_offset, error)
                self._note_waiting(one)
        report.records_scanned = count
        try:
            self._insert_batch()
        except DiskFullError as error:
            self._stop_dispatch(self._stopped.offset, error)
        return self._stopped

    def _stop_dispatch(self, physical_offset: int, error: DiskFullError) -> None:
        """Leave the rest to the dispatcher: a store on a full disk must open to be cleaned.

        Everything from the first record that is not in all views is taken out of them again.
        """
        if self._index_batch:
            physical_offset = min(physical_offset, self._index_batch[0].physical_offset)
            self._index_batch = []
        self._dispatched_to = physical_offset
        self.report.problems.append(f"dispatch waits at {physical_offset}: {error}")
        self._cut_behind(physical_offset)

    def _note_waiting(self, request: DispatchRequest) -> None:
        """Remember the queue offsets of a record whose units are not there yet."""
        if not request.in_queue:
            return
        self.next_offsets[(request.topic, request.queue_id)] = request.queue_offset + 1
        for slot in request.multi:
            self.next_offsets[(slot.name, slot.queue_id)] = slot.queue_offset + 1

    def _dispatch(self, request: DispatchRequest) -> None:
        if request.in_queue:
            self._dispatch_queue(request, request.topic, request.queue_id, request.queue_offset)
            for slot in request.multi:
                self._dispatch_queue(request, slot.name, slot.queue_id, slot.queue_offset)
        if self._index_in_scan and request.physical_offset > self._index_after:
            self._dispatch_index(request)

    def _dispatch_queue(
        self, request: DispatchRequest, topic: str, queue_id: int, queue_offset: int
    ) -> None:
        key = (topic, queue_id)
        if key in self._holed:
            return
        queue = self._queues.find(key)
        if queue is None:
            if not self._is_topic(topic, request.physical_offset):
                return
            queue = self._queues.get_or_make(topic, queue_id)
        end = queue.max_offset
        if queue_offset == end and end:
            self._append_unit(queue, request, queue_offset)
            return
        if queue_offset > end:
            last = queue.unit_at(end - 1) if end else None
            hole_start = last[0] + last[1] if last is not None else self._log.min_offset
            self._mark_hole(queue, hole_start)
            return
        if queue_offset < end:
            unit = queue.unit_at(queue_offset)
            if queue_offset == 0 and unit is not None and unit[0] < request.physical_offset:
                queue.destroy()  # The topic was deleted and made anew.
                self._append_unit(queue, request, queue_offset)
            elif unit is None or unit[0] != request.physical_offset:
                self.report.problems.append(
                    f"queue {topic}/{queue_id}: unit {queue_offset} leads elsewhere; made anew"
                )
                self._mark_hole(queue, self._log.min_offset)
            return
        self._append_unit(queue, request, queue_offset)

    def _is_topic(self, topic: str, physical_offset: int) -> bool:
        """Whether a queue of that name can exist; no checksum covers the topic of a record."""
        if is_safe_name(topic):
            return True
        self.report.problems.append(
            f"record at {physical_offset}: {topic[:32]!r} is no topic, it is in no queue"
        )
        return False

    def _append_unit(self, queue: StoredQueue, request: DispatchRequest, queue_offset: int) -> None:
        self.report.units_rebuilt += 1
        if queue.ext is None:
            queue.append(request.physical_offset, request.size, request.tags_code, queue_offset)
            return
        queue.append_with_ext(
            request.physical_offset,
            request.size,
            request.tags_code,
            queue_offset,
            request.store_timestamp,
            self._dispatcher.bitmap_of(request),
        )

    def _dispatch_index(self, request: DispatchRequest) -> None:
        assert self._index is not None
        if request.keys and transaction_type(request.sys_flag) != TRANSACTION_ROLLBACK:
            self._index_batch.append(
                tuple.__new__(IndexedMessage, (request[0], request[8], request[2], request[5]))
            )
            if len(self._index_batch) >= BATCH_COUNT_MAX:
                self._insert_batch()

    def _insert_batch(self) -> None:
        if self._index is None or not self._index_batch:
            return
        while self._index_batch:
            taken = self._index.insert(self._index_batch)
            done, self._index_batch = self._index_batch[:taken], self._index_batch[taken:]
            self.report.index_entries_rebuilt += sum(len(one.keys) for one in done)

    # -- the end of the log ------------------------------------------------------------------

    def _end_log(self, end: _LogEnd) -> None:
        report = self.report
        report.log_end = end.offset
        report.stop_reason = end.reason
        files = self._log.files
        removed = [file for file in files.snapshot() if file.first_offset > end.offset]
        report.log_files_removed = [file.path.name for file in removed]
        last = files.find(end.offset)
        if end.reason and last is not None:
            report.bytes_truncated = last.end_offset - end.offset
        if report.clean_exit and self._marks is not None and end.offset < self._marks.log_flushed:
            report.lost_ranges.append(
                f"the log ends at {end.offset}, but was flushed up to {self._marks.log_flushed}"
            )
        files.truncate(end.offset, zero=True)
        # After kill -9 what was scanned may be in the page cache only.  It counts as flushed
        # from here on, so it must be.
        for file in self._log.files_from(report.scan_start if self._marks is not None else 0):
            if self._pages_lost:
                self._write_again(file, end.offset)
            file.region.sync()
        files.flushed_where = files.committed_where = end.offset
        self._log.reset_tail()
        self._note_lost_units(end.offset)

    @staticmethod
    def _write_again(file: MappedFile, end: int) -> None:
        """Make the pages of a file dirty up to the end of the log, so that a sync takes them."""
        size = min(file.size, end - file.first_offset)
        for start in range(0, size, WRITE_SIZE):
            stop = min(start + WRITE_SIZE, size)
            file.region.write(start, bytes(file.view[start:stop]))

    def _note_lost_units(self, end: int) -> None:
        """Cut what still leads behind the end: the records it led to are gone."""
        lost_to = self._cut_behind(end)
        if lost_to > end:
            self.report.lost_ranges.append(f"records from {end} to {lost_to} are lost")

    def _cut_behind(self, end: int) -> int:
        """Take what leads behind ``end`` out of the views; return how far that went."""
        reached = -1
        for queue in self._queues:
            if queue.max_physical_offset > end:
                reached = max(reached, queue.max_physical_offset)
                self.report.units_cut += queue.cut(queue.find_end(end, self._unit_check(queue)))
        if self._index is not None and self._index.end_offset >= end:
            self._cut_index_below(end)
        return reached

    # -- holes -------------------------------------------------------------------------------

    def _fill_holes(self, start: int) -> None:
        """Dispatch again, to queues with holes and to the index, what lies before the start."""
        report = self.report
        feeds_index = self._index is not None and not self._index_in_scan
        starts = list(self._holed.values())
        if self._fill_unknown:
            starts.append(self._log.min_offset)
        if feeds_index:
            self._prove_index_end()
            starts.append(self._index_after)  # The walk must begin where a record does.
        if not starts:
            return
        report.fill_start = begin = max(min(starts), self._log.min_offset)
        holed, self._holed = self._holed, {}
        for record in self._records(begin, report.log_end):
            request = self._request(record)
            if request.in_queue:
                self._fill(holed, request, request.topic, request.queue_id, request.queue_offset)
                for slot in request.multi:
                    self._fill(holed, request, slot.name, slot.queue_id, slot.queue_offset)
            if feeds_index and record.physical_offset > self._index_after:
                self._dispatch_index(request)
        self._insert_batch()
        report.queues_filled = sorted(f"{topic}/{queue_id}" for topic, queue_id in holed)

    def _prove_index_end(self) -> None:
        """Make the index anew if the newest record it claims to hold does not exist."""
        assert self._index is not None
        log_min = self._log.min_offset
        if log_min <= self._index_after < self.report.log_end and (
            self._record_at(self._index_after) is None
        ):
            self.report.problems.append(
                f"the index ends at {self._index_after}, where no record starts"
            )
            self._index.destroy()
            self._index_after = log_min - 1

    def _fill(
        self,
        holed: dict[tuple[str, int], int],
        request: DispatchRequest,
        topic: str,
        queue_id: int,
        queue_offset: int,
    ) -> None:
        hole_start = holed.get((topic, queue_id))
        if hole_start is None:
            if not self._fill_unknown or self._queues.get(topic, queue_id) is not None:
                return
            if not self._is_topic(topic, request.physical_offset):
                return
            holed[(topic, queue_id)] = hole_start = self._log.min_offset
        if request.physical_offset < hole_start:
            return
        queue = self._queues.get_or_make(topic, queue_id)
        if queue_offset == 0 and 0 <= queue.max_physical_offset <= request.physical_offset:
            queue.destroy()  # The topic was deleted and made anew.
        if queue_offset < queue.max_offset:
            return
        missing = queue_offset - queue.max_offset
        if missing > 0 and not queue.is_empty:
            self.report.problems.append(
                f"queue {topic}/{queue_id}: the log has no records for units "
                f"{queue.max_offset} to {queue_offset - 1}"
            )
            if missing > UNIT_GAP_MAX:
                return
            queue.fill_blank(queue_offset)
        self._append_unit(queue, request, queue_offset)

    # -- the end -----------------------------------------------------------------------------

    def _finish(self) -> None:
        log_min = self._log.min_offset
        for queue in self._queues:
            queue.correct_min_offset(log_min)
            if self._marks is None:
                # Nobody vouches for what an earlier process wrote; it may not be synced.
                for file in queue.files.snapshot():
                    file.region.sync()
        if self._index is not None:
            self._index.write_headers()
        waits = self._dispatched_to
        self._dispatcher.start_at(self.report.log_end if waits is None else waits)
