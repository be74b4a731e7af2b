"""Messages that name a time of delivery: held in the waiting topic, delivered when they are due.

The topic has a queue for each delay class (`flintmq.format.delivery_time`).  A `WaitingQueue`
finds out what is due next; here it is delivered, in the order of due times over all queues.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.format.delivery_time import DELAY_CLASS_COUNT, delay_class, waits_until_ms
from flintmq.format.errors import FormatError
from flintmq.format.stored.consume_queue_ext import is_address
from flintmq.model.message import PutMessage
from flintmq.model.property_names import (
    REAL_TOPIC,
    TIMER_CANCELLED_ID,
    TIMER_OUT_MS,
    UNIQ_KEY,
    WAIT,
)
from flintmq.model.topics import WAITING_TOPIC
from flintmq.store.config import BrokerRole
from flintmq.store.results import PutStatus
from flintmq.store.upkeep.held_records import (
    LASTING_REFUSALS,
    BadBodyError,
    PoisonError,
    delivery_of,
    read_held,
)
from flintmq.store.upkeep.waiting_queue import (
    NOTHING_DONE,
    WaitingQueue,
    due_ms_of,
    due_of_unit,
    key_of,
    offset_of,
)
from flintmq.store.upkeep.waiting_state import WaitingQueueState

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.format.stored.record import Record
    from flintmq.store.appending.appender import Appender
    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.reading.store_reader import StoreReader
    from flintmq.store.results import PutResult
    from flintmq.store.upkeep.waiting_progress import WaitingProgress
    from flintmq.store.upkeep.waiting_state import WaitingState
    from flintmq.store.views.queue_table import QueueTable, StoredQueue

logger = logging.getLogger(__name__)

DELIVER_COUNT_MAX: Final = 1000
"""How many messages one call handles."""

READ_COUNT_MAX: Final = 2048
"""How many units of queues one call reads: about two milliseconds."""

RETRY_MS: Final = 100
"""How long delivery rests after a put was refused."""

ROLL_AGE_PERCENT: Final = 75
"""At which part of the time that a log file is kept its waiting messages are put again.

Where files are kept for an hour or less, that is done when retention wants to have one.
"""

ADVANCE_MS: Final = 100
"""How often a queue looks where its first waiting message is."""

UNDISPATCHED_MS: Final = 10
"""How soon to look again while messages are not in their queues yet."""

CANCELLED_COUNT_MAX: Final = 100_000
"""Messages that may be cancelled of those that are due at one time; further ones are delivered."""

ROLL_LOOK_MS: Final = 1000
"""How often it is looked whether there are such."""

_HOUR_MS: Final = 3_600_000


class WaitingDelivery:
    """Delivers messages at the times they name, driven by the owner of the store.

    The owner calls ``step`` when ``next_due_ms`` says so.  No message is delivered before it is
    due, and each at least once: what is saved never runs ahead of the disk, so a crash repeats
    deliveries and loses none, and a clean stop repeats none.

    A message that waits longer than log files are kept is *rolled*: put once more at the end of a
    queue before its file may go.  Retention asks ``keeps`` before it deletes a file.
    """

    def __init__(
        self,
        config: StoreConfig,
        progress: WaitingProgress,
        queues: QueueTable,
        reader: StoreReader,
        appender: Appender,
        *,
        put: Callable[[PutMessage], PutResult],
        dispatch: Callable[[], object],
        dispatched: Callable[[], int],
        clock: Clock,
    ) -> None:
        """Describe the service; ``load`` it before use."""
        self._config = config
        self.progress = progress
        self._stored = queues
        self._reader = reader
        self._appender = appender
        self._put = put
        self._dispatch = dispatch
        self._dispatched = dispatched
        self._clock = clock
        self._is_slave = config.broker_role is BrokerRole.SLAVE
        self._queues = [
            WaitingQueue(number, self._find_due, window_count=config.waiting_window_count)
            for number in range(DELAY_CLASS_COUNT)
        ]
        self._cancelled: dict[str, int] = {}
        self._rest_until: float | None = None
        self._rolled_ms = 0
        self._advanced = 0
        self._advanced_ms = 0
        self._roll_below = 0
        """Retention waits for the messages before this physical offset; its thread writes it."""
        self.delivered_count = 0
        self.cancelled_count = 0
        self.rolled_count = 0
        self.crc_error_count = 0
        self.skipped_count = 0
        """Messages that could never be delivered: damaged, refused for what they are, or gone."""

    # -- state -------------------------------------------------------------------------------

    def load(self) -> None:
        """Read how far an earlier run has delivered; raises as `WaitingProgress.load`."""
        state = self.progress.load()
        self._cancelled = dict(state.cancelled)
        for queue in self._queues:
            queue.begin(*self._progress_of(state, queue.queue_id))
        self._appender.delivered_until_ms = max(due_ms_of(queue.mark) for queue in self._queues)

    def _progress_of(self, state: WaitingState, queue_id: int) -> WaitingQueueState:
        progress = state.queues.get(queue_id, WaitingQueueState(0, NOTHING_DONE))
        stored = self._stored.get(WAITING_TOPIC, queue_id)
        end = 0 if stored is None else stored.max_offset
        if progress.first > end:
            logger.warning(
                "waiting messages: state not used: queue=%d first=%d, which ends at %d",
                queue_id,
                progress.first,
                end,
            )
            return WaitingQueueState(0, NOTHING_DONE)
        return progress

    def close(self) -> None:
        """Save how far delivery is; what cannot be saved leads to deliveries being repeated."""
        for queue in self._queues:
            queue.advance()
        self._note_state()
        self.progress.try_persist()

    def _note_state(self) -> None:
        """Take down how far delivery is, to be saved, if that is known."""
        if self._is_ready:
            queues = {
                queue.queue_id: WaitingQueueState(queue.first, queue.mark)
                for queue in self._queues
                if queue.first or queue.mark != NOTHING_DONE
            }
            self.progress.note(queues, self._cancelled)

    @property
    def waiting_count(self) -> int:
        """How many messages wait."""
        return sum(queue.waiting_count for queue in self._queues)

    # -- delivering --------------------------------------------------------------------------

    def step(self, count_max: int = DELIVER_COUNT_MAX) -> int:
        """Do some of what is to be done now; return how much that was, 0 if there was nothing.

        That is: read units, deliver what is due, and put again what waits for too long.
        """
        if self._is_slave:
            return 0
        self._dispatch()
        until_ms = self._known_until_ms()
        done = self._look()
        if done >= READ_COUNT_MAX or not self._is_ready:
            return done  # What is due next is not known before all is read.
        done += self._deliver_due(until_ms, count_max)
        if self._rest_ms() <= 0:
            done += self._roll(count_max)
        if done:
            self._dispatch()
        self._advance()
        self._note_state()
        return done

    @property
    def _is_ready(self) -> bool:
        return all(queue.is_ready for queue in self._queues)

    def _known_until_ms(self) -> int:
        """Return until when all is known that is due: up to now, or to what no queue has yet."""
        now_ms = self._clock.now_ms()
        least_ms = self._appender.undispatched.least_until_ms(self._dispatched())
        return now_ms if least_ms is None else min(now_ms, least_ms - 1)

    def _advance(self) -> None:
        """Let one queue after the other find out where its first waiting message is."""
        now_ms = self._clock.now_ms()
        if 0 <= now_ms - self._advanced_ms < ADVANCE_MS:
            return
        self._advanced_ms = now_ms
        self._queues[self._advanced].advance()
        self._advanced = (self._advanced + 1) % len(self._queues)

    def _look(self) -> int:
        """Read units; a queue that nothing was ever put to has none."""
        done = 0
        for queue in self._queues:
            stored = self._stored.get(WAITING_TOPIC, queue.queue_id)
            if stored is None:
                queue.is_ready = True
            elif done < READ_COUNT_MAX:
                done += queue.look(stored, READ_COUNT_MAX - done)
        return done

    def _head(self) -> tuple[int, WaitingQueue] | None:
        """Return the key that is due next, and its queue."""
        best: tuple[int, WaitingQueue] | None = None
        for queue in self._queues:
            key = queue.head()
            if key is not None and (best is None or key < best[0]):
                best = key, queue
        return best

    def next_due_ms(self) -> int | None:
        """Return when to call ``step`` next, None while nothing waits."""
        if self._is_slave:
            return None
        self._dispatch()
        now_ms = self._clock.now_ms()
        until_ms = self._known_until_ms()
        if self._look() or not self._is_ready:
            return now_ms
        rest_ms = self._rest_ms()
        if rest_ms <= 0 and until_ms < now_ms:
            rest_ms = UNDISPATCHED_MS
        head = self._head()
        due_ms = None if head is None else due_ms_of(head[0])
        if due_ms is None:
            return now_ms + rest_ms if until_ms < now_ms else None
        return max(due_ms, now_ms + rest_ms) if rest_ms > 0 else due_ms

    def _rest_ms(self) -> int:
        if self._rest_until is None:
            return 0
        return round((self._rest_until - self._clock.monotonic()) * 1000)

    def _deliver_due(self, until_ms: int, count_max: int) -> int:
        done = 0
        while done < count_max and self._rest_ms() <= 0:
            head = self._head()
            if head is None or due_ms_of(head[0]) > until_ms:
                break
            key, queue = head
            if not self._deliver(key, queue):
                break
            queue.finish_head()
            done += 1
            self._appender.delivered_until_ms = due_ms_of(key)
            stored = self._stored.get(WAITING_TOPIC, queue.queue_id)
            if stored is not None and queue.head() is None and queue.look(stored, READ_COUNT_MAX):
                break  # What comes next is not known before all is read.
        if self._cancelled:
            self._forget_cancelled()
        return done

    def _forget_cancelled(self) -> None:
        """Drop ids of messages that were due before everything that still waits."""
        if not self._is_ready:
            return
        head = self._head()
        if head is None:
            self._cancelled = {}
        else:
            due_ms = due_ms_of(head[0])
            # They came in the order of their times.
            if next(iter(self._cancelled.values())) < due_ms:
                kept = ((name, due) for name, due in self._cancelled.items() if due >= due_ms)
                self._cancelled = dict(kept)

    def _deliver(self, key: int, queue: WaitingQueue) -> bool:
        """Deliver the message of a key; return whether it is done, one way or another."""
        try:
            record = self._read(queue.queue_id, offset_of(key))
            cancelled_id = record.properties.get(TIMER_CANCELLED_ID)
            if cancelled_id:
                self._cancel(_name_of(record, cancelled_id), queue, key)
                return True
            message_id = record.properties.get(UNIQ_KEY, "")
            if self._cancelled and _name_of(record, message_id) in self._cancelled:
                self.cancelled_count += 1
                return True
            message = delivery_of(record)
        except PoisonError as error:
            self.crc_error_count += isinstance(error, BadBodyError)
            self._skip(queue, key, str(error))
            return True
        if self._try_put(message, queue, key) is None:
            return self._rest_until is None
        self.delivered_count += 1
        return True

    def _cancel(self, name: str, queue: WaitingQueue, key: int) -> None:
        self._cancelled.pop(name, None)
        if len(self._cancelled) >= CANCELLED_COUNT_MAX:
            self._forget_cancelled()
        if len(self._cancelled) < CANCELLED_COUNT_MAX:
            self._cancelled[name] = due_ms_of(key) + 1
        else:
            self._skip(queue, key, f"more than {CANCELLED_COUNT_MAX} are cancelled at one time")

    def _try_put(self, message: PutMessage, queue: WaitingQueue, key: int) -> int | None:
        """Put a message and return its physical offset, None if it was refused.

        One that is refused for good is skipped; for others delivery rests.
        """
        result = self._put(message)
        if result.status is PutStatus.PUT_OK:
            self._rest_until = None
            return result.physical_offset
        reason = f"{result.status.value}: {result.reason}"
        if result.status in LASTING_REFUSALS:
            self._rest_until = None
            self._skip(queue, key, reason)
            return None
        if self._rest_until is None:
            logger.warning("delivery waits: queue=%d reason=%s", queue.queue_id, reason)
        self._rest_until = self._clock.monotonic() + RETRY_MS / 1000
        return None

    def _skip(self, queue: WaitingQueue, key: int, reason: str) -> None:
        self.skipped_count += 1
        if self.skipped_count & (self.skipped_count - 1) == 0:
            # A file that is gone may have held millions: the number is told as it doubles.
            logger.warning(
                "waiting message skipped: queue=%d offset=%d due=%d skipped_in_all=%d reason=%s",
                queue.queue_id,
                offset_of(key),
                due_ms_of(key),
                self.skipped_count,
                reason,
            )

    def _read(self, queue_id: int, queue_offset: int) -> Record:
        stored = self._stored.get(WAITING_TOPIC, queue_id)
        unit = stored.unit_at(queue_offset) if stored is not None else None
        if unit is None:
            raise PoisonError("its unit is gone")
        return read_held(self._reader, WAITING_TOPIC, queue_id, unit[0], unit[1])

    def _find_due(
        self, queue: StoredQueue, physical_offset: int, size: int, code: int
    ) -> int | None:
        """Return the due time of a unit that a Java broker has made, or that has an extension."""
        if is_address(code):
            ext = queue.resolve(code)
            if ext is not None and ext.tags_code > 0:
                return ext.tags_code
        record = self._reader.look(physical_offset, size)
        return None if record is None else waits_until_ms(record.properties.get(TIMER_OUT_MS, ""))

    # -- rolling -----------------------------------------------------------------------------

    def keeps(self, end_offset: int) -> bool:
        """Whether something waits in the log before a physical offset; any thread may ask.

        If so, it is put again at the end of the log soon, and then it is on the disk there.
        """
        for queue in self._queues:
            stored = self._stored.get(WAITING_TOPIC, queue.queue_id)
            if stored is None:
                continue
            first = self._progress_of(self.progress.saved, queue.queue_id).first
            unit = stored.unit_at(max(first, stored.min_offset))
            if unit is not None and unit[0] < end_offset:
                self._roll_below = max(self._roll_below, end_offset)
                return True
        return False

    def _roll(self, count_max: int) -> int:
        """Put messages again that have waited for most of the time that log files are kept."""
        now_ms = self._clock.now_ms()
        if not self._roll_below and 0 <= now_ms - self._rolled_ms < ROLL_LOOK_MS:
            return 0
        kept_ms = self._config.file_reserved_hours * _HOUR_MS
        before_ms = now_ms - max(kept_ms * ROLL_AGE_PERCENT // 100, _HOUR_MS)
        done = 0
        for queue in self._queues:
            stored = self._stored.get(WAITING_TOPIC, queue.queue_id)
            while stored is not None and done < count_max and queue.is_ready:
                if not self._roll_first(queue, stored, before_ms, now_ms):
                    break
                done += 1
        if done < count_max and self._rest_ms() <= 0:
            self._rolled_ms, self._roll_below = now_ms, 0
        return done

    def _roll_first(
        self, queue: WaitingQueue, stored: StoredQueue, before_ms: int, now_ms: int
    ) -> bool:
        """Bring a queue past its first message, if that is old; return whether it was."""
        queue.first = max(queue.first, stored.min_offset)
        unit = stored.unit_at(queue.first)
        if unit is None:
            return False
        physical_offset, size, _ = unit
        if physical_offset >= self._roll_below:
            try:
                stored_ms = self._reader.store_time(physical_offset, size)
            except FormatError:
                stored_ms = -1
            if stored_ms > before_ms:
                return False
        due_ms = due_of_unit(stored, unit, self._find_due)
        waits = due_ms is not None and key_of(due_ms, queue.first) > queue.mark
        if waits:
            assert due_ms is not None
            if due_ms <= now_ms or not self._put_again(queue, due_ms, now_ms):
                return False
        queue.finish_first(waits=waits)
        return True

    def _put_again(self, queue: WaitingQueue, due_ms: int, now_ms: int) -> bool:
        """Put the first message of a queue again; return whether it is done with."""
        key = key_of(due_ms, queue.first)
        try:
            record = self._read(queue.queue_id, queue.first)
        except PoisonError as error:
            self._skip(queue, key, str(error))
            return True
        message = PutMessage(
            topic=WAITING_TOPIC,
            queue_id=delay_class(due_ms - now_ms),
            body=bytes(record.body),
            properties=record.properties | {WAIT: "false"},
            properties_text=record.properties_text,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
        )
        physical_offset = self._try_put(message, queue, key)
        if physical_offset is None:
            return self._rest_until is None
        self._appender.undispatched.add(physical_offset, due_ms)
        self.rolled_count += 1
        return True


def _name_of(record: Record, message_id: str) -> str:
    """Return topic and id of a message: who may send to one topic cancels nothing of another."""
    return f"{record.properties.get(REAL_TOPIC)} {message_id}"
