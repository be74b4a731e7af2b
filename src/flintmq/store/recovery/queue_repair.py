"""Recovery of the consume queues: cut back to what is proven, fed again, holes filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE, UNIT, UNIT_SIZE
from flintmq.format.stored.consume_queue_ext import is_address
from flintmq.format.stored.record_layout import RECORD_SIZE_MIN
from flintmq.model.topics import DUE_TIME_TOPICS
from flintmq.store.files.interface import is_safe_name
from flintmq.store.log.dispatch_request import DispatchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flintmq.format.stored.checkpoint import CheckpointMarks
    from flintmq.store.files.unsynced import Unsynced
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.log.record_walk import LogWalk
    from flintmq.store.recovery.bulk_records import UnitSlice
    from flintmq.store.recovery.damage import LogDamage
    from flintmq.store.recovery.recovery_report import RecoveryReport
    from flintmq.store.views.queue_table import QueueTable, StoredQueue

UNIT_GAP_MAX: Final = 1_000_000
"""Records that are lost leave blank units; a larger gap is taken for a damaged queue offset."""

LOOKED_AT_COUNT: Final = 64
"""Units of a queue whose extension is looked at after a crash, besides the last one."""

LOST_SIZE_MAX: Final = 1 << 40
"""A unit that leads further behind the end of the log is garbage, and tells of no lost record."""


def _is_any(_queue_offset: int, _physical_offset: int, _size: int) -> bool:
    """Take a unit for true whatever it leads to."""
    return True


def _request_of(found: UnitSlice, queue_offset: int, units: memoryview) -> DispatchRequest:
    """Return what a queue needs to know of the record of the first of these units."""
    physical_offset, size, tags_code = UNIT.unpack_from(units)
    return DispatchRequest(
        found.topic,
        found.queue_id,
        physical_offset,
        size,
        tags_code,
        store_timestamp=0,
        queue_offset=queue_offset,
        sys_flag=0,
        keys=(),
        properties=b"",
        multi=(),
    )


class QueueRecovery:
    """Brings the queues in line with the log.

    A record that is ahead of its queue proves that units are missing before it: such a queue is
    *holed*.  It takes no more units in the scan, and is filled afterwards from its last proven
    unit on.
    """

    def __init__(
        self,
        queues: QueueTable,
        log: CommitLog,
        walk: LogWalk,
        report: RecoveryReport,
        *,
        bitmap_of: Callable[[DispatchRequest], bytes | None],
        unsynced: Unsynced,
    ) -> None:
        self._unsynced = unsynced
        self._queues = queues
        self._log = log
        self._walk = walk
        self._report = report
        self._bitmap_of = bitmap_of
        self.holed: dict[tuple[str, int], int] = {}
        """Queues with missing units, and the log offset from which to fill them."""
        self.fill_unknown = False
        """Whether queues that are not on disk at all must be looked for in the whole log."""
        self.reach = -1
        """How far units led that were cut off because the log does not reach so far."""
        self._next_offsets: dict[tuple[str, int], int] = {}
        """For queues whose units lead into damage, the offset behind the last of them."""

    # -- damage ------------------------------------------------------------------------------

    def note_damaged(self, ranges: Iterable[LogDamage]) -> None:
        """Remember which offsets were given to records that are damaged now.

        A consumer has read them; another message that got such an offset would never be read.
        """
        for start, end, _ in ranges:
            for queue in self._queues:
                following = queue.find_end(end, _is_any)
                last = queue.unit_at(following - 1) if following else None
                if last is not None and start <= last[0] < end:
                    self._next_offsets[(queue.topic, queue.queue_id)] = following

    def keep_offsets(self) -> None:
        """End queues with blank units where the records of their last units are damaged."""
        for (topic, queue_id), following in self._next_offsets.items():
            queue = self._queues.get_or_make(topic, queue_id)
            if 0 < following - queue.max_offset <= UNIT_GAP_MAX:
                queue.fill_blank(following)
                queue.refresh()  # Blank units lead nowhere.

    # -- cutting -----------------------------------------------------------------------------

    def cut(self, keep_below: int, marks: CheckpointMarks | None, *, log_end: int) -> None:
        """Leave only units that are proven and lead below an offset; see what is missing then.

        Units that lead behind ``log_end`` tell of records that are lost: `reach` has how far.
        """
        for queue in self._queues:
            if queue.is_empty:
                continue
            end = queue.find_end(keep_below, self._unit_check(queue))
            self._note_reach(queue, end, log_end)
            self._report.units_cut += queue.cut(end, self._unsynced)
            if not self._has_own_extension(queue):
                self._report.add_problem(
                    f"queue {queue.topic}/{queue.queue_id}: its extension is that of other "
                    "messages; made anew"
                )
                self.mark_hole(queue, self._log.min_offset)
            elif marks is None:
                self._suspect(queue)
        if marks is not None:
            census = self._queues.census
            if census != (marks.queue_count, marks.unit_total):
                self._report.add_problem(
                    f"{census.queue_count} queues with {census.unit_total} units on disk, "
                    f"the checkpoint counted {marks.queue_count} with {marks.unit_total}"
                )
                self._mark_all()

    def _note_reach(self, queue: StoredQueue, unit_end: int, log_end: int) -> None:
        """Note how far the units from ``unit_end`` on lead, if that is behind ``log_end``."""
        size_max = self._log.file_size

        def is_possible(number: int) -> bool:
            unit = queue.unit_at(number)
            return (
                unit is not None
                and RECORD_SIZE_MIN <= unit[1] <= size_max
                and 0 <= unit[0] < log_end + LOST_SIZE_MAX
            )

        # Behind the last unit are only zeros.
        low, high = unit_end, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if is_possible(middle) else (low, middle)
        last = queue.unit_at(low - 1) if low > unit_end else None
        if last is not None and last[0] >= log_end:
            self.reach = max(self.reach, last[0] + last[1])

    def cut_behind(self, end: int) -> int:
        """Drop the units that lead behind ``end``; return how far they led."""
        reached = -1
        for queue in self._queues:
            if queue.max_physical_offset > end:
                reached = max(reached, queue.max_physical_offset)
                unit_end = queue.find_end(end, self._unit_check(queue))
                self._report.units_cut += queue.cut(unit_end, self._unsynced)
        return reached

    def _unit_check(self, queue: StoredQueue) -> Callable[[int, int, int], bool]:
        """Return a test whether a unit leads to the record that belongs there."""
        key = (queue.topic, queue.queue_id)

        def is_true(queue_offset: int, physical_offset: int, size: int) -> bool:
            if physical_offset < self._log.min_offset:
                return True  # The record is gone; what led to it can only have been right.
            record = self._walk.record_at(physical_offset)
            if record is None or record.size != size:
                return False
            request = self._walk.request(record)
            slots = [(request.topic, request.queue_id, request.queue_offset), *request.multi]
            return (*key, queue_offset) in slots

        return is_true

    def _has_own_extension(self, queue: StoredQueue) -> bool:
        """Whether units of a queue lead into its extension to what belongs to their messages.

        A power failure amid the removal of a topic that was made anew may bring back a queue of one
        life beside the extension of another.  Then hardly any unit is right, so some of them tell.
        """
        if queue.ext is None or queue.is_empty:
            return True
        numbers = {queue.min_offset, queue.max_offset - 1}
        if not self._report.clean_exit:
            count = queue.max_offset - queue.min_offset
            step = max(-(-count // LOOKED_AT_COUNT), 1)
            numbers.update(range(queue.min_offset, queue.max_offset, step))
        return all(self._is_extension_true(queue, number) for number in numbers)

    def _is_extension_true(self, queue: StoredQueue, number: int) -> bool:
        unit = queue.unit_at(number)
        if unit is None or not is_address(unit[2]) or unit[0] < self._log.min_offset:
            return True
        record = self._walk.record_at(unit[0])
        if record is None or record.size != unit[1]:
            return True  # That is judged elsewhere.
        request, found = self._walk.request(record), queue.resolve(unit[2])
        if found is None or found.store_time != request.store_timestamp:
            return False
        # What waits for a time has had the code of its tag in queues that Java has recovered.
        return queue.topic in DUE_TIME_TOPICS or found.tags_code == request.tags_code

    def _suspect(self, queue: StoredQueue) -> None:
        """Without marks to count by, look for signs that a whole file of a queue is missing.

        A queue that starts in its address space behind a kept record may lack its first files;
        one that ends with a full file may lack its last ones.  Either is rare enough to be
        worth a look into the log.
        """
        first, last = queue.files.first, queue.files.last
        if first is None or last is None:
            return
        log_min = self._log.min_offset
        unit = queue.unit_at(first.first_offset // UNIT_SIZE)
        lacks_front = unit is None or unit[0] > log_min or unit[1] == PRE_BLANK_SIZE
        if first.first_offset > 0 and lacks_front:
            self.mark_hole(queue, log_min)
        elif last.is_full:
            self.mark_hole(queue, queue.max_physical_offset)

    def mark_hole(self, queue: StoredQueue, start: int) -> None:
        """Have a queue filled from ``start``; from the log's start it is made anew."""
        if start <= self._log.min_offset:
            queue.empty(self._unsynced)
        self.holed[(queue.topic, queue.queue_id)] = start

    def _mark_all(self) -> None:
        for queue in self._queues:
            self.holed[(queue.topic, queue.queue_id)] = self._end_of(queue)
        self.fill_unknown = True

    def _end_of(self, queue: StoredQueue) -> int:
        """Return the log offset behind the record of the last unit."""
        number = queue.max_offset - 1
        last = None if queue.is_empty else queue.unit_at(number)
        while last is not None and last[1] == PRE_BLANK_SIZE:
            number -= 1
            last = queue.unit_at(number) if number >= 0 else None
        return last[0] + last[1] if last is not None else self._log.min_offset

    # -- feeding -----------------------------------------------------------------------------

    def add(self, request: DispatchRequest) -> None:
        """Have units for a record of the scan, unless its queue is holed."""
        if request.in_queue:
            self._add(request, request.topic, request.queue_id, request.queue_offset)
            for slot in request.multi:
                self._add(request, slot.name, slot.queue_id, slot.queue_offset)

    def add_units(self, found: UnitSlice) -> None:
        """Do what `add` does for many records of one queue whose offsets follow each other."""
        key = (found.topic, found.queue_id)
        offset, rest = found.first, found.units
        while rest and key not in self.holed:
            queue = self._queues.find(key)
            count = 1
            if queue is not None and 0 < offset == queue.max_offset:
                count = self._append_many(queue, offset, rest)
            else:
                self._add(_request_of(found, offset, rest), *key, offset)
            offset, rest = offset + count, rest[count * UNIT_SIZE :]

    def _append_many(self, queue: StoredQueue, queue_offset: int, units: memoryview) -> int:
        """Append the next units of a queue, or some of them; return how many."""
        count = queue.append_many(queue_offset, units)
        self._report.units_rebuilt += count
        return count

    def _add(self, request: DispatchRequest, topic: str, queue_id: int, queue_offset: int) -> None:
        key = (topic, queue_id)
        if key in self.holed:
            return
        queue = self._queues.find(key)
        if queue is None:
            if not self._is_topic(topic, request.physical_offset):
                return
            queue = self._queues.get_or_make(topic, queue_id)
        end = queue.max_offset
        if queue_offset == end:
            self._append(queue, request, queue_offset)
        elif queue_offset > end:
            self.mark_hole(queue, self._end_of(queue))
        else:
            self._compare(queue, request, queue_offset)

    def _compare(self, queue: StoredQueue, request: DispatchRequest, queue_offset: int) -> None:
        """Look at a unit that is there already."""
        unit = queue.unit_at(queue_offset)
        if queue_offset == 0 and unit is not None and unit[0] < request.physical_offset:
            queue.empty(self._unsynced)  # The topic was deleted and made anew.
            self._append(queue, request, queue_offset)
        elif unit is None or unit[0] != request.physical_offset:
            self._report.add_problem(
                f"queue {queue.topic}/{queue.queue_id}: unit {queue_offset} leads elsewhere; "
                "made anew"
            )
            self.mark_hole(queue, self._log.min_offset)

    def _is_topic(self, topic: str, physical_offset: int) -> bool:
        """Whether a queue of that name can exist; no checksum covers the topic of a record."""
        if is_safe_name(topic):
            return True
        self._report.add_problem(
            f"record at {physical_offset}: {topic[:32]!r} is no topic, it is in no queue"
        )
        return False

    def _append(self, queue: StoredQueue, request: DispatchRequest, queue_offset: int) -> None:
        self._report.units_rebuilt += 1
        if queue.ext is None:
            queue.append(request.physical_offset, request.size, request.tags_code, queue_offset)
            return
        queue.append_with_ext(
            request.physical_offset,
            request.size,
            request.tags_code,
            queue_offset,
            request.store_timestamp,
            self._bitmap_of(request),
        )

    # -- filling -----------------------------------------------------------------------------

    def fill(self, request: DispatchRequest) -> None:
        """Have units for a record in the queues that are holed."""
        if request.in_queue:
            self._fill(request, request.topic, request.queue_id, request.queue_offset)
            for slot in request.multi:
                self._fill(request, slot.name, slot.queue_id, slot.queue_offset)

    def fill_units(self, found: UnitSlice) -> None:
        """Do what `fill` does for many records of one queue whose offsets follow each other."""
        key = (found.topic, found.queue_id)
        offset, rest = found.first, found.units
        while rest:
            queue, hole_start = self._queues.find(key), self.holed.get(key)
            if hole_start is None and (queue is not None or not self.fill_unknown):
                return
            if queue is None or hole_start is None or not 0 < offset <= queue.max_offset:
                self._fill(_request_of(found, offset, rest), *key, offset)
                count = 1
            elif offset < queue.max_offset:
                count = min(queue.max_offset - offset, len(rest) // UNIT_SIZE)
            elif UNIT.unpack_from(rest)[0] < hole_start:
                count = 1
            else:
                count = self._append_many(queue, offset, rest)
            offset, rest = offset + count, rest[count * UNIT_SIZE :]

    def _fill(self, request: DispatchRequest, topic: str, queue_id: int, queue_offset: int) -> None:
        hole_start = self.holed.get((topic, queue_id))
        if hole_start is None:
            if not self.fill_unknown or self._queues.get(topic, queue_id) is not None:
                return
            if not self._is_topic(topic, request.physical_offset):
                return
            self.holed[(topic, queue_id)] = hole_start = self._log.min_offset
        if request.physical_offset < hole_start:
            return
        queue = self._queues.get_or_make(topic, queue_id)
        if queue_offset == 0 and 0 <= queue.max_physical_offset <= request.physical_offset:
            queue.empty(self._unsynced)  # The topic was deleted and made anew.
        if queue_offset < queue.max_offset:
            return
        missing = queue_offset - queue.max_offset
        if missing > 0 and not queue.is_empty:
            self._report.add_problem(
                f"queue {topic}/{queue_id}: the log has no records for units "
                f"{queue.max_offset} to {queue_offset - 1}"
            )
            if missing > UNIT_GAP_MAX:
                return
            queue.fill_blank(queue_offset)
        self._append(queue, request, queue_offset)
