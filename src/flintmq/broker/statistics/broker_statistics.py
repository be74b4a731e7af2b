"""Counters of a broker: how much was sent and fetched, by topic, group and queue.

Each counter keeps samples: every 10 seconds for the last minute, every 10 minutes for the last
hour, every hour for the last day.  What a counter gained in a
period is the difference of the last and the first sample of it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

TOPIC_PUT_COUNT: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_GET_COUNT: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
GROUP_GET_LATENCY: Final = "GROUP_GET_LATENCY"
QUEUE_PUT_COUNT: Final = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE: Final = "QUEUE_PUT_SIZE"
QUEUE_GET_COUNT: Final = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE: Final = "QUEUE_GET_SIZE"
GROUP_FALL_SIZE: Final = "GROUP_GET_FALL_SIZE"
GROUP_FALL_TIME: Final = "GROUP_GET_FALL_TIME"
SEND_BACK_COUNT: Final = "SNDBCK_PUT_NUMS"
COMMIT_COUNT: Final = "TRANSACTION_COMMIT_NUMS"
ROLLBACK_COUNT: Final = "TRANSACTION_ROLLBACK_NUMS"
BROKER_PUT_COUNT: Final = "BROKER_PUT_NUMS"
BROKER_GET_COUNT: Final = "BROKER_GET_NUMS"

COUNTER_COUNT_MAX: Final = 200_000
"""Counters of one broker; clients choose the topics and groups, so there is a limit."""

SAMPLE_STEP: Final = 200
"""Counters that are sampled without an interruption."""

ENTER_STEP: Final = 32
"""Queues whose puts and gets are entered into the counters without an interruption."""

_DIGITS_MAX: Final = 10
_MINUTE_POINTS: Final = 7
_HOUR_POINTS: Final = 7
_DAY_POINTS: Final = 25
_TEN_SECONDS_MS: Final = 10_000
_TEN_MINUTES_MS: Final = 600_000
_HOUR_MS: Final = 3_600_000


class _CounterSample(NamedTuple):
    time_ms: int
    value: int
    times: int


class PeriodTotals(NamedTuple):
    """What a counter gained in a period of time."""

    sum: int = 0
    per_second: float = 0.0
    per_time: float = 0.0


class Counter:
    """A number that only grows, and samples of what it was before."""

    __slots__ = ("_day", "_hour", "_minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self._minute: deque[_CounterSample] = deque(maxlen=_MINUTE_POINTS)
        self._hour: deque[_CounterSample] = deque(maxlen=_HOUR_POINTS)
        self._day: deque[_CounterSample] = deque(maxlen=_DAY_POINTS)

    def sample(self, now_ms: int) -> None:
        """Note the present value wherever a sample is due."""
        for samples, period in (
            (self._minute, _TEN_SECONDS_MS),
            (self._hour, _TEN_MINUTES_MS),
            (self._day, _HOUR_MS),
        ):
            if not samples or now_ms - samples[-1].time_ms >= period:
                samples.append(_CounterSample(now_ms, self.value, self.times))

    @property
    def minute(self) -> PeriodTotals:
        """What was gained in the last minute."""
        return _gained_in(self._minute)

    @property
    def hour(self) -> PeriodTotals:
        """What was gained in the last hour."""
        return _gained_in(self._hour)

    @property
    def day(self) -> PeriodTotals:
        """What was gained in the last day."""
        return _gained_in(self._day)


def _gained_in(samples: deque[_CounterSample]) -> PeriodTotals:
    if len(samples) < 2:
        return PeriodTotals()
    first, last = samples[0], samples[-1]
    total, times, elapsed = (
        last.value - first.value,
        last.times - first.times,
        last.time_ms - first.time_ms,
    )
    return PeriodTotals(
        total, total * 1000 / elapsed if elapsed else 0.0, total / times if times else 0.0
    )


class GotQueue(NamedTuple):
    """A queue of a topic, and the group that pulled from it."""

    topic: str
    group: str
    queue_id: int


class BrokerStatistics:
    """All counters of one broker.

    With ``has_queues`` (`enableDetailStat`) queues have counters of their own.  RocketMQ counts
    the puts of its schedule topic only; here those of every queue are counted.
    """

    def __init__(self, *, cluster: str, now_ms: Callable[[], int], has_queues: bool = True) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._has_queues = has_queues
        self._puts: dict[tuple[str, int], list[int]] = {}
        self._gets: dict[GotQueue, list[int]] = {}
        self._next_offsets: dict[GotQueue, int] = {}
        self._counters: dict[tuple[str, str], Counter] = {}
        self._put_total: Counter | None = None
        self._get_total: Counter | None = None
        """Of the whole broker, once there is something to count."""
        self.started_ms = now_ms()

    def add(self, name: str, key: str, value: int, times: int = 1) -> None:
        """Count something."""
        counter = self._counters.get((name, key))
        if counter is None:
            if len(self._counters) >= COUNTER_COUNT_MAX:
                return
            counter = self._made(name, key)
        counter.value += value
        counter.times += times

    def _made(self, name: str, key: str) -> Counter:
        counter = self._counters[name, key] = Counter()
        counter.sample(self._now_ms())
        return counter

    def add_put(self, topic: str, queue_id: int, count: int, size: int) -> None:
        """Count stored messages.  It is done for every message, so most counters get it later."""
        put = self._puts.get((topic, queue_id))
        if put is None:
            put = self._puts[topic, queue_id] = [0, 0]
        put[0] += count
        put[1] += size
        total = self._put_total
        if total is None:
            total = self._put_total = self._made(BROKER_PUT_COUNT, self._cluster)
        total.value += count
        total.times += count

    def add_get(
        self, queue: GotQueue, count: int, size: int, *, next_offset: int, micros: int
    ) -> None:
        """Count the messages that a group got by one pull; most counters get it later too.

        ``next_offset`` is where the group goes on, ``micros`` how long it took to read them.
        """
        got = self._gets.get(queue)
        if got is None:
            if len(self._gets) >= COUNTER_COUNT_MAX:
                for _ in range(min(ENTER_STEP, len(self._gets))):
                    older, numbers = self._gets.popitem()
                    self._enter_get(older, *numbers)
            got = self._gets[queue] = [0, 0, 0, 0, 0]
        got[0] += count
        got[1] += size
        got[2] += 1
        got[3] += micros
        got[4] = next_offset
        total = self._get_total
        if total is None:
            total = self._get_total = self._made(BROKER_GET_COUNT, self._cluster)
        total.value += count
        total.times += 1

    # -- what waits to be entered ------------------------------------------------------------

    def enter(self) -> Generator[None, None, None]:
        """Enter what was put and got into the counters, some queues between two interruptions."""
        for number, place in enumerate(list(self._puts), 1):
            self._enter_put(place)
            if number % ENTER_STEP == 0:
                yield
        for number, queue in enumerate(list(self._gets), 1):
            got = self._gets.pop(queue, None)
            if got is not None:
                self._enter_get(queue, *got)
            if number % ENTER_STEP == 0:
                yield

    def _enter_for(self, key: str) -> None:
        """Enter what one counter is made of: its key names topic, group and queue."""
        names = frozenset(key.split("@"))
        for place in [one for one in self._puts if one[0] in names]:
            self._enter_put(place)
        for queue in [one for one in self._gets if one.topic in names and one.group in names]:
            self._enter_get(queue, *self._gets.pop(queue))

    def _enter_put(self, place: tuple[str, int]) -> None:
        put = self._puts.pop(place, None)
        if put is None:
            return
        (topic, queue_id), (count, size) = place, put
        self.add(TOPIC_PUT_COUNT, topic, count, count)
        self.add(TOPIC_PUT_SIZE, topic, size, count)
        if self._has_queues:
            self.add(QUEUE_PUT_COUNT, f"{topic}@{queue_id}", count, count)
            self.add(QUEUE_PUT_SIZE, f"{topic}@{queue_id}", size, count)

    def _enter_get(
        self, queue: GotQueue, count: int, size: int, times: int, micros: int, next_offset: int
    ) -> None:
        topic, group, queue_id = queue
        self.add(GROUP_GET_COUNT, f"{topic}@{group}", count, times)
        self.add(GROUP_GET_SIZE, f"{topic}@{group}", size, times)
        self.add(GROUP_GET_LATENCY, f"{queue_id}@{topic}@{group}", micros // 1000, times)
        if self._has_queues:
            self.add(QUEUE_GET_COUNT, f"{topic}@{queue_id}@{group}", count, times)
            self.add(QUEUE_GET_SIZE, f"{topic}@{queue_id}@{group}", size, times)
        if queue in self._next_offsets or len(self._next_offsets) < COUNTER_COUNT_MAX:
            self._next_offsets[queue] = next_offset

    # -- looking -----------------------------------------------------------------------------

    def next_offset(self, key: str) -> tuple[GotQueue, int] | None:
        """Return the queue that a key ``queueId@topic@group`` names, and where its group goes on.

        None for one that nobody pulled from.
        """
        self._enter_for(key)
        queue_id, _, rest = key.partition("@")
        topic, _, group = rest.rpartition("@")
        if not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) <= _DIGITS_MAX):
            return None
        queue = GotQueue(topic, group, int(queue_id))
        offset = self._next_offsets.get(queue)
        return None if offset is None else (queue, offset)

    def get(self, name: str, key: str) -> Counter | None:
        """Return a counter, if anything was counted."""
        self._enter_for(key)
        return self._counters.get((name, key))

    @property
    def put_total(self) -> int:
        """Messages that were stored since the start."""
        return 0 if self._put_total is None else self._put_total.value

    @property
    def get_total(self) -> int:
        """Messages that were pulled since the start."""
        return 0 if self._get_total is None else self._get_total.value

    def counters(self) -> list[tuple[tuple[str, str], Counter]]:
        """Return all counters, each with its name and key; they go on counting.

        Call `enter` before, to have in them what was counted last.
        """
        return list(self._counters.items())

    def sample(self) -> Generator[None, None, None]:
        """Note the values of all counters, some between two interruptions."""
        yield from self.enter()
        now_ms = self._now_ms()
        for number, counter in enumerate(list(self._counters.values()), 1):
            counter.sample(now_ms)
            if number % SAMPLE_STEP == 0:
                yield

    # -- forgetting --------------------------------------------------------------------------

    def forget_topic(self, topic: str) -> Generator[None, None, None]:
        """Drop the counters of a topic, interruptible: there may be very many of others."""
        for place in [one for one in self._puts if one[0] == topic]:
            del self._puts[place]
        return self._forget(lambda queue: queue.topic == topic, lambda key: topic in key.split("@"))

    def forget_group(self, group: str) -> Generator[None, None, None]:
        """Drop the counters of a group, interruptible."""
        ending = f"@{group}"
        return self._forget(lambda queue: queue.group == group, lambda key: key.endswith(ending))

    def _forget(
        self, is_queue: Callable[[GotQueue], bool], is_key: Callable[[str], bool]
    ) -> Generator[None, None, None]:
        for queue in [one for one in self._gets if is_queue(one)]:
            del self._gets[queue]
        for number, (name, key) in enumerate(list(self._counters), 1):
            if is_key(key):
                self._counters.pop((name, key), None)
            if number % SAMPLE_STEP == 0:
                yield
        for number, queue in enumerate(list(self._next_offsets), 1):
            if is_queue(queue):
                self._next_offsets.pop(queue, None)
            if number % SAMPLE_STEP == 0:
                yield
