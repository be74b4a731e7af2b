"""Dispatch: from the commit log into consume queues, their extension and the key index."""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.format.consume_queue import UNIT, UNIT_FIELD_COUNT, pack_units
from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.record import Blank, CheckedRecord, check_record, decode_record
from flintmq.format.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
)
from flintmq.store.dispatch_request import (
    DispatchRequest,
    QueueSlot,
    request_from_record,
    stored_request,
)
from flintmq.store.errors import CorruptStoreError, DiskFullError, StoreError
from flintmq.store.flags import RunningFlag, RunningFlags
from flintmq.store.key_index import IndexedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.store.commit_log import CommitLog
    from flintmq.store.key_index import KeyIndex
    from flintmq.store.queue_table import QueueTable
    from flintmq.store.run_encoding import Run

logger = logging.getLogger(__name__)

PENDING_MAX: Final = 65_536
"""Requests kept in memory; past that they are read from the log again when their turn comes."""


BATCH_COUNT_MAX: Final = 256
"""Requests put into the views together: keys are hashed in batches."""


RUN_COUNT_MIN: Final = 4
"""Fewer requests are written one by one: sorting them by queue would not pay."""


class _PartlyDone(Exception):
    """Queues took ``count`` requests of a batch, then ``error`` came."""

    def __init__(self, count: int, error: StoreError) -> None:
        self.count = count
        self.error = error
        super().__init__(str(error))


class ArrivalListener(Protocol):
    """Called for every dispatched record, so that held pulls wake at once."""

    def __call__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        store_timestamp: int,
        bitmap: bytes | None,
        read_properties: Callable[[], Mapping[str, str]],
    ) -> None:
        """Learn that ``queue_offset`` is now the end of a queue.

        The properties of the message are decoded for who asks for them.
        """
        ...


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
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._flags = flags
        self._delay_levels = delay_levels
        self._multi_dispatch = multi_dispatch
        self._lmq = lmq
        self._filter_bitmap = filter_bitmap
        self.on_arrival = on_arrival
        self.lock = threading.RLock()
        """Held while the views change; whoever samples them takes it."""
        self.offset = 0
        self.blocked: StoreError | None = None
        self.last_timestamp = 0
        self._pending: deque[DispatchRequest] = deque()
        self._from_log = False
        self._running = False

    @property
    def behind(self) -> int:
        """How many bytes of the log are not dispatched yet."""
        return self._log.end_offset - self.offset if self.waiting else 0

    @property
    def waiting(self) -> int:
        """How many records are known to wait; a log that must be read again counts as one more."""
        return len(self._pending) + self._from_log

    def start_at(self, offset: int) -> None:
        """Continue from ``offset``, which recovery has brought the views to."""
        self.offset = offset
        self._pending.clear()
        self._from_log = self._log.end_offset > offset

    def add(self, request: DispatchRequest) -> None:
        """Remember a record that was just appended."""
        if self._from_log:
            return
        pending = self._pending
        pending.append(request)
        if len(pending) > PENDING_MAX:
            # Memory stays bounded: from here on the log itself is read again.
            pending.clear()
            self._from_log = True

    def add_stored(
        self,
        topic: str,
        queue_id: int,
        physical_offset: int,
        size: int,
        store_timestamp: int,
        queue_offset: int,
        sys_flag: int,
        properties: bytes,
    ) -> None:
        """Remember a record of a batch, of whose properties only the stored text is at hand."""
        if self._from_log:
            return
        self.add(
            stored_request(
                topic.encode(),
                queue_id,
                physical_offset,
                size,
                store_timestamp,
                queue_offset,
                sys_flag,
                properties,
                delay_levels=self._delay_levels,
            )
        )

    # -- runs --------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether the views are where the log is, and follow it at once; ask under the lock."""
        return (
            not self._pending
            and not self._from_log
            and not self._running
            and self.blocked is None
            and self._filter_bitmap is None
            and not self._queues.has_ext
            and self.offset == self._log.end_offset == self._log.readable_end
        )

    def can_take(self, run: Run) -> bool:
        """Whether the views have room for a run, so that nothing can come in between."""
        try:
            for key, part in run.parts.items():
                queue = self._queues.find(key)
                if queue is None or not queue.make_room(part.first, part.count):
                    return False
            return self._index is None or self._index.make_room(run.keys.count)
        except StoreError:
            return False  # Whoever puts the messages one by one is told why.

    def take(self, run: Run) -> None:
        """Put a run into the views that was just appended, and announce it."""
        for key, part in run.parts.items():
            queue = self._queues.find(key)
            assert queue is not None
            queue.append_run(b"".join(part.units))
        if self._index is not None and run.keys.count:
            self._index.insert_run(run.keys, run.store_timestamp)
            self._index.write_headers()
        self.offset = run.end_offset
        self.last_timestamp = run.store_timestamp
        listener = self.on_arrival
        if listener is None:
            return
        for (topic, queue_id), part in run.parts.items():
            units = UNIT.iter_unpack(b"".join(part.units))
            for number, (physical_offset, size, tags) in enumerate(units, part.first + 1):
                read = functools.partial(self._stored_properties, physical_offset, size)
                listener(topic, queue_id, number, tags, run.store_timestamp, None, read)

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
            self._running = True
            try:
                return self._run()
            finally:
                self._running = False
                if self._index is not None:
                    self._index.write_headers()

    def _run(self) -> int:
        count = 0
        try:
            limit = self._log.readable_end
            if self._from_log:
                count += self._run_from_log(limit)
            while batch := self._next_pending(limit):
                count += self._apply(batch)
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

    def _next_pending(self, limit: int) -> Sequence[DispatchRequest]:
        """Return the next pending requests that are readable, at most a batch of them."""
        pending = self._pending
        if not pending:
            return ()
        if len(pending) <= BATCH_COUNT_MAX and pending[-1][2] < limit:
            batch = list(pending)
        else:
            batch = [
                request
                for request in islice(pending, BATCH_COUNT_MAX)
                if request.physical_offset < limit
            ]
        # The last record may begin below the limit and end behind it.
        while batch and batch[-1].physical_offset + batch[-1].size > limit:
            batch.pop()
        return batch

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
                tuple.__new__(IndexedMessage, (request[0], request[8], request[2], request[5]))
                for request in batch[:in_queues]
                if request[8] and request[7] & TRANSACTION_MASK != TRANSACTION_ROLLBACK
            ]
            if indexed:
                taken = self._index.insert(indexed)
                if taken < len(indexed):
                    stop = indexed[taken].physical_offset
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

    def _runs(self, batch: Sequence[DispatchRequest]) -> dict[tuple[str, int], list[int]] | None:
        """Return the units of a batch by queue, each led by its first queue offset.

        None where something is not plain: a gap, a light queue, a transaction under way.
        """
        runs: dict[tuple[str, int], list[int]] = {}
        for request in batch:
            topic, queue_id, offset, size, tags, _, queue_offset, flag, _, _, multi = request
            if multi or flag & TRANSACTION_MASK not in (TRANSACTION_NONE, TRANSACTION_COMMIT):
                return None
            run = runs.get((topic, queue_id))
            if run is None:
                runs[topic, queue_id] = [queue_offset, offset, size, tags]
            elif run[0] + len(run) // UNIT_FIELD_COUNT != queue_offset:
                return None
            else:
                run += (offset, size, tags)
        return runs

    def _apply_runs(self, batch: Sequence[DispatchRequest]) -> bool:
        """Write the units of a batch queue by queue, if nothing can stand in the way."""
        runs = self._runs(batch)
        if runs is None:
            return False
        ready = []
        for key, run in runs.items():
            queue = self._queues.find(key)
            first = run.pop(0)
            if queue is None or not queue.has_room(first, len(run) // UNIT_FIELD_COUNT):
                return False
            ready.append((queue, pack_units(run)))
        for queue, units in ready:
            queue.append_run(units)
        return True

    def _apply_to_queues(self, batch: Sequence[DispatchRequest]) -> int:
        get_queue = self._queues.find
        has_ext = self._filter_bitmap is not None or self._queues.has_ext
        if len(batch) >= RUN_COUNT_MIN and not has_ext and self._apply_runs(batch):
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
                queue = get_queue((topic, queue_id)) or self._queues.get_or_make(topic, queue_id)
                if has_ext:
                    queue.append_with_ext(
                        physical_offset, size, tags, queue_offset, time, self.bitmap_of(request)
                    )
                else:
                    queue.append(physical_offset, size, tags, queue_offset)
                for slot in multi:
                    self._queues.get_or_make(slot.name, slot.queue_id).append(
                        physical_offset, size, tags, slot.queue_offset
                    )
            except StoreError as error:
                raise _PartlyDone(number, error) from error
        return len(batch)

    def _finish(self, done: Sequence[DispatchRequest]) -> None:
        """Move on behind a dispatched batch and announce it."""
        last = done[-1]
        self.offset = last.physical_offset + last.size
        self.last_timestamp = last.store_timestamp
        pending = self._pending
        if pending and pending[0] is done[0]:
            for _ in done:  # One by one: another thread may be adding.
                pending.popleft()
        listener = self.on_arrival
        if listener is not None:
            for request in done:
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
        """Read records from ``offset`` to ``limit`` and dispatch them."""
        count = 0
        while self.offset < limit:
            file = self._log.files.find(self.offset)
            if file is None or not file.hold():
                raise CorruptStoreError(
                    self._log.files.placement.directories[0],
                    self.offset,
                    "no log file to dispatch from",
                )
            try:
                count += self._run_file(file.view, file.first_offset, file.size, limit)
            except EndOfRecords:
                break
            except CorruptRecordError as error:
                raise CorruptStoreError(file.path, self.offset, error.reason) from error
            finally:
                file.release()
        if self.offset >= self._log.end_offset:
            self._from_log = False
        return count

    def _run_file(self, view: memoryview, first_offset: int, size: int, limit: int) -> int:
        """Dispatch the records of one file from ``offset`` on, batch by batch."""
        count = 0
        offset = self.offset
        file_end = first_offset + size
        batch: list[DispatchRequest] = []
        try:
            while offset < min(limit, file_end):
                record = check_record(
                    view, offset - first_offset, size, check_crc=False, expected_offset=offset
                )
                if isinstance(record, Blank):
                    offset = file_end
                    break
                offset += record.size
                if offset > limit:
                    break
                batch.append(self._request(record))
                if len(batch) >= BATCH_COUNT_MAX:
                    whole, batch = batch, []
                    count += self._apply_whole(whole)
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
