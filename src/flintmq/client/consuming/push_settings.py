"""Settings of a push consumer, and the single keywords for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from flintmq.client.assigning.sharing import SharingKeywords
from flintmq.client.errors import UsageError
from flintmq.client.field_types import check_field_types
from flintmq.client.options import ClientKeywords
from flintmq.client.pulling.puller import PULL_COUNT
from flintmq.model.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from pathlib import Path

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
    concurrency: int = 20
    """How many handlers run at the same time."""
    batch_size: int = 1
    """How many messages a handler gets at once; above 1 it gets lists."""
    pull_count: int = PULL_COUNT
    """How many messages a pull asks for."""
    queue_count_max: int = 1000
    """Pulling from a queue pauses while more messages of it are held."""
    queue_size_max: int = 100 << 20
    """Pulling from a queue pauses while more bytes of it are held."""
    span_max: int = 2000
    """Pulling pauses while oldest and newest message held are further apart; not if orderly."""
    topic_count_max: int | None = None
    """A limit for all queues of a topic together, which they share evenly."""
    topic_size_max: int | None = None
    reconsume_times_max: int | None = None
    """Failures after which a message becomes a dead letter: by default 16, if orderly unlimited.

    A broadcasting group has no dead letters: the message is let go, with a warning.
    """
    suspend_queue_ms: int = 1000
    """How long a queue waits after a failure; only if orderly."""
    local_retry_ms: int = 5000
    """How long to wait before a failed message is tried here again.

    That is done where no broker takes it back, and in broadcasting groups.
    """
    consume_timeout_ms: int = 15 * 60 * 1000
    """A message whose handler takes longer is given back; not if orderly."""
    stop_timeout_ms: int = 30_000
    """How long `close` may take; most of it is for running handlers, the rest for the brokers."""
    offset_directory: Path | None = None
    """Where a broadcasting consumer keeps its offsets; by default ``~/.rocketmq_offsets``."""
    trace: bool = False
    """Whether the message trace is told of every message consumed."""
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        check_field_types(self)
        for name, (low, high) in (_RANGES | _OPTIONAL_RANGES).items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL_RANGES:
                continue
            if not low <= value <= high:
                raise UsageError(f"{name} must be from {low} to {high}, not {value}")

    def count_limit(self, topic_queue_count: int) -> int:
        """Return how many messages may be held of a queue whose topic has so many queues here."""
        return _shared(self.queue_count_max, self.topic_count_max, topic_queue_count)

    def size_limit(self, topic_queue_count: int) -> int:
        """Return how many bytes may be held of a queue whose topic has so many queues here."""
        return _shared(self.queue_size_max, self.topic_size_max, topic_queue_count)


class PushKeywords(TypedDict, total=False):
    """The fields of `PushSettings` as single keywords."""

    orderly: bool
    concurrency: int
    batch_size: int
    pull_count: int
    queue_count_max: int
    queue_size_max: int
    span_max: int
    topic_count_max: int | None
    topic_size_max: int | None
    reconsume_times_max: int | None
    suspend_queue_ms: int
    local_retry_ms: int
    consume_timeout_ms: int
    stop_timeout_ms: int
    offset_directory: Path | None
    trace: bool
    trace_topic: str


class PushArguments(PushKeywords, SharingKeywords, ClientKeywords, total=False):
    """All single keywords of a push consumer."""


def _shared(queue_max: int, topic_max: int | None, queue_count: int) -> int:
    if topic_max is None:
        return queue_max
    return min(queue_max, max(1, topic_max // max(1, queue_count)))
