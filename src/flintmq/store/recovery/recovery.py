"""Recovery: from whatever a stop left on the disk to a store without holes.

The log is the truth and the views are derived from it.  Recovery

1. loads what is there and decides where to start: at the checkpoint's exact marks, or, when a
   Java broker wrote the store, at the file that broker would choose;
2. surveys the log from there: checks every record, decides which damage to step over and where
   the log ends, and refuses the start if it is told to do so rather than go on with damage;
3. sets aside what will be cut off although whole records stand in it;
4. cuts queues and index back to the start, since nothing after it is known to be whole, and
   dispatches every record from there on again;
5. ends the log behind the last good record, and zeroes what follows;
6. fills holes: a record that is ahead of its queue proves that units are missing before it, a
   census that differs from the marks proves that whole queues are.

Nothing is written before the survey is done.  Java's recovery ends the log at the first damage,
trusts the checkpoint and dispatches only from the start on; the holes stay.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.format.stored.record import CheckedRecord
from flintmq.store.errors import DiskFullError
from flintmq.store.files.unsynced import Unsynced
from flintmq.store.log.record_walk import OFFSET_MAX, LogEnd, LogWalk
from flintmq.store.recovery.fast_walk import FastWalk, load_bulk_records
from flintmq.store.recovery.index_repair import IndexRecovery
from flintmq.store.recovery.log_survey import LogSurvey, warn_of_damage
from flintmq.store.recovery.queue_repair import QueueRecovery
from flintmq.store.recovery.recovery_progress import RecoveryProgress
from flintmq.store.recovery.recovery_report import RecoveryReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.format.stored.checkpoint import Checkpoint, CheckpointMarks
    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.dispatch import Dispatcher
    from flintmq.store.files.interface import Files
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.log.dispatch_request import DispatchRequest
    from flintmq.store.recovery.bulk_records import BulkRecords, SoundRecords, UnitSlice
    from flintmq.store.views.key_index import KeyIndex
    from flintmq.store.views.queue_table import QueueTable, StoredQueue

logger = logging.getLogger(__name__)

FILES_CHECKED_AFTER_CLEAN_STOP: Final = 3
"""Without marks, this many files of the log are checked again, as RocketMQ does."""

CHECKPOINT_MARGIN_MS: Final = 3000
"""RocketMQ's allowance between the checkpoint's times and the data they speak of."""

WRITE_SIZE: Final = 1 << 20

SINGLE_RECORDS_MAX: Final = 50_000
"""Records that are judged one by one, in about half a second, before machine code is loaded."""


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
        machine_ran_on: bool = False,
        damaged_queues: Iterable[StoredQueue] = (),
        files: Files,
        clock: Clock,
        progress: RecoveryProgress | None = None,
    ) -> None:
        """Take over what was loaded; ``damaged_queues`` were, and are empty now.

        ``pages_lost`` says that a sync has failed before: bytes that are seen may not be on the
        disk, and the kernel takes them for clean.  ``machine_ran_on`` says that no power failure
        can have torn anything.
        """
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._delay_levels = delay_levels
        self._pages_lost = pages_lost
        self._machine_ran_on = machine_ran_on
        self._files = files
        self._clock = clock
        self.report = report = RecoveryReport(clean_exit=clean_exit)
        self._walk = walk = LogWalk(config, log, delay_levels=delay_levels)
        walk.torn_from = OFFSET_MAX if clean_exit else 0
        self._fast_walk = FastWalk(
            walk, self._load_bulk_records, single_records_max=SINGLE_RECORDS_MAX
        )
        self._progress = progress or RecoveryProgress(clock)
        self._unsynced = Unsynced(files, queues.tops)
        self._for_queues = QueueRecovery(
            queues, log, walk, report, bitmap_of=dispatcher.bitmap_of, unsynced=self._unsynced
        )
        self._for_index = IndexRecovery(index, log, walk, report) if index is not None else None
        self._indexes_in_scan = False
        """Whether the index goes on where the scan starts; else it is fed when holes are."""
        for queue in damaged_queues:
            self._for_queues.mark_hole(queue, 0)
        self._marks: CheckpointMarks | None = None
        """The marks of the checkpoint, if the log still has the place that they name."""
        marks = checkpoint.marks
        self._flushed_end = 0 if marks is None else marks.log_flushed
        """The log was once on the disk up to here."""
        self._dispatched_to: int | None = None
        """Where a full disk has stopped the dispatch, if it has."""
        self.next_offsets: dict[tuple[str, int], int] = {}
        """For queues that a full disk keeps back, the offset of the next message."""

    def run(self) -> RecoveryReport:
        """Recover, and return what was done."""
        began = self._clock.monotonic()
        report = self.report
        report.log_start = self._log.min_offset
        report.scan_start = start = self._choose_start()
        survey = LogSurvey(
            self._config,
            self._log,
            self._queues,
            self._walk,
            self._fast_walk,
            progress=self._progress,
            files=self._files,
            clock=self._clock,
        )
        end = survey.run(
            start,
            report,
            flushed_time=0 if self._marks is not None else self._checkpoint.physic,
            machine_ran_on=self._machine_ran_on,
            flushed_end=self._flushed_end,
        )
        self._for_queues.note_damaged(report.damaged_ranges)
        self._cut_views(start, end)
        self._scan(start, end)
        self._end_log(end)
        self._fill_holes()
        if self._dispatched_to is None:
            self._for_queues.keep_offsets()
        self._finish()
        report.duration_ms = int((self._clock.monotonic() - began) * 1000)
        logger.info("recovered: %s", report.summary)
        warn_of_damage(report, self._config.root)
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
            if self._has_place(start):
                self._marks = marks
                self._walk.torn_from = max(self._walk.torn_from, marks.log_flushed)
                report.start_reason = "exact marks"
                return max(start, self._log.min_offset)
            report.add_problem(f"the marks name {start}, where no record starts")
        for gap in self._log.files.check_continuity():
            report.add_problem(f"gap in the log: {gap}")
        if report.clean_exit:
            first = files[max(0, len(files) - FILES_CHECKED_AFTER_CLEAN_STOP)]
            report.start_reason = "last files after a clean stop"
            return first.first_offset
        return self._start_by_times(files)

    def _start_by_times(self, files: list[MappedFile]) -> int:
        """Return the start of the newest file that is older than the checkpoint's times."""
        checkpoint = self._checkpoint
        limit = max(0, min(checkpoint.physic, checkpoint.logics) - CHECKPOINT_MARGIN_MS)
        if self._config.index_enabled and self._config.index_safe:
            limit = min(limit, checkpoint.index)
        for file in reversed(files):
            if 0 < self._walk.store_time_of(file.first_offset) <= limit:
                self.report.start_reason = "file before the checkpoint's times"
                return file.first_offset
        self.report.start_reason = "oldest file"
        return files[0].first_offset

    def _has_place(self, offset: int) -> bool:
        """Whether the log still has the place ``offset``; after it anything may be torn."""
        if offset <= self._log.min_offset or self._log.files.find(offset) is not None:
            return True
        last = self._log.files.last
        return last is not None and offset == last.end_offset

    def _cut_views(self, start: int, end: LogEnd) -> None:
        # After a clean stop units behind the start are kept if the scan proves them right: what
        # a Java broker has put into the extension could not be made again.
        # Units that lead into damage would serve it, so behind the first damage none is kept.
        keep_below = self._log.files.max_wrote if self.report.clean_exit else start
        if self.report.damaged_ranges:
            keep_below = min(keep_below, self.report.damaged_ranges[0].start)
        self._for_queues.cut(keep_below, self._marks, log_end=end.offset)
        if self._for_index is not None:
            self._for_index.cut(start, self._checkpoint, self._marks)
            if self.report.damaged_ranges:
                self._for_index.cut_damaged(self.report.damaged_ranges[0].start)
            self._indexes_in_scan = self._for_index.after >= start - 1

    # -- scanning ----------------------------------------------------------------------------

    def _scan(self, start: int, end: LogEnd) -> None:
        """Dispatch every record that the survey has found good."""
        for piece in self._pieces(start, end.offset):
            if isinstance(piece, CheckedRecord):
                self._dispatch(piece)
            else:
                self._dispatch_many(piece)
            count = self.report.records_scanned
            self._progress.note("dispatched", count, piece.physical_offset, end.offset)
        if self._for_index is not None:
            try:
                self._for_index.insert()
            except DiskFullError as error:
                self._stop_dispatch(end.offset, error)

    def _dispatch(self, record: CheckedRecord) -> None:
        """Put a record into the views, or note that it waits for them."""
        self.report.records_scanned += 1
        request = self._walk.request(record)
        if self._dispatched_to is not None:
            self._note_waiting(request)
            return
        try:
            self._for_queues.add(request)
            if self._indexes_in_scan and self._for_index is not None:
                self._for_index.add(request)
        except DiskFullError as error:
            self._stop_dispatch(record.physical_offset, error)
            self._note_waiting(request)

    def _dispatch_many(self, records: SoundRecords) -> None:
        """Put many records into the views at once, or one by one where that does not go."""
        if self._dispatched_to is None:
            for_index = self._for_index if self._indexes_in_scan else None
            try:
                if _add_many(records, self._for_queues.add_units, for_index):
                    self.report.records_scanned += len(records)
                    return
            except DiskFullError as error:
                self._stop_dispatch(records.physical_offset, error)
        for record in records:
            self._dispatch(record)

    def _pieces(self, start: int, end: int) -> Iterator[SoundRecords | CheckedRecord]:
        """Yield the records between two offsets, many at a time where the views take that.

        An extension of the queues takes single ones only.
        """
        if self._fast_walk.is_bulk and not self._queues.has_ext:
            return self._fast_walk.pieces(start, end)
        return self._walk.records(start, end)

    def _load_bulk_records(self) -> BulkRecords | None:
        if not self._config.machine_code:
            return None
        return load_bulk_records(
            delay_levels=self._delay_levels,
            multi=self._config.enable_multi_dispatch,
            lmq=self._config.enable_lmq,
            remaining_size=self._log.files.max_wrote - self.report.scan_start,
        )

    def _stop_dispatch(self, physical_offset: int, error: DiskFullError) -> None:
        """Leave the rest to the dispatcher: a store on a full disk must open to be cleaned.

        Everything from the first record that is not in all views is taken out of them again.
        The dispatcher knows no way past damage, so behind that the start has to fail.
        """
        if any(damaged.end > physical_offset for damaged in self.report.damaged_ranges):
            raise error
        if self._for_index is not None:
            physical_offset = self._for_index.give_up(physical_offset)
        self._dispatched_to = physical_offset
        self.report.add_problem(f"dispatch waits at {physical_offset}: {error}")
        self._cut_behind(physical_offset)

    def _note_waiting(self, request: DispatchRequest) -> None:
        """Remember the queue offsets of a record whose units are not there yet."""
        if not request.in_queue:
            return
        self.next_offsets[(request.topic, request.queue_id)] = request.queue_offset + 1
        for slot in request.multi:
            self.next_offsets[(slot.name, slot.queue_id)] = slot.queue_offset + 1

    def _cut_behind(self, end: int) -> int:
        """Take what leads behind ``end`` out of the views; return how far that went."""
        if self._for_index is not None:
            self._for_index.cut_below(end)
        return self._for_queues.cut_behind(end)

    # -- the end of the log ------------------------------------------------------------------

    def _end_log(self, end: LogEnd) -> None:
        report = self.report
        report.log_end = end.offset
        report.stop_reason = end.reason
        files = self._log.files
        removed = [file for file in files.snapshot() if file.first_offset > end.offset]
        report.log_files_removed = [file.path.name for file in removed]
        last = files.find(end.offset)
        if end.reason and last is not None:
            report.bytes_truncated = last.end_offset - end.offset
        known_end = self._walk.behind_blank(end.offset)
        if known_end < self._flushed_end and not report.records_set_aside:
            report.lost_ranges.append(
                f"the log ends at {end.offset}, but was flushed up to {self._flushed_end}"
            )
        files.truncate(end.offset, zero=True)
        # After kill -9 what was scanned may be in the page cache only.  It counts as flushed
        # from here on, so it must be.
        for file in self._log.files_from(report.scan_start if self._marks is not None else 0):
            if self._pages_lost:
                _write_again(file, end.offset)
            file.region.sync()
        files.flushed_where = files.committed_where = end.offset
        self._log.reset_tail()
        lost_to = max(self._cut_behind(end.offset), self._for_queues.reach)
        if lost_to > known_end and not report.records_set_aside:
            report.lost_ranges.append(f"records from {end.offset} to {lost_to} are lost")

    # -- holes -------------------------------------------------------------------------------

    def _fill_holes(self) -> None:
        """Dispatch again, to queues with holes and to the index, what lies before the start."""
        for_queues = self._for_queues
        for_index = None if self._indexes_in_scan else self._for_index
        starts = list(for_queues.holed.values())
        if for_queues.fill_unknown:
            starts.append(self._log.min_offset)
        if for_index is not None:
            for_index.prove_end()
            starts.append(for_index.after)  # The walk must begin where a record does.
        if not starts:
            return
        report = self.report
        report.fill_start = begin = max(min(starts), self._log.min_offset)
        count = 0
        for piece in self._pieces(begin, report.log_end):
            if isinstance(piece, CheckedRecord):
                self._fill(piece, for_index)
                count += 1
            else:
                if not _add_many(piece, for_queues.fill_units, for_index):
                    for record in piece:
                        self._fill(record, for_index)
                count += len(piece)
            self._progress.note("filled in", count, piece.physical_offset, report.log_end)
        if for_index is not None:
            for_index.insert()
        report.queues_filled = sorted(f"{topic}/{queue_id}" for topic, queue_id in for_queues.holed)

    def _fill(self, record: CheckedRecord, for_index: IndexRecovery | None) -> None:
        request = self._walk.request(record)
        self._for_queues.fill(request)
        if for_index is not None:
            for_index.add(request)

    def _finish(self) -> None:
        log_min = self._log.min_offset
        for queue in self._queues:
            if not queue.is_empty and not queue.has_units:
                queue.empty(self._unsynced)
            queue.correct_min_offset(log_min)
            if self._marks is None:
                # Nobody vouches for what an earlier process wrote; it may not be synced.
                for file in queue.files.snapshot():
                    self._unsynced.add_file(file)
        self._unsynced.sync()
        if self._index is not None:
            self._index.write_headers()
        waits = self._dispatched_to
        self._dispatcher.start_at(self.report.log_end if waits is None else waits)


def _add_many(
    records: SoundRecords,
    add_units: Callable[[UnitSlice], None],
    for_index: IndexRecovery | None,
) -> bool:
    """Put many records into the views, if those can take them all at once; return whether."""
    if for_index is not None and not for_index.takes_many(records.physical_offset):
        return False
    found = records.derive()
    if found is None:
        return False
    for units in found.slices:
        add_units(units)
    if for_index is not None:
        for_index.add_many(found.keys)
    return True


def _write_again(file: MappedFile, end: int) -> None:
    """Make the pages of a file dirty up to the end of the log, so that a sync takes them."""
    size = min(file.size, end - file.first_offset)
    for start in range(0, size, WRITE_SIZE):
        stop = min(start + WRITE_SIZE, size)
        file.region.write(start, bytes(file.view[start:stop]))
