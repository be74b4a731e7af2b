"""Appending: gives a message its offsets and copies it to the end of the log."""

from __future__ import annotations

import threading
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeVar

from flintmq.format.errors import FormatError
from flintmq.format.host import IPV4_HOST_SIZE
from flintmq.format.properties import encode_properties
from flintmq.format.stored.dispatch_fields import dispatch_fields_of_map
from flintmq.format.stored.queue_claims import QueueSlot
from flintmq.format.stored.record_encoding import (
    encode_with_topic,
    pack_origin,
    place_records,
)
from flintmq.format.stored.record_layout import (
    FIXED_SIZES,
    PROPERTIES_LENGTH_MAX,
    TOPIC_LENGTH_SIZE,
)
from flintmq.format.sys_flag import (
    HOSTS_MASK,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    with_hosts,
)
from flintmq.model.property_names import (
    DELAY,
    DELIVERY_TIMES,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    REAL_QID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    WAIT,
)
from flintmq.model.steps import finish
from flintmq.model.topics import (
    LMQ_PREFIX,
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    WAITING_TOPIC,
)
from flintmq.store.appending.batch_preparation import PreparedBatch, prepare_batch
from flintmq.store.appending.put_admission import PutAdmission, PutRefusedError, illegal
from flintmq.store.appending.waiting_put import UndispatchedWaiting, waiting_put
from flintmq.store.config import BrokerRole, FlushMode
from flintmq.store.errors import StoreError
from flintmq.store.log.dispatch_request import DispatchRequest, stored_request
from flintmq.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.model.message import MessageBatch, PutMessage
    from flintmq.model.steps import Steps
    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.dispatch import Dispatcher
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.running_flags import RunningFlags
    from flintmq.store.store_statistics import StoreStatistics
    from flintmq.store.views.queue_table import QueueTable

_Put = TypeVar("_Put", "PutMessage", "MessageBatch", "PreparedBatch")

BUSY_SINCE_MAX_MS: Final = 10_000_000
"""Java's upper bound of a believable time in the put lock."""

_NO_SLOTS: Final[tuple[QueueSlot, ...]] = ()
_DELIVERY_TIMES: Final = frozenset(DELIVERY_TIMES)
_NEVER_WAITING: Final = frozenset(
    {SCHEDULE_TOPIC, WAITING_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC}
)
"""Topics in which messages wait already; a half message waits anew when it is committed."""


class Appender:
    """The write path of a store.  Puts of several threads take turns."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        *,
        flags: RunningFlags,
        statistics: StoreStatistics,
        delay_levels: DelayLevels,
        clock: Clock,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._flags = flags
        self._statistics = statistics
        self._delay_levels = delay_levels
        self._clock = clock
        self._admission = PutAdmission(config, queues, delay_levels=delay_levels)
        self._topic_parts = self._admission.topic_parts
        self.reconfigure(config)
        self.is_slave = config.broker_role is BrokerRole.SLAVE
        self.next_offsets: dict[tuple[str, int], int] = {}
        """The next queue offset of each queue, by topic and queue id."""
        self.began_ms = 0
        """When the append under way began, 0 while there is none; see ``is_page_cache_busy``."""
        self.delivered_until_ms = 0
        """Up to which time messages that named one have been delivered."""
        self.undispatched = UndispatchedWaiting()
        self.closed = False
        self.lock = threading.Lock()
        """Held while something is appended."""

    def reconfigure(self, config: StoreConfig) -> None:
        """Take the largest message and record from settings, and whether puts wait."""
        self._waits = (
            config.flush_mode is FlushMode.SYNC or config.broker_role is BrokerRole.SYNC_MASTER
        )
        self._admission.limit_sizes(config)
        self.body_size_max = self._admission.body_size_max
        self.record_size_max = self._admission.record_size_max

    @property
    def busy_ms(self) -> int:
        """How long the append under way has taken so far, 0 if there is none."""
        began = self.began_ms
        return max(self._clock.now_ms() - began, 0) if began else 0

    @property
    def is_page_cache_busy(self) -> bool:
        """Whether an append has been stuck in the page cache for too long.  Ask from any thread."""
        began = self.began_ms
        if not began:
            return False
        stuck_ms = self._clock.now_ms() - began
        return self._config.page_cache_busy_timeout_ms < stuck_ms < BUSY_SINCE_MAX_MS

    @property
    def may_refuse(self) -> bool:
        """Whether there may be a reason to refuse every put."""
        return bool(self.began_ms or self.closed or self.is_slave or not self._flags.writable)

    def _refuse(self) -> None:
        """Raise why nothing can be put right now."""
        if self.closed:
            raise PutRefusedError(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        if self.is_slave:
            raise PutRefusedError(PutStatus.SERVICE_NOT_AVAILABLE, "a slave takes no messages")
        if not self._flags.writable:
            reason = "; ".join(self._flags.reasons())
            raise PutRefusedError(PutStatus.SERVICE_NOT_AVAILABLE, reason)
        if self.is_page_cache_busy:
            raise PutRefusedError(
                PutStatus.OS_PAGECACHE_BUSY,
                f"an append has been under way since {self.began_ms}",
            )

    def _answer(self, append: Callable[[_Put], PutResult], what: _Put) -> PutResult:
        """Append in turn with other threads, and turn what goes wrong into a status."""
        try:
            if self.may_refuse:
                self._refuse()
            with self.lock:
                try:
                    return append(what)
                finally:
                    self.began_ms = 0
        except (FormatError, StoreError) as error:
            return self._failed(error)

    def _failed(self, error: FormatError | StoreError) -> PutResult:
        """Count a put that was refused or went wrong, and return why."""
        if isinstance(error, PutRefusedError):
            status = error.status
        elif isinstance(error, FormatError):
            status = PutStatus.MESSAGE_ILLEGAL
        else:
            status = PutStatus.CREATE_MAPPED_FILE_FAILED
        self._statistics.record_failed_put()
        return PutResult(status, reason=str(error))

    # -- one message -------------------------------------------------------------------------

    def put(self, message: PutMessage) -> PutResult:
        """Append one message; never waits for the disk."""
        return self._answer(self._append, message)

    def _append(self, message: PutMessage) -> PutResult:
        properties = message.properties
        text = message.properties_text
        if text is None:
            text = encode_properties(properties)
        topic = message.topic
        queue_id = message.queue_id
        if (
            len(text) > PROPERTIES_LENGTH_MAX
            or len(message.body) > self.body_size_max
            or topic not in self._topic_parts
        ):
            self._admission.check_lengths(topic, text, len(message.body))
        if queue_id < 0:
            self._admission.check_queue_id(queue_id)
        # A message put to the schedule topic itself waits there already.
        if DELAY in properties and topic != SCHEDULE_TOPIC and _enters_queue(message.sys_flag):
            level = self._admission.delay_level(properties)
            if level > 0:
                return self._append_delayed(message, level)
        if not _DELIVERY_TIMES.isdisjoint(properties) and topic not in _NEVER_WAITING:
            waiting = self._waiting(message)
            if waiting is not None:
                return waiting
        if self._admission.multi_dispatch and properties.get(INNER_MULTI_DISPATCH):
            return self._append_multi(message)
        return self._write(message, topic, queue_id, properties, text, _NO_SLOTS)

    def _waiting(self, message: PutMessage) -> PutResult | None:
        """Append a message to where it waits for the time that it names, None if that is over."""
        if not _enters_queue(message.sys_flag):
            return None
        now_ms = self._clock.now_ms()
        waiting = waiting_put(
            message,
            now_ms=now_ms,
            delivered_until_ms=self.delivered_until_ms,
            delay_max_s=self._config.delivery_delay_max_s,
        )
        if waiting is None:
            return None
        text = waiting.properties_text
        assert text is not None
        self._admission.check_lengths(waiting.topic, text, len(waiting.body))
        # As with delayed messages, its further queues get it when it is delivered.
        result = self._write(
            waiting, waiting.topic, waiting.queue_id, waiting.properties, text, _NO_SLOTS
        )
        until_ms = int(waiting.properties[TIMER_OUT_MS])
        self.undispatched.add(result.physical_offset, until_ms)
        self._statistics.record_delay(message.topic, until_ms - now_ms)
        return result

    def _append_delayed(self, message: PutMessage, level: int) -> PutResult:
        """Append a message to the queue of its delay level, where it waits."""
        properties = {
            **message.properties,
            DELAY: str(level),
            REAL_TOPIC: message.topic,
            REAL_QID: str(message.queue_id),
        }
        text = encode_properties(properties)
        self._admission.check_lengths(SCHEDULE_TOPIC, text, len(message.body))
        # Its further queues get it when it is delivered, not before.
        result = self._write(message, SCHEDULE_TOPIC, level - 1, properties, text, _NO_SLOTS)
        self._statistics.record_delay(message.topic, self._delay_levels.delay_ms(level))
        return result

    def _append_multi(self, message: PutMessage) -> PutResult:
        """Append a message that enters further queues besides its own (spec: multi-dispatch)."""
        lmq, admission = self._config.enable_lmq, self._admission
        names = message.properties[INNER_MULTI_DISPATCH].split(",")
        admission.check_further_count(len(names))
        slots = []
        for name in names:
            queue_id = 0 if lmq and name.startswith(LMQ_PREFIX) else message.queue_id
            admission.check_topic(name)
            slots.append(QueueSlot(name, queue_id, self.next_offsets.get((name, queue_id), 0)))
        properties = {name: value for name, value in message.properties.items() if name != WAIT} | {
            INNER_MULTI_QUEUE_OFFSET: ",".join(str(slot.queue_offset) for slot in slots)
        }
        text = encode_properties(properties)
        admission.check_lengths(message.topic, text, len(message.body))
        admission.claim_queues(((slot.name, slot.queue_id) for slot in slots), self.next_offsets)
        result = self._write(message, message.topic, message.queue_id, properties, text, slots)
        result.wait_for_flush = self._waits and _wants_wait(message.properties)
        for slot in slots:
            self.next_offsets[(slot.name, slot.queue_id)] = slot.queue_offset + 1
        return result

    def _write(
        self,
        message: PutMessage,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str],
        text: bytes,
        slots: Sequence[QueueSlot],
    ) -> PutResult:
        """Give the message its offsets and its time, and copy it to the end of the log.

        This is the hot path of a broker: it avoids what calls it can.
        """
        clock = self._clock
        began = clock.monotonic()
        self.began_ms = now = clock.now_ms()
        topic_part = self._topic_parts.get(topic) or self._admission.topic_part(topic)
        born_host, store_host, sys_flag = message.born_host, message.store_host, message.sys_flag
        if sys_flag & HOSTS_MASK or len(born_host) + len(store_host) != 2 * IPV4_HOST_SIZE:
            sys_flag = with_hosts(sys_flag, born_host=born_host, store_host=store_host)
        fixed_size = FIXED_SIZES[sys_flag & HOSTS_MASK] - TOPIC_LENGTH_SIZE
        size = fixed_size + len(topic_part) + len(message.body) + len(text)
        if size > self.record_size_max:
            self._admission.check_record_size(size)
        tags, keys = dispatch_fields_of_map(topic, properties, now, self._delay_levels)
        in_queue = not sys_flag & TRANSACTION_MASK or _enters_queue(sys_flag)
        queue_key = (topic, queue_id)
        queue_offset = self.next_offsets.get(queue_key, 0) if in_queue else 0
        file = self._log.room_for(size)
        physical_offset = file.first_offset + file.wrote
        record = encode_with_topic(
            topic_part,
            queue_id,
            message.flag,
            queue_offset,
            physical_offset,
            sys_flag,
            message.born_timestamp,
            born_host,
            now,
            store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body,
            text,
        )
        end = file.wrote + size
        target = file.view if file.write_buffer is None else file.write_buffer
        target[file.wrote : end] = record
        file.wrote, file.store_timestamp = end, now
        if in_queue:
            self.next_offsets[queue_key] = queue_offset + 1
        # NamedTuple's own constructor takes twice the time of the tuple's.
        fields = topic, queue_id, physical_offset, size, tags, now, queue_offset, sys_flag, keys
        request = tuple.__new__(DispatchRequest, (*fields, properties, slots))
        self._dispatcher.add(request)
        self._statistics.record_put(topic, 1, size, int((clock.monotonic() - began) * 1_000_000))
        return PutResult(
            PutStatus.PUT_OK,
            physical_offset,
            size,
            queue_offset,
            now,
            message.store_host,
            self._waits and _wants_wait(properties),
        )

    # -- a batch -----------------------------------------------------------------------------

    def put_batch(self, batch: MessageBatch) -> PutResult:
        """Append the messages of a batch together: all of them, in one file, or none."""
        return self._answer(self._append_batch, batch)

    def prepare_batch(self, batch: MessageBatch) -> Steps[PreparedBatch | PutResult]:
        """Make a batch ready for `put_prepared` in steps; return why not, if it is refused."""
        try:
            if self.may_refuse:
                self._refuse()
            return (yield from prepare_batch(batch, self._admission))
        except (FormatError, StoreError) as error:
            return self._failed(error)

    def put_prepared(self, prepared: PreparedBatch) -> PutResult:
        """Append a batch that was made ready."""
        return self._answer(self._append_prepared, prepared)

    def _append_batch(self, batch: MessageBatch) -> PutResult:
        return self._append_prepared(finish(prepare_batch(batch, self._admission)))

    def _append_prepared(self, prepared: PreparedBatch) -> PutResult:
        """Give the messages of a batch their offsets, and copy them to the end of the log."""
        batch, topic_part, sizes, records, _, space_count = prepared
        topic, queue_id, count, total = batch.topic, batch.queue_id, len(sizes), len(records)
        self.began_ms = now = self._clock.now_ms()
        origin, sys_flag = _origin_of(batch, now)
        if not self._log.fits(total):
            raise illegal(f"batch of {total} bytes does not fit a log file")
        file = self._log.room_for(total)
        offsets = tuple(accumulate(sizes[:-1], initial=file.first_offset + file.wrote))
        first = self.next_offsets.get((topic, queue_id), 0)
        queue_offsets = range(first, first + count)
        place_records(records, sizes, queue_offsets, offsets, origin)
        in_steps = self._dispatcher.run_limit.is_for_steps(count=count, key_count=space_count)
        requests = (
            ()
            if in_steps
            else self._requests_of(
                topic_part,
                queue_id,
                now,
                sys_flag,
                zip(offsets, sizes, queue_offsets, prepared.texts, strict=True),
            )
        )
        end = file.wrote + total
        target = file.view if file.write_buffer is None else file.write_buffer
        target[file.wrote : end] = records
        file.wrote, file.store_timestamp = end, now
        self.next_offsets[(topic, queue_id)] = queue_offsets.stop
        if in_steps:
            self._dispatcher.read_back()
        for request in requests:
            self._dispatcher.add(request)
        self._statistics.record_put(topic, count, total, 0)
        return PutResult(
            PutStatus.PUT_OK,
            offsets[0],
            total,
            first,
            now,
            batch.store_host,
            self._waits and _wants_wait(batch.properties),
            count,
            offsets,
        )

    def _requests_of(
        self,
        topic_part: bytes,
        queue_id: int,
        store_timestamp: int,
        sys_flag: int,
        messages: Iterable[tuple[int, int, int, bytes]],
    ) -> list[DispatchRequest]:
        """Return what the views get of the messages of a batch.

        Each has a physical offset, a size, a queue offset and a properties text.
        """
        topic, levels = topic_part[TOPIC_LENGTH_SIZE:], self._delay_levels
        return [
            stored_request(
                topic,
                queue_id,
                offset,
                size,
                store_timestamp,
                queue_offset,
                sys_flag,
                text,
                delay_levels=levels,
            )
            for offset, size, queue_offset, text in messages
        ]


def _origin_of(batch: MessageBatch, now: int) -> tuple[bytes, int]:
    """Return the origin that the records of a batch share, and their sys flag."""
    sys_flag = with_hosts(batch.sys_flag, born_host=batch.born_host, store_host=batch.store_host)
    origin = pack_origin(
        sys_flag,
        batch.born_timestamp,
        batch.born_host,
        now,
        batch.store_host,
        batch.reconsume_times,
        0,
    )
    return origin, sys_flag


def _enters_queue(sys_flag: int) -> bool:
    """Whether a record has a queue offset: prepared and rolled-back ones have none."""
    return sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)


def _wants_wait(properties: Mapping[str, str]) -> bool:
    """Whether the producer waits until the message is flushed; it does unless it says no."""
    wait = properties.get(WAIT)
    return wait is None or wait.lower() == "true"
