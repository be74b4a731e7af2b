"""What a pull asks of messages: of those that it reads, and of the one for which it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flintmq.store.reading.message_filter import MessageFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


class PullFilter(MessageFilter, Protocol):
    """A message filter that also judges messages which have just been dispatched."""

    @property
    def arrival_codes(self) -> Collection[int] | None:
        """The tags codes that it wants of new messages; None if it looks at more than those."""
        ...

    @property
    def weight(self) -> int:
        """How many judgments of a plain filter one of this filter takes as long as."""
        ...

    def matches_arrival(
        self, tags_code: int, read_properties: Callable[[], Mapping[str, str]]
    ) -> bool:
        """Whether a pull that waits is to be answered because of a new message."""
        ...
