"""What a subscription asks of messages, as the read path sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from flintmq.format.stored.consume_queue_ext import ExtUnit

SCAN_COUNT_MAX: Final = 2048
"""At most this many units are looked at in one call, however many are wanted.

A subscription that matches nothing would have a whole file looked at otherwise.  Whoever asked is
told where to go on, as RocketMQ tells those who have reached the end of a file.
"""


class MessageFilter(Protocol):
    """What a subscription asks of messages; built by the filter layer."""

    @property
    def scan_count_max(self) -> int:
        """How many units one call may look at; fewer where judging a message costs much."""
        ...

    def matches_unit(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        """Judge by what the queue knows; True when that is not enough to say no."""
        ...

    def matches_record(self, record: memoryview) -> bool:
        """Judge by the stored record."""
        ...
