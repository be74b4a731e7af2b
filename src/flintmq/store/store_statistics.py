"""What a store has done so far: counts, rates and how long puts took.

Puts and reads only add to plain integers.  Rates and texts are worked out from samples that
somebody takes once a second, so that nothing here needs a thread or a clock tick of its own.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from flintmq.metrics.histograms import Histogram, percentile_us
from flintmq.store.clock import Clock

SAMPLE_INTERVAL_MS: Final = 1000
_SAMPLE_SLACK_MS: Final = 100
"""How much too early a timer may fire without losing its sample."""
SAMPLE_COUNT_MAX: Final = 601
RATE_WINDOWS: Final = (10, 60, 600)
"""Over how many samples the three rates of a text go."""
LATENCY_WINDOW_MS: Final = 60_000

_PUT_BOUNDS_US: Final = tuple(
    1000 * bound_ms
    for steps in (
        range(1, 21),
        range(22, 51, 2),
        range(55, 101, 5),
        range(110, 201, 10),
        range(250, 501, 50),
        range(600, 1001, 100),
        range(2000, 10_001, 1000),
    )
    for bound_ms in steps
)
_LATENCY_CLASSES: Final = (
    ("[<=0ms]", 1),
    ("[0~10ms]", 10),
    ("[10~50ms]", 50),
    ("[50~100ms]", 100),
    ("[100~200ms]", 200),
    ("[200~500ms]", 500),
    ("[500ms~1s]", 1000),
    ("[1~2s]", 2000),
    ("[2~3s]", 3000),
    ("[3~4s]", 4000),
    ("[4~5s]", 5000),
    ("[5~10s]", 10_000),
)
"""Name and end in milliseconds.  Java cuts latencies to whole milliseconds before it compares,
so its first class holds everything below 1 ms; all ends are also bounds of the finer buckets."""
_LAST_CLASS: Final = "[10s~]"
DELAY_BOUNDS_S: Final = (60, 600, 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600)
"""Classes of delays that senders ask for: those of RocketMQ 5."""
DELAYED_TOPIC_COUNT_MAX: Final = 10_000
"""Topics whose delays are told; clients choose their names."""
assert {1000 * end_ms for _, end_ms in _LATENCY_CLASSES} <= set(_PUT_BOUNDS_US)


class _Sample(NamedTuple):
    """The counters at one moment."""

    time_ms: int
    put_count: int
    found_count: int
    missed_count: int
    transferred_count: int


class TopicStatistics:
    """What was put into one topic."""

    __slots__ = ("put_count", "put_size")

    def __init__(self) -> None:
        self.put_count = 0
        self.put_size = 0


class StoreStatistics:
    """Counters of one store since it was opened.  One thread records."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self.boot_timestamp_ms = clock.now_ms()
        self.topics: dict[str, TopicStatistics] = {}
        self.failed_put_count = 0
        self.found_count = 0
        self.missed_count = 0
        self.transferred_count = 0
        self.get_time_max_us = 0
        self.delays: dict[str, Histogram] = {}
        """How many seconds senders wanted messages to wait, by topic."""
        self._forgotten = TopicStatistics()
        self._samples: deque[_Sample] = deque(maxlen=SAMPLE_COUNT_MAX)
        self.put_time_max_us = 0
        self._latency_counts = [0] * (len(_PUT_BOUNDS_US) + 1)
        self._latency_start_ms = self.boot_timestamp_ms
        self._previous_counts: list[int] | None = None

    # Recording

    def record_put(self, topic: str, count: int, size: int, elapsed_us: int) -> None:
        """Count one successful put of ``count`` messages that took ``size`` bytes of the log."""
        try:
            entry = self.topics[topic]
        except KeyError:
            entry = self.topics[topic] = TopicStatistics()
        entry.put_count += count
        entry.put_size += size
        self._latency_counts[bisect_right(_PUT_BOUNDS_US, elapsed_us)] += 1
        if elapsed_us > self.put_time_max_us:
            self.put_time_max_us = elapsed_us

    def record_puts(self, topic: str, count: int, size: int, each_us: int) -> None:
        """Count ``count`` puts of single messages that together took ``size`` bytes of the log."""
        self.record_put(topic, count, size, each_us)
        self._latency_counts[bisect_right(_PUT_BOUNDS_US, each_us)] += count - 1

    def record_delay(self, topic: str, delay_ms: int) -> None:
        """Count a message that is to be delivered later."""
        delays = self.delays.get(topic)
        if delays is None:
            if len(self.delays) >= DELAYED_TOPIC_COUNT_MAX:
                return
            delays = self.delays[topic] = Histogram(DELAY_BOUNDS_S)
        delays.record(delay_ms // 1000)

    def record_failed_put(self) -> None:
        """Count one put that was refused or went wrong."""
        self.failed_put_count += 1

    def record_get(self, transferred_count: int, elapsed_us: int) -> None:
        """Count one read; one that brings no message is a miss."""
        if transferred_count:
            self.found_count += 1
            self.transferred_count += transferred_count
        else:
            self.missed_count += 1
        if elapsed_us > self.get_time_max_us:
            self.get_time_max_us = elapsed_us

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic; the totals keep what it had."""
        self.delays.pop(topic, None)
        entry = self.topics.pop(topic, None)
        if entry is not None:
            self._forgotten.put_count += entry.put_count
            self._forgotten.put_size += entry.put_size

    # The totals are added up when somebody asks: a put should count in one place only.

    @property
    def put_count(self) -> int:
        """How many messages were put."""
        return self._forgotten.put_count + sum(topic.put_count for topic in self.topics.values())

    @property
    def put_size(self) -> int:
        """How many bytes of the log they took."""
        return self._forgotten.put_size + sum(topic.put_size for topic in self.topics.values())

    # Sampling

    def sample(self, now_ms: int) -> None:
        """Remember the counters; call it about once a second, more often does no harm."""
        samples = self._samples
        if samples and now_ms < samples[-1].time_ms:
            # The wall clock was set back: no rate can be taken across that.
            samples.clear()
            self._latency_start_ms = now_ms
        if samples and now_ms - samples[-1].time_ms < SAMPLE_INTERVAL_MS - _SAMPLE_SLACK_MS:
            return
        samples.append(
            _Sample(
                now_ms,
                self.put_count,
                self.found_count,
                self.missed_count,
                self.transferred_count,
            )
        )
        if now_ms - self._latency_start_ms >= LATENCY_WINDOW_MS:
            self._latency_start_ms = now_ms
            self._previous_counts = self._latency_counts
            self._latency_counts = [0] * len(self._previous_counts)

    # Reporting

    def put_latency_ms(self, fraction: float) -> float:
        """Return below which time ``fraction`` of the puts of the last whole minute lie."""
        if self._previous_counts is None:
            return 0.0
        # The maximum only limits the open bucket, past ten seconds; that of all time will do.
        max_us = self.put_time_max_us
        return percentile_us(_PUT_BOUNDS_US, self._previous_counts, max_us, fraction) / 1000

    def latency_classes(self) -> str:
        """Return how many puts of the last whole minute fell into each class, as Java prints it."""
        counts = self._previous_counts
        if counts is None:
            return "null"
        parts = []
        start = 0
        for name, end_ms in _LATENCY_CLASSES:
            end = _PUT_BOUNDS_US.index(1000 * end_ms) + 1
            parts.append(f"{name}:{sum(counts[start:end])} ")
            start = end
        parts.append(f"{_LAST_CLASS}:{sum(counts[start:])} ")
        return "".join(parts)

    def runtime_info(self) -> dict[str, str]:
        """Return the lines a Java broker reports about these counters, by its names."""
        put_count = max(self.put_count, 1)
        return {
            "bootTimestamp": str(self.boot_timestamp_ms),
            "runtime": _runtime_text(self._clock.now_ms() - self.boot_timestamp_ms),
            "putMessageEntireTimeMax": str(self.put_time_max_us // 1000),
            "putMessageTimesTotal": str(put_count),
            "putMessageFailedTimes": str(self.failed_put_count),
            "putMessageSizeTotal": str(self.put_size),
            "putMessageDistributeTime": self.latency_classes(),
            "putMessageAverageSize": str(self.put_size / put_count),
            "getMessageEntireTimeMax": str(self.get_time_max_us // 1000),
            "putTps": self._rates(lambda sample: sample.put_count),
            "getFoundTps": self._rates(lambda sample: sample.found_count),
            "getMissTps": self._rates(lambda sample: sample.missed_count),
            "getTotalTps": self._rates(
                lambda sample: sample.found_count + sample.missed_count, missing="0.0"
            ),
            "getTransferedTps": self._rates(lambda sample: sample.transferred_count),
            "putLatency99": f"{self.put_latency_ms(0.99):.2f}",
            "putLatency999": f"{self.put_latency_ms(0.999):.2f}",
        }

    def _rate(self, window: int, counter: Callable[[_Sample], int]) -> float | None:
        if len(self._samples) <= window:
            return None
        first, last = self._samples[-1 - window], self._samples[-1]
        return (counter(last) - counter(first)) / (last.time_ms - first.time_ms) * 1000

    def _rates(self, counter: Callable[[_Sample], int], *, missing: str = "") -> str:
        rates = [self._rate(window, counter) for window in RATE_WINDOWS]
        return " ".join(missing if rate is None else str(rate) for rate in rates)


def _runtime_text(elapsed_ms: int) -> str:
    minutes, seconds = divmod(max(elapsed_ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
