"""Recovery of the key index: cut back to what is whole, and fed again from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.format.stored.checkpoint import NO_INDEX
from flintmq.format.sys_flag import TRANSACTION_ROLLBACK, transaction_type
from flintmq.store.dispatch import BATCH_COUNT_MAX
from flintmq.store.views.key_index import IndexedMessage

if TYPE_CHECKING:
    from flintmq.format.stored.checkpoint import Checkpoint, CheckpointMarks
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.log.dispatch_request import DispatchRequest
    from flintmq.store.log.record_walk import LogWalk
    from flintmq.store.recovery.bulk_records import SortedKeys
    from flintmq.store.recovery.recovery_report import RecoveryReport
    from flintmq.store.views.key_index import KeyIndex


class IndexRecovery:
    """Brings the index in line with the log.  Entries go in by ascending offset only."""

    def __init__(
        self, index: KeyIndex, log: CommitLog, walk: LogWalk, report: RecoveryReport
    ) -> None:
        self._index = index
        self._log = log
        self._walk = walk
        self._report = report
        self._batch: list[IndexedMessage] = []
        self.after = -1
        """The newest record that the index is known to hold; it goes on behind it."""

    def cut(self, start: int, checkpoint: Checkpoint, marks: CheckpointMarks | None) -> None:
        """Leave in the index only what is known to be whole, and note where to go on."""
        index, report = self._index, self._report
        log_min = self._log.min_offset
        if marks is not None and self._cut_at_marks(marks):
            self.after = start - 1
            return
        if not report.clean_exit:
            keep = 0
            for file in index.files:
                # At the very time of the checkpoint more entries may have come after it.
                if not file.is_full or file.end_time >= checkpoint.index:
                    break
                keep += 1
            report.index_files_dropped += len(index.files) - keep
            index.drop_from(keep)
        if index.files and (not report.clean_exit or index.lacks_files):
            # The keys of its last message may go on in a file that was dropped.
            self.cut_below(index.files[-1].end_offset)
        self.after = log_min - 1
        if not index.files:
            return
        if index.files[0].begin_offset > log_min and self._is_keyed_before(
            index.files[0].begin_offset
        ):
            report.add_problem("the index does not reach back to the log's start")
            index.destroy()
            return
        self.after = index.end_offset

    def _cut_at_marks(self, marks: CheckpointMarks) -> bool:
        index, report = self._index, self._report
        if marks.index_file == 0:
            report.index_files_dropped += len(index.files)
            index.destroy()
            return True
        if marks.index_file == NO_INDEX:
            return False
        names = [file.name for file in index.files]
        if marks.index_file not in names:
            report.add_problem(f"index file {marks.index_file} is missing")
            return False
        number = names.index(marks.index_file)
        report.index_files_dropped += len(names) - number - 1
        index.drop_from(number + 1)
        file = index.files[number]
        # Looking at every slot takes a moment; after a clean stop the counters prove the file.
        if not (report.clean_exit and file.count == marks.index_count):
            count = min(max(marks.index_count, 1), file.entries)
            file.cut(count, self._walk.store_time_of, slot_count=marks.index_slot_count)
            # A message that a full disk stopped half-way in comes again, with all its keys.
            self.cut_below(marks.dispatched)
            if index.files and index.files[-1].count <= 1:
                index.drop_from(len(index.files) - 1)
        return True

    def _is_keyed_before(self, offset: int) -> bool:
        """Whether a record below ``offset`` has keys, so that the index should know it."""
        return any(
            _is_indexed(self._walk.request(record))
            for record in self._walk.records(self._log.min_offset, offset)
        )

    def cut_below(self, physical_offset: int) -> None:
        """Drop the entries of records from ``physical_offset`` on."""
        index = self._index
        if index.end_offset < physical_offset:
            return
        while index.files and index.files[-1].begin_offset >= physical_offset:
            index.drop_from(len(index.files) - 1)
            self._report.index_files_dropped += 1
        if index.files:
            last = index.files[-1]
            last.cut(last.count_below(physical_offset), self._walk.store_time_of)
        index.forget_last()

    def cut_damaged(self, physical_offset: int) -> None:
        """Drop the entries of records from damage on; those behind it are entered again."""
        if self.after >= physical_offset:
            self.cut_below(physical_offset)
            self.after = self._index.end_offset if self._index.files else self._log.min_offset - 1

    def prove_end(self) -> None:
        """Make the index anew if the newest record it claims to hold does not exist."""
        log_min = self._log.min_offset
        if log_min <= self.after < self._report.log_end and (
            self._walk.record_at(self.after) is None
        ):
            self._report.add_problem(f"the index ends at {self.after}, where no record starts")
            self._index.destroy()
            self.after = log_min - 1

    def add(self, request: DispatchRequest) -> None:
        """Take a record in, if it is not in yet; many are inserted together.

        Raises:
            DiskFullError: the index has no space; ``give_up`` tells what is not in.
        """
        if request.physical_offset > self.after and _is_indexed(request):
            self._batch.append(
                IndexedMessage(
                    request.topic, request.keys, request.physical_offset, request.store_timestamp
                )
            )
            if len(self._batch) >= BATCH_COUNT_MAX:
                self.insert()

    def takes_many(self, physical_offset: int) -> bool:
        """Whether the records from an offset on are new to the index, all of them."""
        return self._index.end_offset < physical_offset

    def add_many(self, keys: SortedKeys) -> None:
        """Take in the keys of many records, as far as they are not in yet; see `takes_many`.

        Raises:
            DiskFullError: the index has no space; some of the keys may be in.
        """
        self.insert()
        newer = keys.behind(self.after)
        self._index.insert_logged(newer)
        self._report.index_entries_rebuilt += newer.count

    def insert(self) -> None:
        """Insert what was added."""
        while self._batch:
            taken = self._index.insert(self._batch)
            done, self._batch = self._batch[:taken], self._batch[taken:]
            self._report.index_entries_rebuilt += sum(len(one.keys) for one in done)

    def give_up(self, physical_offset: int) -> int:
        """Forget what was added and is not in; return the lower of its start and the offset."""
        if self._batch:
            physical_offset = min(physical_offset, self._batch[0].physical_offset)
            self._batch = []
        return physical_offset


def _is_indexed(request: DispatchRequest) -> bool:
    return bool(request.keys) and transaction_type(request.sys_flag) != TRANSACTION_ROLLBACK
