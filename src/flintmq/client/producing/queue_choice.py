"""Which queue the next message goes to."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from flintmq.client.errors import UsageError
from flintmq.format.java import string_hash
from flintmq.model.message_queue import MessageQueue

if TYPE_CHECKING:
    from flintmq.client.messaging.messages import Message

QueueSelector: TypeAlias = "Callable[[Sequence[MessageQueue], Message], MessageQueue]"
"""A function of the user that chooses one of the queues of a topic for a message."""

_INDEX_MASK: Final = 0x7FFFFFFF


class RoundRobin:
    """Takes one queue after the other, and on a retry one of another broker if there is one."""

    def __init__(self, start: int | None = None) -> None:
        self._turn = random.randrange(_INDEX_MASK) if start is None else start

    def choose(
        self,
        queues: Sequence[MessageQueue],
        *,
        avoid: str | None = None,
        is_in_use: Callable[[str], bool] | None = None,
    ) -> MessageQueue:
        """Return the next queue, not of the broker ``avoid`` and of one in use where possible."""
        if avoid is None and is_in_use is None:
            return self._next(queues)
        for _ in range(len(queues)):
            queue = self._next(queues)
            if queue.broker_name != avoid and (is_in_use is None or is_in_use(queue.broker_name)):
                return queue
        return self._next(queues)

    def _next(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        self._turn = (self._turn + 1) & _INDEX_MASK
        return queues[self._turn % len(queues)]


def queue_for_key(queues: Sequence[MessageQueue], sharding_key: str) -> MessageQueue:
    """Return the queue that all messages of a key go to, the same that Java clients choose."""
    remainder = abs(string_hash(sharding_key)) % len(queues)
    return queues[remainder]


def selected_queue(
    select: QueueSelector, queues: Sequence[MessageQueue], message: Message
) -> MessageQueue:
    """Return the queue that a function of the user chooses; UsageError if it is none of them."""
    queue = select(tuple(queues), message)
    if queue not in queues:
        raise UsageError(f"the function for the queue returned {queue!r}, none of its queues")
    return queue
