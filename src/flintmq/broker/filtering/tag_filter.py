"""Choosing messages by the hash of their tags; the broker does not look at the tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.store.reading.message_filter import SCAN_COUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from flintmq.format.stored.consume_queue_ext import ExtUnit
    from flintmq.model.subscription import Subscription

_LOW_32: Final = 0xFFFFFFFF
_SIGN: Final = 1 << 31


def wanted_code(tags_code: int) -> int:
    """Return the tags code of a unit as subscriptions have it: only its low 32 bits count."""
    low = tags_code & _LOW_32
    return low - (1 << 32) if low & _SIGN else low


class TagFilter:
    """Accepts units whose code is one of a subscription's; clients compare the tags themselves."""

    __slots__ = ("_codes",)

    scan_count_max = SCAN_COUNT_MAX
    weight = 1

    def __init__(self, subscription: Subscription) -> None:
        self._codes = subscription.codes

    def matches_unit(self, tags_code: int | None, ext: ExtUnit | None) -> bool:
        """Whether the tags code of a unit is wanted."""
        code = ext.tags_code if ext is not None else tags_code
        return code is None or wanted_code(code) in self._codes

    @property
    def arrival_codes(self) -> Collection[int]:
        """The tags codes that are wanted."""
        return self._codes

    def matches_record(self, record: memoryview) -> bool:
        """Accept every record: clients compare the tags themselves."""
        return True

    def matches_arrival(
        self, tags_code: int, read_properties: Callable[[], Mapping[str, str]]
    ) -> bool:
        """Whether the tags code of a new message is wanted."""
        return self.matches_unit(tags_code, None)


def filter_for(subscription: Subscription) -> TagFilter | None:
    """Return the filter of a subscription, None if it wants everything."""
    return None if subscription.wants_all else TagFilter(subscription)
