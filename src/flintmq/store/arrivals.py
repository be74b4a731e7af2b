"""Arrivals: who is told of the messages that have just come into their queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class ArrivalListener(Protocol):
    """Called for every dispatched record, so that held pulls wake at once."""

    def __call__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        store_timestamp: int,
        bitmap: bytes | None,
        read_properties: Callable[[], Mapping[str, str]],
    ) -> None:
        """Learn that ``queue_offset`` is now the end of a queue.

        The properties of the message are decoded for who asks for them.
        """
        ...


class AwaitsMessages(Protocol):
    """What a listener waits for of one queue."""

    @property
    def wants_each(self) -> bool:
        """Whether two messages with the same tags may differ for it."""
        ...
