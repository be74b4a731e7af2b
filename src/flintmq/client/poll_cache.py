"""What a lite pull consumer holds for its next polls.  Only `next_batch` waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import UsageError
from flintmq.client.process_queue import NOTHING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from flintmq.client.assigned_queue import AssignedQueue
    from flintmq.client.messages import ReceivedMessage
    from flintmq.client.offset_store import NotedOffsets
    from flintmq.model.message_queue import MessageQueue

QUEUE_COUNT_MAX: Final = 1000
TOTAL_COUNT_MAX: Final = 10_000
QUEUE_SIZE_MAX: Final = 100 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PollLimits:
    """How much is pulled ahead of the polls.  Sizes are bytes."""

    queue_count_max: int = QUEUE_COUNT_MAX
    queue_size_max: int = QUEUE_SIZE_MAX
    total_count_max: int = TOTAL_COUNT_MAX

    def __post_init__(self) -> None:
        for name in ("queue_count_max", "queue_size_max", "total_count_max"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be positive")


class PollCache:
    """Gives messages out, one queue after the other, and knows which were given."""

    def __init__(
        self,
        queues: Mapping[MessageQueue, AssignedQueue],
        offsets: NotedOffsets,
        limits: PollLimits,
    ) -> None:
        self._queues = queues
        self._offsets = offsets
        self._limits = limits
        self._paused: set[MessageQueue] = set()
        self._given: list[AssignedQueue] = []
        self._turn = 0
        self._arrival = asyncio.Event()

    def is_full(self, one: AssignedQueue) -> bool:
        """Whether as much is held as may be."""
        limits = self._limits
        if one.held.count > limits.queue_count_max or one.held.size > limits.queue_size_max:
            return True
        return sum(each.held.count for each in self._queues.values()) > limits.total_count_max

    def arrived(self) -> None:
        """Look again: there are new messages, or a queue is no longer paused."""
        self._arrival.set()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give nothing of these queues for the time being."""
        self._paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Give messages of these queues again."""
        self._paused.difference_update(queues)
        self.arrived()

    def keep_paused(self, queues: Collection[MessageQueue]) -> None:
        """Forget what was paused of queues that are not among these."""
        self._paused.intersection_update(queues)

    async def next_batch(self, *, count_max: int, timeout_ms: int) -> list[ReceivedMessage]:
        """Return the next messages of one queue; none if none come in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            self._arrival.clear()
            found = self._take(count_max)
            left_s = deadline - loop.time()
            if found or left_s <= 0:
                return found
            try:
                async with asyncio.timeout(left_s):
                    await self._arrival.wait()
            except TimeoutError:
                return []

    def _take(self, count_max: int) -> list[ReceivedMessage]:
        ready = [
            one
            for one in self._queues.values()
            if one.held.untaken_count and one.queue not in self._paused
        ]
        if not ready:
            return []
        # One queue after the other, so that a full one does not keep the rest waiting.
        one = ready[self._turn % len(ready)]
        self._turn += 1
        self._given.append(one)
        return one.held.take_more(count_max)

    def note_given(self) -> None:
        """Count what was given as consumed."""
        for one in self._given:
            offset = one.held.commit()
            if offset != NOTHING and not one.held.is_dropped:
                self._offsets.update(one.queue, offset, increase_only=False)
        self._given.clear()
