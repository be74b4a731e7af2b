"""Appending: checks a message, gives it its offsets and copies it to the end of the log."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from flintmq.format.batch import decode_batch, join_properties
from flintmq.format.errors import FormatError
from flintmq.format.java import tags_code
from flintmq.format.properties import encode_properties
from flintmq.format.record import (
    PROPERTIES_LENGTH_MAX,
    TOPIC_LENGTH_MAX,
    encode_record,
    record_size,
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
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    KEYS,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    WAIT,
)
from flintmq.model.topics import LMQ_PREFIX, SCHEDULE_TOPIC
from flintmq.store.config import BrokerRole, FlushMode
from flintmq.store.dispatch_request import DispatchRequest, QueueSlot
from flintmq.store.errors import StoreError
from flintmq.store.files import is_safe_name
from flintmq.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flintmq.format.batch import BatchItem
    from flintmq.format.delay_levels import DelayLevels
    from flintmq.model.message import Message, MessageBatch
    from flintmq.store.clock import Clock
    from flintmq.store.commit_log import CommitLog
    from flintmq.store.config import StoreConfig
    from flintmq.store.dispatch import Dispatcher
    from flintmq.store.flags import RunningFlags
    from flintmq.store.mapped_file import MappedFile
    from flintmq.store.queue_table import QueueTable
    from flintmq.store.statistics import StoreStatistics

_Put = TypeVar("_Put", "Message", "MessageBatch")

RECORD_OVERHEAD_MAX: Final = 64 * 1024
"""How much a record may be larger than the body limit."""

BUSY_SINCE_MAX_MS: Final = 10_000_000
"""Java's upper bound of a believable time in the put lock."""

TOPIC_CACHE_MAX: Final = 16_384
BATCH_COUNT_MAX: Final = 65_536
_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,9}")
NO_KEYS: Final[tuple[bytes, ...]] = ()
NO_SLOTS: Final[tuple[QueueSlot, ...]] = ()


class RefusedError(StoreError):
    """A put is refused; carries the status the caller gets."""

    def __init__(self, status: PutStatus, reason: str) -> None:
        self.status = status
        super().__init__(reason)


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
        self.body_size_max = config.max_message_size
        self.record_size_max = min(
            config.max_message_size + RECORD_OVERHEAD_MAX, config.commit_log_file_size - 8
        )
        self._waits = config.flush_mode is FlushMode.SYNC
        self._is_slave = config.broker_role is BrokerRole.SLAVE
        self._multi_dispatch = config.enable_multi_dispatch
        self._topics: dict[str, bytes] = {}
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.began_ms = 0
        """When the append under way began, 0 while there is none; see ``is_page_cache_busy``."""
        self.closed = False
        self.lock = threading.Lock()
        """Held while something is appended."""

    @property
    def is_page_cache_busy(self) -> bool:
        """Whether an append has been stuck in the page cache for too long.  Ask from any thread."""
        began = self.began_ms
        if not began:
            return False
        stuck_ms = self._clock.now_ms() - began
        return self._config.page_cache_busy_timeout_ms < stuck_ms < BUSY_SINCE_MAX_MS

    # -- one message -------------------------------------------------------------------------

    def put(self, message: Message) -> PutResult:
        """Append one message; never waits for the disk."""
        return self._answer(self._append, message)

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
        except RefusedError as refused:
            result = PutResult(refused.status, reason=str(refused))
        except FormatError as error:
            result = PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        except StoreError as error:
            result = PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, reason=str(error))
        self._statistics.record_failed_put()
        return result

    def _append(self, message: Message) -> PutResult:
        properties = message.properties
        text = message.properties_text
        if text is None:
            text = encode_properties(properties)
        topic = message.topic
        queue_id = message.queue_id
        if (
            len(text) > PROPERTIES_LENGTH_MAX
            or len(message.body) > self.body_size_max
            or topic not in self._topics
        ):
            self._check_lengths(topic, text, len(message.body))
        if queue_id < 0:
            raise RefusedError(PutStatus.MESSAGE_ILLEGAL, f"queue id {queue_id} is negative")
        # A message put to the schedule topic itself waits there already.
        if DELAY in properties and topic != SCHEDULE_TOPIC and _enters_queue(message.sys_flag):
            level = self._delay_level(properties)
            if level > 0:
                properties = {
                    **properties,
                    DELAY: str(level),
                    REAL_TOPIC: topic,
                    REAL_QID: str(queue_id),
                }
                text = encode_properties(properties)
                self._check_lengths(SCHEDULE_TOPIC, text, len(message.body))
                # Its further queues get it when it is delivered, not before.
                return self._write(message, SCHEDULE_TOPIC, level - 1, properties, text, NO_SLOTS)
        if self._multi_dispatch and properties.get(INNER_MULTI_DISPATCH):
            return self._append_multi(message)
        return self._write(message, topic, queue_id, properties, text, NO_SLOTS)

    def _write(
        self,
        message: Message,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str],
        text: bytes,
        slots: Sequence[QueueSlot],
    ) -> PutResult:
        """Give the message its place and times, and copy it there.

        This is the hot path of a broker: it avoids what calls it can.
        """
        clock = self._clock
        began = clock.monotonic()
        self.began_ms = now = clock.now_ms()
        body = message.body
        born_host = message.born_host
        store_host = message.store_host
        sys_flag = message.sys_flag
        if sys_flag & HOSTS_MASK or len(born_host) != 8 or len(store_host) != 8:
            sys_flag = with_hosts(sys_flag, born_host=born_host, store_host=store_host)
        topic_bytes = self._topics.get(topic) or self._encode_topic(topic)
        size = record_size(sys_flag, len(body), len(topic_bytes), len(text))
        if size > self.record_size_max:
            raise RefusedError(
                PutStatus.MESSAGE_ILLEGAL,
                f"record of {size} bytes, at most {self.record_size_max} fit",
            )
        if topic == SCHEDULE_TOPIC:
            tags = self._due_time(properties, now)
        else:
            tags_text = properties.get(TAGS)
            tags = tags_code(tags_text) if tags_text else 0
        in_queue = not sys_flag & TRANSACTION_MASK or _enters_queue(sys_flag)
        queue_key = (topic, queue_id)
        queue_offset = self.next_offsets.get(queue_key, 0) if in_queue else 0
        file = self._log.room_for(size)
        position = file.wrote
        physical_offset = file.first_offset + position
        record = encode_record(
            topic_bytes,
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
            body,
            text,
        )
        target = file.write_buffer
        if target is None:
            target = file.view
        target[position : position + size] = record
        file.wrote = position + size
        file.store_timestamp = now
        if in_queue:
            self.next_offsets[queue_key] = queue_offset + 1
        # NamedTuple's own constructor takes twice the time of the tuple's.
        request = tuple.__new__(
            DispatchRequest,
            (
                topic,
                queue_id,
                physical_offset,
                size,
                tags,
                now,
                queue_offset,
                sys_flag,
                _keys(properties),
                properties,
                slots,
            ),
        )
        self._dispatcher.add(request)
        self._statistics.record_put(topic, 1, size, int((clock.monotonic() - began) * 1_000_000))
        return PutResult(
            PutStatus.PUT_OK,
            physical_offset,
            size,
            queue_offset,
            now,
            store_host,
            self._waits and _wants_wait(properties),
        )

    def _append_multi(self, message: Message) -> PutResult:
        """Append a message that enters further queues besides its own (spec: multi-dispatch)."""
        lmq = self._config.enable_lmq
        names = message.properties[INNER_MULTI_DISPATCH].split(",")
        slots = []
        for name in names:
            is_lmq = lmq and name.startswith(LMQ_PREFIX)
            queue_id = 0 if is_lmq else message.queue_id
            self._check_topic(name)
            if is_lmq and self._queues.get(name, 0) is None:
                self._check_lmq_count()
            slots.append(QueueSlot(name, queue_id, self.next_offsets.get((name, queue_id), 0)))
        properties = {name: value for name, value in message.properties.items() if name != WAIT} | {
            INNER_MULTI_QUEUE_OFFSET: ",".join(str(slot.queue_offset) for slot in slots)
        }
        text = encode_properties(properties)
        self._check_lengths(message.topic, text, len(message.body))
        result = self._write(message, message.topic, message.queue_id, properties, text, slots)
        result.wait_for_flush = self._waits and _wants_wait(message.properties)
        for slot in slots:
            self.next_offsets[(slot.name, slot.queue_id)] = slot.queue_offset + 1
        return result

    # -- a batch -----------------------------------------------------------------------------

    def put_batch(self, batch: MessageBatch) -> PutResult:
        """Append the messages of a batch together: all of them, in one file, or none."""
        return self._answer(self._append_batch, batch)

    def _append_batch(self, batch: MessageBatch) -> PutResult:
        if len(batch.body) > self.body_size_max:
            raise RefusedError(
                PutStatus.MESSAGE_ILLEGAL,
                f"batch of {len(batch.body)} bytes, at most {self.body_size_max}",
            )
        is_delayed = DELAY in batch.properties and self._delay_level(batch.properties) > 0
        if batch.sys_flag & TRANSACTION_MASK != TRANSACTION_NONE or is_delayed:
            raise RefusedError(PutStatus.MESSAGE_ILLEGAL, "a batch is neither half nor delayed")
        if batch.queue_id < 0:
            raise RefusedError(PutStatus.MESSAGE_ILLEGAL, f"queue id {batch.queue_id} is negative")
        text = batch.properties_text
        if text is None:
            text = encode_properties(batch.properties)
        self._check_lengths(batch.topic, text, 0)
        sys_flag = batch.sys_flag
        sys_flag = with_hosts(sys_flag, born_host=batch.born_host, store_host=batch.store_host)
        topic_bytes = self._topics.get(batch.topic) or self._encode_topic(batch.topic)
        items = decode_batch(batch.body, count_max=BATCH_COUNT_MAX)
        if not items:
            raise RefusedError(PutStatus.MESSAGE_ILLEGAL, "the batch is empty")
        texts = []
        sizes = []
        for item in items:
            joined = join_properties(item.properties, text)
            if len(joined) > PROPERTIES_LENGTH_MAX:
                raise RefusedError(
                    PutStatus.PROPERTIES_SIZE_EXCEEDED, f"{len(joined)} bytes of properties"
                )
            texts.append(joined)
            sizes.append(record_size(sys_flag, len(item.body), len(topic_bytes), len(joined)))
        total = sum(sizes)
        if not self._log.fits(total):
            raise RefusedError(
                PutStatus.MESSAGE_ILLEGAL, f"batch of {total} bytes does not fit a log file"
            )
        self.began_ms = self._clock.now_ms()
        return self._write_batch(batch, sys_flag, topic_bytes, items, texts, sizes, total)

    def _write_batch(
        self,
        batch: MessageBatch,
        sys_flag: int,
        topic_bytes: bytes,
        items: list[BatchItem],
        texts: list[bytes],
        sizes: list[int],
        total: int,
    ) -> PutResult:
        now = self.began_ms
        file = self._log.room_for(total)
        first_offset = file.first_offset + file.wrote
        topic, queue_id = batch.topic, batch.queue_id
        first_queue_offset = self.next_offsets.get((topic, queue_id), 0)
        physical_offset, queue_offset = first_offset, first_queue_offset
        records, offsets, requests = [], [], []
        for item, text, size in zip(items, texts, sizes, strict=True):
            records.append(
                encode_record(
                    topic_bytes,
                    queue_id,
                    item.flag,
                    queue_offset,
                    physical_offset,
                    sys_flag,
                    batch.born_timestamp,
                    batch.born_host,
                    now,
                    batch.store_host,
                    batch.reconsume_times,
                    0,
                    item.body,
                    text,
                )
            )
            offsets.append(physical_offset)
            requests.append(
                (physical_offset, size, queue_offset, text),
            )
            physical_offset += size
            queue_offset += 1
        self._copy(file, b"".join(records), now)
        self.next_offsets[(topic, queue_id)] = queue_offset
        for at, size, number, text in requests:
            self._dispatcher.add_stored(topic, queue_id, at, size, now, number, sys_flag, text)
        self._statistics.record_put(topic, len(items), total, 0)
        return PutResult(
            PutStatus.PUT_OK,
            first_offset,
            total,
            first_queue_offset,
            now,
            batch.store_host,
            self._waits and _wants_wait(batch.properties),
            len(items),
            tuple(offsets),
        )

    @staticmethod
    def _copy(file: MappedFile, data: bytes, now: int) -> None:
        target = file.write_buffer if file.write_buffer is not None else file.view
        target[file.wrote : file.wrote + len(data)] = data
        file.wrote += len(data)
        file.store_timestamp = now

    # -- checks ------------------------------------------------------------------------------

    @property
    def may_refuse(self) -> bool:
        """Whether there may be a reason to refuse a put."""
        return bool(self.began_ms or self.closed or self._is_slave or not self._flags.writable)

    def _refuse(self) -> None:
        """Raise why nothing can be put right now."""
        if self.closed:
            raise RefusedError(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        if self._is_slave:
            raise RefusedError(PutStatus.SERVICE_NOT_AVAILABLE, "a slave takes no messages")
        if not self._flags.writable:
            raise RefusedError(PutStatus.SERVICE_NOT_AVAILABLE, "; ".join(self._flags.reasons()))
        if self.is_page_cache_busy:
            raise RefusedError(
                PutStatus.OS_PAGECACHE_BUSY,
                f"an append has been under way since {self.began_ms}",
            )

    def _check_lengths(self, topic: str, text: bytes, body_size: int) -> None:
        if len(topic) > TOPIC_LENGTH_MAX:
            raise RefusedError(
                PutStatus.MESSAGE_ILLEGAL, f"topic of {len(topic)} characters, at most 127"
            )
        if len(text) > PROPERTIES_LENGTH_MAX:
            # RocketMQ counts UTF-16 characters first, bytes second, with different answers.
            characters = len(text.decode("utf-8", "replace").encode("utf-16-le")) // 2
            if characters > PROPERTIES_LENGTH_MAX:
                raise RefusedError(
                    PutStatus.MESSAGE_ILLEGAL, f"properties of {characters} characters"
                )
            raise RefusedError(
                PutStatus.PROPERTIES_SIZE_EXCEEDED, f"properties of {len(text)} bytes"
            )
        if body_size > self.body_size_max:
            raise RefusedError(
                PutStatus.MESSAGE_ILLEGAL,
                f"body of {body_size} bytes, at most {self.body_size_max}",
            )

    def _check_topic(self, topic: str) -> None:
        """Refuse a name that cannot be the name of a queue directory."""
        if not is_safe_name(topic):
            raise RefusedError(PutStatus.MESSAGE_ILLEGAL, f"not a topic name: {topic!r}")

    def _check_lmq_count(self) -> None:
        if self._queues.lmq_count >= self._config.lmq_queue_count_max:
            raise RefusedError(
                PutStatus.LMQ_QUEUE_COUNT_EXCEEDED,
                f"{self._queues.lmq_count} light queues, at most "
                f"{self._config.lmq_queue_count_max}",
            )

    def _encode_topic(self, topic: str) -> bytes:
        self._check_topic(topic)
        try:
            encoded = topic.encode()
        except UnicodeEncodeError:
            raise RefusedError(PutStatus.MESSAGE_ILLEGAL, f"not a topic name: {topic!r}") from None
        if len(encoded) > TOPIC_LENGTH_MAX:
            raise RefusedError(
                PutStatus.MESSAGE_ILLEGAL, f"topic of {len(encoded)} bytes, at most 127"
            )
        if len(self._topics) >= TOPIC_CACHE_MAX:
            self._topics.clear()
        self._topics[topic] = encoded
        return encoded

    def _delay_level(self, properties: Mapping[str, str]) -> int:
        text = properties[DELAY]
        # int() would also take spaces and underscores, which RocketMQ does not.
        if _LEVEL.fullmatch(text) is None:
            raise RefusedError(
                PutStatus.MESSAGE_ILLEGAL, f"delay level {text[:32]!r} is not a number"
            )
        return min(int(text), self._delay_levels.max_level)

    def _due_time(self, properties: Mapping[str, str], now: int) -> int:
        """Return the tags code of a delayed message: when it is due."""
        level = self._delay_level(properties) if DELAY in properties else 0
        if level > 0:
            return self._delay_levels.due_time(level, now)
        tags = properties.get(TAGS)
        return tags_code(tags) if tags else 0


def _enters_queue(sys_flag: int) -> bool:
    """Whether a record has a queue offset: prepared and rolled-back ones have none."""
    return sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)


def _keys(properties: Mapping[str, str]) -> Sequence[bytes]:
    unique = properties.get(UNIQ_KEY)
    keys = properties.get(KEYS)
    if not keys:
        return (unique.encode(),) if unique else NO_KEYS
    parts = [part.encode() for part in keys.split(" ") if part]
    if unique:
        parts.insert(0, unique.encode())
    return parts


def _wants_wait(properties: Mapping[str, str]) -> bool:
    wait = properties.get(WAIT)
    return wait is None or wait.lower() == "true"
