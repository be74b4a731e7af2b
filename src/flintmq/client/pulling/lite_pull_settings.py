"""Settings of a lite pull consumer, and the single keywords for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from flintmq.client.assigning.sharing import SharingKeywords
from flintmq.client.errors import UsageError
from flintmq.client.field_types import check_field_types
from flintmq.client.options import ClientKeywords
from flintmq.client.pulling.puller import PULL_COUNT
from flintmq.model.topics import TRACE_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSettings:
    """Settings of one lite pull consumer.  Sizes are bytes."""

    auto_commit: bool = True
    """Whether messages given before the last `poll` are committed every few seconds."""
    pull_count: int = PULL_COUNT
    """How many messages a pull asks for."""
    queue_count_max: int = 1000
    """How many messages of one queue are pulled ahead of the polls."""
    queue_size_max: int = 100 << 20
    """How many bytes of one queue are pulled ahead of the polls."""
    total_count_max: int = 10_000
    """How many messages of all queues together are pulled ahead of the polls."""
    trace: bool = False
    """Whether the message trace is told of every message that `poll` gives."""
    trace_topic: str = TRACE_TOPIC
    """The topic of the message trace."""
    offset_directory: Path | None = None
    """Where a broadcasting consumer keeps its offsets; by default ``~/.rocketmq_offsets``."""

    def __post_init__(self) -> None:
        check_field_types(self)
        for name in ("pull_count", "queue_count_max", "queue_size_max", "total_count_max"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be positive")


class LitePullKeywords(TypedDict, total=False):
    """The fields of `LitePullSettings` as single keywords."""

    auto_commit: bool
    pull_count: int
    queue_count_max: int
    queue_size_max: int
    total_count_max: int
    trace: bool
    trace_topic: str
    offset_directory: Path | None


class LitePullArguments(LitePullKeywords, SharingKeywords, ClientKeywords, total=False):
    """All single keywords of a lite pull consumer."""
