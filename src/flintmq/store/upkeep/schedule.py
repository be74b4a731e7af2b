"""Delayed messages: kept in queues of their own until they are due, then put where they belong.

``SCHEDULE_TOPIC_XXXX`` has one queue for each delay level (queue id = level - 1).  Within a level
all messages wait equally long, so the first unit of a queue is always the next one due, and the
tags code of its unit says when.  ``config/delayOffset.json`` keeps for each level the queue offset
of the next unit to deliver.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flintmq.format.errors import FormatError
from flintmq.format.stored.consume_queue_ext import is_address
from flintmq.model.topics import SCHEDULE_TOPIC
from flintmq.store.config import BrokerRole, FlushMode
from flintmq.store.errors import StoreError, StoreLoadError
from flintmq.store.files.state_file import StateFile
from flintmq.store.results import PutStatus
from flintmq.store.upkeep.held_records import (
    LASTING_REFUSALS,
    BadBodyError,
    PoisonError,
    delivery_of,
    read_held,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.model.message import PutMessage
    from flintmq.store.clock import Clock
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.interface import Files
    from flintmq.store.reading.store_reader import StoreReader
    from flintmq.store.results import PutResult
    from flintmq.store.upkeep.schedule_pipeline import DeliveryPipeline, WhenFlushed
    from flintmq.store.views.queue_table import QueueTable, StoredQueue

logger = logging.getLogger(__name__)

DELIVER_COUNT_MAX: Final = 1000
"""How many units one call handles, so that a burst does not keep the owner from its other work."""

RETRY_MS: Final = 100
"""How long a level rests after a put was refused; with pipelining, so much more each time."""

RETRY_MAX_MS: Final = 60_000
HARVEST_MS: Final = 10
"""How soon to look again while deliveries wait for a flush."""

SKIPPED_COUNT_MAX: Final = 100
"""How many skipped units are remembered for a report."""

_OFFSETS: Final = "offsetTable"
_TAG_HASH_END: Final = 1 << 31


class SkippedUnit(NamedTuple):
    """A unit that was passed over, and why."""

    level: int
    queue_offset: int
    physical_offset: int
    reason: str


class LevelProgress(NamedTuple):
    """How far a level is: the next queue offset to deliver, and where its queue ends."""

    offset: int
    end: int


class _Level:
    """Where the delivery of one level stands."""

    __slots__ = (
        "delay_ms",
        "done",
        "due",
        "failure_count",
        "number",
        "pipeline",
        "position",
        "retry_at_ms",
    )

    def __init__(self, number: int, delay_ms: int, pipeline: DeliveryPipeline | None) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.pipeline = pipeline
        self.position = 0
        """The queue offset to go on at; ahead of ``done`` only while a pipeline is under way."""
        self.done = 0
        self.due = (-1, 0)
        """A queue offset and when its message is due: found out once for each."""
        self.failure_count = 0
        self.retry_at_ms = 0
        """On the monotonic clock, because the other one may be set back."""


def _pipeline(when_flushed: WhenFlushed) -> DeliveryPipeline:
    # By default there is none.
    from flintmq.store.upkeep.schedule_pipeline import DeliveryPipeline

    return DeliveryPipeline(when_flushed)


class ScheduleService:
    """Delivers delayed messages, driven by the owner of the store: it has no thread and no timer.

    The owner calls ``deliver_due`` when ``next_due_ms`` says so, and asks that again after it has
    dispatched new messages.  A message is never delivered before it is due, and at least once:
    the saved offsets never run ahead of what is on the disk, so a crash repeats deliveries and
    loses none.

    Better than RocketMQ, and different from it:

    - A unit that can never be delivered (its record is damaged, names no queue, or is refused for
      what it is) blocks its level there for ever.  Here it is logged, counted and passed over; see
      ``skipped``.  A put that fails for any other reason is tried again until it succeeds.
    - RocketMQ looks every 100 ms.  Here the owner knows the very millisecond.
    - A Java broker's abnormal recovery leaves tag hashes where due times belong, and those messages
      are delivered at once.  Here they wait for their time.
    """

    def __init__(
        self,
        config: StoreConfig,
        queues: QueueTable,
        reader: StoreReader,
        *,
        delay_levels: DelayLevels,
        put: Callable[[PutMessage], PutResult],
        dispatch: Callable[[], object],
        flush: Callable[[], None],
        when_flushed: WhenFlushed,
        files: Files,
        clock: Clock,
    ) -> None:
        """Describe the service; ``load`` it before use."""
        self._config = config
        self._queues = queues
        self._reader = reader
        self._put = put
        self._dispatch = dispatch
        self._flush = flush
        self._clock = clock
        self._is_slave = config.broker_role is BrokerRole.SLAVE
        self._state = StateFile(config.root / "config" / "delayOffset.json", files=files)
        # Without synchronous flush nobody is promised anything that a pipeline could wait for.
        pipelined = config.schedule_async_deliver and config.flush_mode is FlushMode.SYNC
        self._levels = [
            _Level(number, delay_ms, _pipeline(when_flushed) if pipelined else None)
            for number, delay_ms in enumerate(delay_levels.delays_ms, start=1)
        ]
        self._offsets: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        self._save_lock = threading.Lock()
        self._housekept_ms = clock.now_ms()
        self._save_failed = False
        self.delivered_count = 0
        self.skipped_count = self.crc_error_count = 0
        self.skipped: deque[SkippedUnit] = deque(maxlen=SKIPPED_COUNT_MAX)
        """The units passed over last."""
        self.expired_count = 0
        """How many messages were deleted with their log file before they were due."""

    # -- state -------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the saved offsets and move those outside their queue to its nearer end.

        Raises:
            StateFileError: the file and its backup are damaged; starting from nothing would
                deliver everything again.
            StoreLoadError: the file holds something else.
        """
        self._saved = self._read_table(self._state.load().value)
        self._offsets = self._saved.copy()
        for level in self._levels:
            queue = self._queue_of(level)
            least, end = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
            saved = self._offsets.get(level.number)
            level.position = level.done = least if saved is None else min(max(saved, least), end)
            if saved is not None and saved != level.position:
                logger.warning(
                    "delay offset corrected: level=%d from=%d to=%d",
                    level.number,
                    saved,
                    level.position,
                )
                self._offsets[level.number] = level.position

    def _read_table(self, state: Any) -> dict[int, int]:
        if state is None:
            return {}
        try:
            # Bare keys are int, quoted ones str; Java reads both.
            return {int(level): int(offset) for level, offset in state[_OFFSETS].items()}
        except (AttributeError, LookupError, TypeError, ValueError):
            raise StoreLoadError(self._state.path, "no table of levels and offsets") from None

    def persist(self) -> bool:
        """Save the offsets if they have changed; return whether they were saved.

        The log is flushed first: an offset that survived a power failure while the delivered
        message did not would be a lost message.  Any thread may call this; it waits for the disk.
        """
        with self._save_lock:
            offsets = self._offsets.copy()
            if self._is_slave or offsets == self._saved:
                return False
            self._flush()
            self._state.save({_OFFSETS: offsets})
            self._saved = offsets
            return True

    def follow(self, offsets: Mapping[int, int]) -> bool:
        """Save how far a master has delivered, on its slave; return whether that is new."""
        assert self._is_slave, "a master knows best how far it is"
        with self._save_lock:
            if offsets == self._saved:
                return False
            self._offsets = dict(offsets)
            self._state.save({_OFFSETS: self._offsets})
            self._saved = dict(offsets)
            return True

    def keeps(self, end_offset: int) -> bool:
        """Whether a message waits in the log before a physical offset; any thread may ask.

        It goes by what is saved: a crash repeats deliveries, and needs their records again.
        """
        for level in self._levels:
            queue = self._queue_of(level)
            if queue is None:
                continue
            unit = queue.unit_at(max(self._saved.get(level.number, 0), queue.min_offset))
            if unit is not None and unit[0] < end_offset:
                return True
        return False

    def housekeep(self, now_ms: int) -> bool:
        """Save the offsets if it is time to; return whether they were saved.

        A disk that refuses is reported once and asked again after the next interval.
        """
        past_ms = now_ms - self._housekept_ms
        if 0 <= past_ms < self._config.flush_delay_offset_interval_ms:
            return False
        self._housekept_ms = now_ms
        return self._try_persist()

    def _try_persist(self) -> bool:
        try:
            saved = self.persist()
        except StoreError as error:
            if not self._save_failed:
                logger.warning("delay offsets not saved: reason=%s", error)
            self._save_failed = True
            return False
        self._save_failed = False
        return saved

    def close(self) -> None:
        """Count what was flushed in the end, and save the offsets; the owner calls this.

        Offsets that cannot be saved are no reason to stop uncleanly: they repeat deliveries.
        """
        for level in self._levels:
            self._harvest(level)
        self._try_persist()

    def progress(self) -> dict[int, LevelProgress]:
        """Return how far each level is that has ever delivered, for the runtime info."""
        progress = {}
        for level, offset in sorted(self._offsets.items()):
            queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
            progress[level] = LevelProgress(offset, 0 if queue is None else queue.max_offset)
        return progress

    # -- delivering --------------------------------------------------------------------------

    def deliver_due(self, count_max: int = DELIVER_COUNT_MAX) -> int:
        """Deliver what is due now, the longest due first; return how many messages that were.

        At most ``count_max`` units are handled; ``next_due_ms`` is in the past while more are due.
        A level whose put is refused stays at that unit and is tried again a little later.
        """
        if self._is_slave:
            return 0
        self._dispatch()
        now_ms = self._clock.now_ms()
        heads: list[tuple[int, int]] = []
        for level in self._levels:
            self._harvest(level)
            self._push_head(heads, level, now_ms)
        delivered = 0
        for _ in range(count_max):
            if not heads:
                break
            level = self._levels[heapq.heappop(heads)[1] - 1]
            delivered += self._deliver(level)
            self._push_head(heads, level, now_ms)
        if delivered:
            self.delivered_count += delivered
            self._dispatch()
        return delivered

    def _push_head(self, heads: list[tuple[int, int]], level: _Level, now_ms: int) -> None:
        if self._rest_ms(level) <= 0 and not self._is_crowded(level):
            due_ms = self._due_ms(level, now_ms)
            if due_ms is not None and due_ms <= now_ms:
                heapq.heappush(heads, (due_ms, level.number))

    def next_due_ms(self) -> int | None:
        """Return when to call ``deliver_due`` next, None while nothing waits.

        It is the very time the next message is due, on the wall clock, or a time in the past.
        """
        if self._is_slave:
            return None
        self._dispatch()
        now_ms = self._clock.now_ms()
        times = []
        for level in self._levels:
            if level.pipeline:
                times.append(now_ms + HARVEST_MS)
            due_ms = self._due_ms(level, now_ms)
            if due_ms is not None and not self._is_crowded(level):
                rest_ms = self._rest_ms(level)
                times.append(max(due_ms, now_ms + rest_ms) if rest_ms > 0 else due_ms)
        return min(times, default=None)

    def _rest_ms(self, level: _Level) -> int:
        """Return how long a level still rests after a failure; not positive when it does not."""
        return level.retry_at_ms - self._monotonic_ms() if level.failure_count else 0

    def _monotonic_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def _is_crowded(self, level: _Level) -> bool:
        """Whether a level has to wait for its pipeline before it goes on."""
        if not level.pipeline:
            return False
        return (
            len(level.pipeline) > self._config.schedule_async_pending_max
            or level.failure_count > self._config.schedule_async_resend_max
        )

    def _queue_of(self, level: _Level) -> StoredQueue | None:
        return self._queues.get(SCHEDULE_TOPIC, level.number - 1)

    def _due_ms(self, level: _Level, now_ms: int) -> int | None:
        """Return when the next message of a level is due, None when the level is empty.

        A time further ahead than the level's delay cannot be right (the clock was set back, or
        the level made shorter): that message is due at once, as with RocketMQ.
        """
        queue = self._queue_of(level)
        if queue is None:
            return None
        if level.position < queue.min_offset:
            expired = queue.min_offset - level.position
            self.expired_count += expired
            logger.warning("delayed messages expired: level=%d count=%d", level.number, expired)
            level.position = level.done = queue.min_offset
        if level.due[0] != level.position:
            unit = queue.unit_at(level.position)
            if unit is None:
                return None
            level.due = (level.position, self._find_due(level, queue, *unit))
        due_ms = level.due[1]
        return now_ms if due_ms > now_ms + level.delay_ms else due_ms

    def _find_due(
        self, level: _Level, queue: StoredQueue, physical_offset: int, size: int, code: int
    ) -> int:
        if is_address(code):
            ext = queue.resolve(code)
            code = ext.tags_code if ext is not None else 0
        if code >= _TAG_HASH_END:
            return code
        # The extension is lost, or the unit holds the hash of a tag: the record itself knows.
        try:
            stored_ms = self._reader.store_time(physical_offset, size)
        except FormatError:
            stored_ms = -1
        return stored_ms + level.delay_ms if stored_ms >= 0 else 0

    def _deliver(self, level: _Level) -> int:
        """Handle the next unit of a level; return how many messages that delivered, 0 or 1."""
        queue = self._queue_of(level)
        unit = queue.unit_at(level.position) if queue is not None else None
        if unit is None:
            return 0
        try:
            message = delivery_of(
                read_held(self._reader, SCHEDULE_TOPIC, level.number - 1, unit[0], unit[1])
            )
        except PoisonError as error:
            self.crc_error_count += isinstance(error, BadBodyError)
            self._skip(level, unit[0], str(error))
            return 0
        result = self._put(message)
        if result.status is PutStatus.PUT_OK:
            self._move_on(level, result)
            return 1
        reason = f"{result.status.value}: {result.reason}"
        if result.status in LASTING_REFUSALS:
            self._skip(level, unit[0], reason)
        else:
            self._fail(level, reason)
        return 0

    def _move_on(self, level: _Level, result: PutResult | None = None) -> None:
        """Go to the next unit; with a pipeline this one counts only when it is flushed."""
        level.position += 1
        pipeline = level.pipeline
        if pipeline is not None and (result is not None or pipeline):
            # A unit without a delivery is done when those before it are.
            end_offset = result.end_offset if result is not None else 0
            pipeline.add(level.position, end_offset)
            return
        self._count_done(level, level.position)

    def _count_done(self, level: _Level, offset: int) -> None:
        level.done = self._offsets[level.number] = offset
        level.failure_count = 0

    def _skip(self, level: _Level, physical_offset: int, reason: str) -> None:
        skipped = SkippedUnit(level.number, level.position, physical_offset, reason)
        self.skipped_count += 1
        self.skipped.append(skipped)
        logger.warning(
            "delayed message skipped: level=%d offset=%d physical_offset=%d reason=%s", *skipped
        )
        self._move_on(level)

    def _fail(self, level: _Level, reason: str) -> None:
        """Let a level rest, and say so the first time."""
        level.failure_count += 1
        rest_ms = RETRY_MS
        if level.pipeline is not None:
            rest_ms = min(RETRY_MS * level.failure_count, RETRY_MAX_MS)
        level.retry_at_ms = self._monotonic_ms() + rest_ms
        if level.failure_count == 1:
            logger.warning(
                "delivery waits: level=%d offset=%d reason=%s", level.number, level.position, reason
            )

    def _harvest(self, level: _Level) -> None:
        """Count what was flushed meanwhile; after a failure go back to what was not."""
        if not level.pipeline:
            return
        done, failure = level.pipeline.harvest()
        if done is not None:
            self._count_done(level, done)
        if failure is not None:
            level.position = level.done
            self._fail(level, failure)
