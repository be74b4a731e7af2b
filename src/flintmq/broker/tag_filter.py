"""Choosing messages by their tags, as far as a broker does: by the hash in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flintmq.format.consume_queue_ext import ExtUnit
    from flintmq.model.subscription import Subscription

_LOW_32: Final = 0xFFFFFFFF
_SIGN: Final = 1 << 31


class TagFilter:
    """Accepts units whose code is one of a subscription's; clients compare the tags themselves."""

    __slots__ = ("_codes",)

    def __init__(self, subscription: Subscription) -> None:
        self._codes = subscription.codes

    def matches_unit(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        """Judge by the code; only its low 32 bits count."""
        code = ext.tags_code if ext is not None else tags_code
        if code is None:
            return True
        low = code & _LOW_32
        return (low - (1 << 32) if low & _SIGN else low) in self._codes

    def matches_record(self, record: memoryview) -> bool:
        """Leave what the code does not tell to the client."""
        return True


def filter_for(subscription: Subscription) -> TagFilter | None:
    """Return the filter of a subscription, None if it wants everything."""
    return None if subscription.wants_all else TagFilter(subscription)
