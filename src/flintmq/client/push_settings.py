"""How a push consumer works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flintmq.client.errors import UsageError

CONCURRENCY: Final = 20
PULL_COUNT: Final = 32
QUEUE_COUNT_MAX: Final = 1000
QUEUE_SIZE_MAX: Final = 100 << 20
SPAN_MAX: Final = 2000
CONSUME_TIMEOUT_MS: Final = 15 * 60 * 1000
SUSPEND_QUEUE_MS: Final = 1000
LOCAL_RETRY_MS: Final = 5000
STOP_TIMEOUT_MS: Final = 30_000

_RANGES: Final = {
    "concurrency": (1, 1000),
    "batch_size": (1, 1024),
    "pull_count": (1, 1024),
    "queue_count_max": (1, 65_535),
    "queue_size_max": (1, 1024 << 20),
    "span_max": (1, 65_535),
    "suspend_queue_ms": (10, 30_000),
    "local_retry_ms": (1, 3_600_000),
    "consume_timeout_ms": (1, 1 << 40),
    "stop_timeout_ms": (0, 1 << 40),
}
_OPTIONAL_RANGES: Final = {
    "topic_count_max": (1, 6_553_500),
    "topic_size_max": (1, 102_400 << 20),
    "reconsume_times_max": (0, (1 << 31) - 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Settings of one push consumer.  Sizes are bytes, times milliseconds."""

    orderly: bool = False
    """Whether a queue is consumed in order, one batch after the other."""
    concurrency: int = CONCURRENCY
    """Handlers at work at the same time."""
    batch_size: int = 1
    """Messages that a handler gets at once; above 1 it gets lists."""
    pull_count: int = PULL_COUNT
    queue_count_max: int = QUEUE_COUNT_MAX
    """Messages held of a queue before pulling pauses; so with their size and their span."""
    queue_size_max: int = QUEUE_SIZE_MAX
    span_max: int = SPAN_MAX
    topic_count_max: int | None = None
    """Messages held of a topic; its queues share this evenly."""
    topic_size_max: int | None = None
    reconsume_times_max: int | None = None
    """Failures after which a message is dead: by default 16, and no limit if orderly."""
    suspend_queue_ms: int = SUSPEND_QUEUE_MS
    """How long a queue waits after a failure, if orderly."""
    local_retry_ms: int = LOCAL_RETRY_MS
    """When a failed message is tried again that no broker would take back."""
    consume_timeout_ms: int = CONSUME_TIMEOUT_MS
    """A message that a handler has had for so long is given back; not if orderly."""
    stop_timeout_ms: int = STOP_TIMEOUT_MS
    """How long `close` waits for handlers at work."""

    def __post_init__(self) -> None:
        for name, (low, high) in (_RANGES | _OPTIONAL_RANGES).items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL_RANGES:
                continue
            if not low <= value <= high:
                raise UsageError(f"{name} must be from {low} to {high}, not {value}")

    def count_limit(self, topic_queue_count: int) -> int:
        """Return how many messages may be held of a queue, one of so many of its topic."""
        return _shared(self.queue_count_max, self.topic_count_max, topic_queue_count)

    def size_limit(self, topic_queue_count: int) -> int:
        """Return how many bytes may be held of a queue, one of so many of its topic."""
        return _shared(self.queue_size_max, self.topic_size_max, topic_queue_count)


def _shared(queue_max: int, topic_max: int | None, queue_count: int) -> int:
    if topic_max is None:
        return queue_max
    return min(queue_max, max(1, topic_max // max(1, queue_count)))
