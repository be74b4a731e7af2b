"""Counters of a broker: how much was sent and fetched, by topic, group and queue.

Each counter keeps samples: every 10 seconds for the last minute, every 10 minutes for the last
hour, every hour for the last day.  What is told of a span is the difference of its last and first
sample.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC_PUT_COUNT: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_GET_COUNT: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
GROUP_GET_LATENCY: Final = "GROUP_GET_LATENCY"
SEND_BACK_COUNT: Final = "SNDBCK_PUT_NUMS"
BROKER_PUT_COUNT: Final = "BROKER_PUT_NUMS"
BROKER_GET_COUNT: Final = "BROKER_GET_NUMS"

COUNTER_COUNT_MAX: Final = 200_000
"""Counters of one broker; clients name what they count."""

_MINUTE_POINTS: Final = 7
_HOUR_POINTS: Final = 7
_DAY_POINTS: Final = 25
_TEN_SECONDS_MS: Final = 10_000
_TEN_MINUTES_MS: Final = 600_000
_HOUR_MS: Final = 3_600_000


class _Sample(NamedTuple):
    time_ms: int
    value: int
    times: int


class Span(NamedTuple):
    """What happened in a span of time."""

    sum: int = 0
    per_second: float = 0.0
    per_time: float = 0.0


class Counter:
    """One number that only grows, and what it was before."""

    __slots__ = ("_day", "_hour", "_minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self._minute: deque[_Sample] = deque(maxlen=_MINUTE_POINTS)
        self._hour: deque[_Sample] = deque(maxlen=_HOUR_POINTS)
        self._day: deque[_Sample] = deque(maxlen=_DAY_POINTS)

    def sample(self, now_ms: int) -> None:
        """Note the present value wherever a sample is due."""
        for samples, period in (
            (self._minute, _TEN_SECONDS_MS),
            (self._hour, _TEN_MINUTES_MS),
            (self._day, _HOUR_MS),
        ):
            if not samples or now_ms - samples[-1].time_ms >= period:
                samples.append(_Sample(now_ms, self.value, self.times))

    @property
    def minute(self) -> Span:
        """The last minute."""
        return _span(self._minute)

    @property
    def hour(self) -> Span:
        """The last hour."""
        return _span(self._hour)

    @property
    def day(self) -> Span:
        """The last day."""
        return _span(self._day)


def _span(samples: deque[_Sample]) -> Span:
    if len(samples) < 2:
        return Span()
    first, last = samples[0], samples[-1]
    total, times, elapsed = (
        last.value - first.value,
        last.times - first.times,
        last.time_ms - first.time_ms,
    )
    return Span(total, total * 1000 / elapsed if elapsed else 0.0, total / times if times else 0.0)


class BrokerStatistics:
    """All counters of one broker."""

    def __init__(self, *, cluster: str, now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._puts: dict[str, list[int]] = {}
        self._gets: dict[tuple[str, str], list[int]] = {}
        self._counters: dict[tuple[str, str], Counter] = {}
        self.started_ms = now_ms()

    def add(self, name: str, key: str, value: int, times: int = 1) -> None:
        """Count something."""
        counter = self._counters.get((name, key))
        if counter is None:
            if len(self._counters) >= COUNTER_COUNT_MAX:
                return
            counter = self._counters[name, key] = Counter()
            counter.sample(self._now_ms())
        counter.value += value
        counter.times += times

    def add_put(self, topic: str, count: int, size: int) -> None:
        """Count stored messages.  This is on the way of every message, hence the short form."""
        put = self._puts.get(topic)
        if put is None:
            put = self._puts[topic] = [0, 0]
        put[0] += count
        put[1] += size

    def add_get(self, topic: str, group: str, count: int, size: int) -> None:
        """Count the messages of one pull that a group got; in a short form too."""
        got = self._gets.get((topic, group))
        if got is None:
            if len(self._gets) >= COUNTER_COUNT_MAX:
                self._take_short_forms()
            got = self._gets[topic, group] = [0, 0, 0]
        got[0] += count
        got[1] += size
        got[2] += 1

    def _take_short_forms(self) -> None:
        puts, self._puts = self._puts, {}
        gets, self._gets = self._gets, {}
        for topic, (count, size) in puts.items():
            self.add(TOPIC_PUT_COUNT, topic, count, count)
            self.add(TOPIC_PUT_SIZE, topic, size, count)
            self.add(BROKER_PUT_COUNT, self._cluster, count, count)
        for (topic, group), (count, size, times) in gets.items():
            key = f"{topic}@{group}"
            self.add(GROUP_GET_COUNT, key, count, times)
            self.add(GROUP_GET_SIZE, key, size, times)
            self.add(BROKER_GET_COUNT, self._cluster, count, times)

    def get(self, name: str, key: str) -> Counter | None:
        """Return a counter, if anything was counted."""
        self._take_short_forms()
        return self._counters.get((name, key))

    def total(self, name: str) -> int:
        """Return the sum of all counters of one name."""
        self._take_short_forms()
        return sum(one.value for (kind, _), one in self._counters.items() if kind == name)

    def sample(self) -> None:
        """Note the values of all counters."""
        self._take_short_forms()
        now_ms = self._now_ms()
        for counter in self._counters.values():
            counter.sample(now_ms)

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a topic."""
        self._take_short_forms()
        for name, key in list(self._counters):
            if key == topic or topic in key.split("@"):
                del self._counters[name, key]

    def forget_group(self, group: str) -> None:
        """Drop the counters of a group."""
        self._take_short_forms()
        for name, key in list(self._counters):
            if key.endswith(f"@{group}"):
                del self._counters[name, key]
