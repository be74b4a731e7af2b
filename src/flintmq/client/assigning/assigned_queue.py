"""A queue that is assigned to a member of a group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flintmq.client.assigning.process_queue import ProcessQueue

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
        """Set when the queue is given up: no further batch may be started."""

    @property
    def position(self) -> int:
        """The offset of the message that is taken next, or the first one that is not held yet."""
        first = self.held.first_untaken
        return self.next_offset if first is None else first

    def leave(self) -> None:
        """Start no further batch; the result of a running one still counts."""
        self.leaving.set()
        self.changed.set()
        if self.pulling is not None:
            self.pulling.cancel()

    def drop(self) -> None:
        """Leave, and ignore the results of concurrent handlers that finish later."""
        self.held.is_dropped = True
        self.leave()
