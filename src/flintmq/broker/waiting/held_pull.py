"""One pull that waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from flintmq.broker.filtering.pull_filter import PullFilter
    from flintmq.remoting.peer import Peer

PULL_SIZE: Final = 1024
"""Bytes that are charged for a pull besides its subscription."""

Queue: TypeAlias = tuple[str, int]


class HeldPull:
    """One pull that waits.  ``answer`` reads again and answers, whatever is found."""

    __slots__ = (
        "answer",
        "connection",
        "is_answered",
        "is_woken",
        "message_filter",
        "offset",
        "queue",
        "size",
        "waits_for_room",
    )

    def __init__(
        self,
        queue: Queue,
        offset: int,
        message_filter: PullFilter | None,
        connection: Peer,
        answer: Callable[[], None],
        size: int = PULL_SIZE,
    ) -> None:
        self.queue = queue
        self.offset = offset
        self.message_filter = message_filter
        self.connection = connection
        self.answer = answer
        self.size = size
        """Bytes that are charged for it."""
        self.is_answered = False
        self.is_woken = False
        """Whether something has come for it."""
        self.waits_for_room = False
        """Whether it would have been answered if its peer had read more."""
