"""Settings of a producer, and the single keywords for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from flintmq.client.errors import UsageError
from flintmq.client.field_types import check_field_types
from flintmq.client.messaging.envelope import COMPRESS_FROM
from flintmq.client.options import ClientKeywords
from flintmq.format.sys_flag import CompressionType
from flintmq.model.topics import TRACE_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of one producer.  Sizes are bytes, times milliseconds."""

    send_timeout_ms: int = 3000
    """How long a send may take, its retries included."""
    retries: int = 2
    """How many further brokers are tried after the first one has failed."""
    retry_when_not_stored_ok: bool = False
    """Whether another broker is tried when a message is stored but not as safely as promised."""
    compression: CompressionType = CompressionType.ZLIB
    compress_from: int = COMPRESS_FROM
    """Bodies of at least this size are compressed."""
    avoid_slow_brokers: bool = False
    """Whether brokers that were slow or failed are left out for a while."""
    trace: bool = False
    """Whether the message trace is told of every message sent."""
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        check_field_types(self)
        if self.send_timeout_ms <= 0:
            raise UsageError(f"send_timeout_ms must be positive, not {self.send_timeout_ms}")
        for name in ("retries", "compress_from"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must not be negative")


class ProducerKeywords(TypedDict, total=False):
    """The fields of `ProducerSettings` as single keywords."""

    send_timeout_ms: int
    retries: int
    retry_when_not_stored_ok: bool
    compression: CompressionType
    compress_from: int
    avoid_slow_brokers: bool
    trace: bool
    trace_topic: str


class ProducerArguments(ProducerKeywords, ClientKeywords, total=False):
    """All single keywords of a producer."""
