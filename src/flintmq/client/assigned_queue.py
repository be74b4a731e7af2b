"""A queue that a member of a group has for the time being."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flintmq.client.process_queue import ProcessQueue

if TYPE_CHECKING:
    from flintmq.model.message_queue import MessageQueue


class AssignedQueue:
    """What is held of a queue, where its next pull starts, and the task that pulls."""

    def __init__(self, queue: MessageQueue, next_offset: int, *, now_ms: int) -> None:
        self.queue = queue
        self.held = ProcessQueue(now_ms=now_ms)
        self.next_offset = next_offset
        self.pulling: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        """Set when messages came, a lock was renewed, or the queue is to be left."""
        self.leaving = asyncio.Event()
        """Set when nothing more may be begun."""

    def leave(self) -> None:
        """Begin nothing more; what is at work still counts."""
        self.leaving.set()
        self.changed.set()
        if self.pulling is not None:
            self.pulling.cancel()

    def drop(self) -> None:
        """Leave, and let concurrent results that come late count for nothing."""
        self.held.is_dropped = True
        self.leave()
