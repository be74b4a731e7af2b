"""Dispatch: from the commit log into consume queues, their extension and the key index."""

from __future__ import annotations

import functools
import logging
import threading
from typing import TYPE_CHECKING, Final

from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.stored.consume_queue import UNIT, UNIT_FIELD_COUNT, pack_units
from flintmq.format.stored.queue_claims import QueueSlot
from flintmq.format.stored.record import Blank, CheckedRecord, check_record, decode_record
from flintmq.format.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
)
from flintmq.store.append_group.sends import AppendGroup
from flintmq.store.errors import CorruptStoreError, DiskFullError, StoreError
from flintmq.store.forgotten_records import ForgottenRecords
from flintmq.store.log.dispatch_request import DispatchRequest, request_from_record
from flintmq.store.pending_dispatch import PendingDispatch
from flintmq.store.run_limit import RUN_KEY_COUNT_MAX, RunLimit, units_by_queue
from flintmq.store.running_flags import RunningFlag, RunningFlags
from flintmq.store.views.key_index import IndexedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.store.append_group.sends import Queue
    from flintmq.store.arrivals import ArrivalListener, AwaitsMessages
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.views.key_index import KeyIndex
    from flintmq.store.views.queue_table import QueueTable

logger = logging.getLogger(__name__)

BATCH_COUNT_MAX: Final = 128
"""Requests put into the views together: keys are hashed in batches."""


REPLICA_STEP_SIZE: Final = 128 << 10
"""Bytes of a master's log that one run dispatches: the owner has others to serve."""


BY_QUEUE_COUNT_MIN: Final = 4
"""Fewer requests are written one by one: sorting them by queue would not pay."""


class _PartlyDone(Exception):
    """Queues took ``count`` requests of a batch, then ``error`` came."""

    def __init__(self, count: int, error: StoreError) -> None:
        self.count = count
        self.error = error
        super().__init__(str(error))


class Dispatcher:
    """Feeds the views.  It may lag behind the log and catches up when it is run.

    ``offset`` is where the next record to dispatch starts; everything below it is in the views.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        *,
        flags: RunningFlags,
        delay_levels: DelayLevels,
        multi_dispatch: bool = False,
        lmq: bool = False,
        filter_bitmap: Callable[[str, Mapping[str, str]], bytes | None] | None = None,
        on_arrival: ArrivalListener | None = None,
        follows_master: bool = False,
    ) -> None:
        """Feed the views of a log; one that ``follows_master`` is read in steps and checked."""
        self._log = log
        self._queues = queues
        self._index = index
        self._flags = flags
        self._delay_levels = delay_levels
        self._multi_dispatch = multi_dispatch
        self._lmq = lmq
        self._filter_bitmap = filter_bitmap
        self.on_arrival = on_arrival
        self.awaited_queues: Mapping[Queue, AwaitsMessages] | None = None
        """The queues whose messages are told to the listener; None: all of them."""
        self.lock = threading.RLock()
        """Held while the views change; whoever samples them takes it."""
        self.offset = 0
        self.blocked: StoreError | None = None
        self.last_timestamp = 0
        self.waiting_max = 0
        """The most records that were known to wait when it was run."""
        self._pending = PendingDispatch()
        self._waiting = self._pending.waiting
        self.forgotten = ForgottenRecords()
        self._from_log = False
        self._running = False
        self._follows_master = follows_master
        self.run_limit = RunLimit()

    @property
    def behind(self) -> int:
        """How many bytes of the log are not dispatched yet."""
        return self._log.end_offset - self.offset if self.has_waiting else 0

    @property
    def waiting(self) -> int:
        """How many records are known to wait; a log that must be read again counts as one more."""
        return len(self._waiting) + self._from_log

    @property
    def has_waiting(self) -> bool:
        """Whether any record waits: every read asks, so it looks at as little as it can."""
        return self._from_log or bool(self._waiting)

    @property
    def is_cut_short(self) -> bool:
        """Whether the last run has left what it could have dispatched; see `RunLimit`."""
        is_stopped = self.run_limit.was_reached and self.blocked is None and self.has_waiting
        return is_stopped and self._log.readable_end > self.offset

    def start_at(self, offset: int) -> None:
        """Continue from ``offset``, which recovery has brought the views to."""
        self.offset = offset
        self._pending.clear()
        self.forgotten.clear()
        self._from_log = self._log.end_offset > offset

    def follow_log(self) -> None:
        """Read from the log what was appended to it without being announced one by one."""
        self._from_log = True

    def add(self, request: DispatchRequest) -> None:
        """Remember a record that was just appended."""
        if not self._from_log and not self._pending.add(request):
            # Memory stays bounded: from here on the log itself is read again.
            self._from_log = True

    def read_back(self) -> None:
        """Read from the log what waits, and what was just appended, when its turn comes."""
        self._pending.clear()
        self._from_log = True

    # -- append groups -----------------------------------------------------------------------

    @property
    def takes_groups(self) -> bool:
        """Whether a group may be appended now; ask under the lock.

        Where readers see only what is on the disk, or out of a buffer of the pool, groups wait in
        their order.  Elsewhere the views have to be where the log is, to follow it at once.
        """
        if self._from_log or self._running or self.blocked is not None:
            return False
        if self._filter_bitmap is not None or self._queues.has_ext:
            return False
        log = self._log
        is_up_to_date = not self._waiting and self.offset == log.end_offset == log.readable_end
        return log.reads_wait or is_up_to_date

    def add_group(self, group: AppendGroup) -> None:
        """Remember a group that was just appended and is dispatched when it can be read."""
        if not self._from_log and not self._pending.add_group(group):
            self._from_log = True

    def has_queues(self, group: AppendGroup) -> bool:
        """Whether all queues of a group are there."""
        return all(self._queues.find(key) is not None for key in group.slices)

    def _dispatch_pending_group(self, group: AppendGroup) -> int:
        """Dispatch a group that has waited; return how many records that were.

        Where the views have no room as they are, it is read from the log, as after a restart.
        """
        if not self.has_room(group):
            self._pending.clear()
            self._from_log = True
            return 0
        self._pending.drop_group()
        self.dispatch_group(group)
        return group.message_count

    def has_room(self, group: AppendGroup) -> bool:
        """Whether the views have room for a group, so that nothing can come in between."""
        try:
            for key, part in group.slices.items():
                queue = self._queues.find(key)
                if queue is None or not queue.make_room(part.first, part.count):
                    return False
            return self._index is None or self._index.make_room(group.keys.count)
        except StoreError:
            return False  # Whoever puts the messages one by one is told why.

    def dispatch_group(self, group: AppendGroup) -> None:
        """Put a group that was just appended into the views, and announce it."""
        for key, part in group.slices.items():
            queue = self._queues.find(key)
            assert queue is not None
            queue.append_units(b"".join(part.units))
        if self._index is not None and group.keys.count:
            self._index.insert_group(group.keys, group.store_timestamp)
            self._index.write_headers()
        self.offset = group.end_offset
        self.last_timestamp = group.store_timestamp
        listener = self.on_arrival
        if listener is None:
            return
        awaited = self.awaited_queues
        for (topic, queue_id), part in group.slices.items():
            # To tell of each message takes longer than to store it.
            if awaited is not None and (topic, queue_id) not in awaited:
                continue
            units = enumerate(UNIT.iter_unpack(b"".join(part.units)), part.first + 1)
            if awaited is not None and not awaited[topic, queue_id].wants_each:
                # By its tags alone, the last message stands for all that have the same.
                last_of = {unit[2]: (number, unit) for number, unit in units}
                told: Iterable[tuple[int, tuple[int, ...]]] = last_of.values()
            else:
                told = units
            for number, (physical_offset, size, tags) in told:
                read = functools.partial(self._stored_properties, physical_offset, size)
                listener(topic, queue_id, number, tags, group.store_timestamp, None, read)

    def _stored_properties(self, physical_offset: int, size: int) -> Mapping[str, str]:
        stored = self._log.select(physical_offset, size)
        assert stored is not None, "it was just appended"
        with stored:
            return decode_record(stored.view).properties

    def run(self) -> int:
        """Dispatch what is readable; return how many records went into the views.

        A full disk stops it with ``blocked`` set; the next run goes on at the same record.
        """
        with self.lock:
            if self._running:  # an arrival listener may read, and reading runs the dispatcher
                return 0
            self.waiting_max = max(self.waiting_max, self.waiting)
            if self._is_up_to_date:
                return 0
            self._running = True
            self.run_limit.begin()
            try:
                return self._run()
            finally:
                self._running = False
                self.forgotten.drop_below(self.offset)
                if self.offset >= self._log.readable_end:
                    self.run_limit.was_reached = False  # What comes from now on was not left.
                if self._index is not None:
                    self._index.write_headers()

    @property
    def _is_up_to_date(self) -> bool:
        """Whether all that waits is not readable yet: with synchronous flush each send asks."""
        return not self._from_log and self.blocked is None and self._log.readable_end <= self.offset

    def _run(self) -> int:
        count = 0
        try:
            limit = self._log.readable_end
            if self._from_log:
                count += self._run_from_log(limit)
            while batch := self._pending.next(limit, BATCH_COUNT_MAX):
                if self.run_limit.is_reached():
                    break
                if isinstance(batch, AppendGroup):
                    count += self._dispatch_pending_group(batch)
                else:
                    count += self._apply(self.run_limit.few(batch))
            if self._from_log:
                count += self._run_from_log(limit)
            self.blocked = None
        except DiskFullError as error:
            if self.blocked is None:
                logger.warning("dispatch waits for disk space: %s", error)
            self.blocked = error
        except StoreError as error:
            self.blocked = error
            self._flags.set(RunningFlag.QUEUE_WRITE_FAILED, str(error))
            logger.exception("dispatch stopped: offset=%d", self.offset)
        return count

    def _apply(self, batch: Sequence[DispatchRequest]) -> int:
        """Put a batch into the views and announce it; doing part of it again changes nothing.

        When the views take only part of it, what they took is done and the rest raises.
        """
        failure: StoreError | None = None
        try:
            in_queues = self._apply_to_queues(batch)
        except _PartlyDone as partly:
            in_queues, failure = partly.count, partly.error
        done = in_queues
        if self._index is not None and in_queues:
            indexed = [
                IndexedMessage(
                    request.topic, request.keys, request.physical_offset, request.store_timestamp
                )
                for request in batch[:in_queues]
                if request.keys and request.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
            ]
            if indexed:
                inserted_count = self._index.insert(indexed)
                if inserted_count < len(indexed):
                    stop = indexed[inserted_count].physical_offset
                    done = next(at for at, one in enumerate(batch) if one.physical_offset >= stop)
        if done:
            self._finish(batch[:done])
        if failure is not None:
            raise failure
        return done

    def _apply_whole(self, batch: Sequence[DispatchRequest]) -> int:
        """Put all of a batch into the views, or raise what keeps the rest out."""
        count = 0
        while count < len(batch):
            count += self._apply(batch[count:])
        return count

    def _apply_by_queue(self, batch: Sequence[DispatchRequest]) -> bool:
        """Write the units of a batch queue by queue, if nothing can stand in the way."""
        by_queue = units_by_queue(batch)
        if by_queue is None:
            return False
        ready = []
        for key, fields in by_queue.items():
            queue = self._queues.find(key)
            first = fields.pop(0)
            if queue is None or not queue.has_room(first, len(fields) // UNIT_FIELD_COUNT):
                return False
            ready.append((queue, pack_units(fields)))
        for queue, units in ready:
            queue.append_units(units)
        return True

    def _apply_to_queues(self, batch: Sequence[DispatchRequest]) -> int:
        get_queue, is_forgotten = self._queues.find, self.forgotten.has
        has_ext = self._filter_bitmap is not None or self._queues.has_ext
        if len(batch) >= BY_QUEUE_COUNT_MIN and not has_ext and self._apply_by_queue(batch):
            return len(batch)
        for number, request in enumerate(batch):
            (
                topic,
                queue_id,
                physical_offset,
                size,
                tags,
                time,
                queue_offset,
                flag,
                _,
                _,
                multi,
            ) = request
            kind = flag & TRANSACTION_MASK
            if kind not in (TRANSACTION_NONE, TRANSACTION_COMMIT):
                continue
            try:
                key = topic, queue_id
                queue = get_queue(key)
                if queue is None and not is_forgotten(key, physical_offset):
                    queue = self._queues.get_or_make(topic, queue_id)
                if has_ext and queue is not None:
                    queue.append_with_ext(
                        physical_offset, size, tags, queue_offset, time, self.bitmap_of(request)
                    )
                elif queue is not None:
                    queue.append(physical_offset, size, tags, queue_offset)
                for slot in multi:
                    if not is_forgotten((slot.name, slot.queue_id), physical_offset):
                        self._queues.get_or_make(slot.name, slot.queue_id).append(
                            physical_offset, size, tags, slot.queue_offset
                        )
            except StoreError as error:
                raise _PartlyDone(number, error) from error
        return len(batch)

    def _finish(self, done: Sequence[DispatchRequest]) -> None:
        """Move on behind a dispatched batch and announce it."""
        last = done[-1]
        self.run_limit.note(done)
        self.offset = last.physical_offset + last.size
        self.last_timestamp = last.store_timestamp
        self._pending.drop(done)
        listener = self.on_arrival
        if listener is not None:
            awaited = self.awaited_queues
            for request in done:
                # Without somebody who waits for it, a message is told only if it has more queues.
                if awaited is None or request.multi or (request.topic, request.queue_id) in awaited:
                    self._announce(listener, request)

    def bitmap_of(self, request: DispatchRequest) -> bytes | None:
        """Ask for the filter bitmap of a message, where the store was given somebody to ask."""
        if self._filter_bitmap is None:
            return None
        return self._filter_bitmap(request.topic, request.property_map)

    def _announce(self, listener: ArrivalListener, request: DispatchRequest) -> None:
        bitmap = self.bitmap_of(request)
        targets = [QueueSlot(request.topic, request.queue_id, request.queue_offset)]
        for name, queue_id, queue_offset in [*targets, *request.multi]:
            listener(
                name,
                queue_id,
                queue_offset + 1,
                request.tags_code,
                request.store_timestamp,
                bitmap,
                lambda: request.property_map,
            )

    def _run_from_log(self, limit: int) -> int:
        """Read records from ``offset`` to ``limit`` and dispatch them.

        A log that comes from a master comes faster than it is dispatched: one step at a time.
        """
        count = 0
        stop = min(limit, self.offset + REPLICA_STEP_SIZE) if self._follows_master else limit
        while self.offset < stop and not self.run_limit.is_reached():
            file = self._log.files.find(self.offset)
            if file is None or not file.hold():
                raise CorruptStoreError(
                    self._log.files.placement.directories[0],
                    self.offset,
                    "no log file to dispatch from",
                )
            try:
                count += self._run_file(file.view, file.first_offset, file.size, limit, stop)
            except EndOfRecords:
                break
            except CorruptRecordError as error:
                raise CorruptStoreError(file.path, self.offset, error.reason) from error
            finally:
                file.release()
        if self.offset >= self._log.end_offset:
            self._from_log = False
        return count

    def _run_file(
        self, view: memoryview, first_offset: int, size: int, limit: int, stop: int
    ) -> int:
        """Dispatch the records of one file from ``offset`` on, batch by batch.

        None ends behind ``limit``, and none begins behind ``stop``.
        """
        count = 0
        offset = self.offset
        file_end = first_offset + size
        batch: list[DispatchRequest] = []
        key_count = 0
        try:
            while offset < min(stop, file_end):
                record = check_record(
                    view,
                    offset - first_offset,
                    size,
                    check_crc=self._follows_master,
                    expected_offset=offset,
                )
                if isinstance(record, Blank):
                    offset = file_end
                    break
                offset += record.size
                if offset > limit:
                    break
                batch.append(self._request(record))
                key_count += len(batch[-1].keys)
                if len(batch) >= BATCH_COUNT_MAX or key_count >= RUN_KEY_COUNT_MAX:
                    whole, batch, key_count = batch, [], 0
                    count += self._apply_whole(whole)
                    if self.run_limit.is_reached():
                        return count
        finally:
            if batch:
                count += self._apply_whole(batch)
        if offset == file_end:
            self.offset = file_end
        return count

    def _request(self, record: CheckedRecord) -> DispatchRequest:
        return request_from_record(
            record,
            delay_levels=self._delay_levels,
            multi_dispatch=self._multi_dispatch,
            lmq=self._lmq,
        )
