"""The messages that a lite pull consumer holds for its next polls.  Only `next_batch` waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from flintmq.client.assigning.assigned_queue import AssignedQueue
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.client.pulling.lite_pull_settings import LitePullSettings
    from flintmq.model.message_queue import MessageQueue


class PollCache:
    """Gives messages out, one queue after the other, and knows of which queues it gave some.

    A message that was given is not held any more: how many the user has not committed yet is no
    concern of the limits.
    """

    def __init__(
        self, queues: Mapping[MessageQueue, AssignedQueue], settings: LitePullSettings
    ) -> None:
        self._queues = queues
        self._settings = settings
        self._paused: set[MessageQueue] = set()
        self._given: dict[MessageQueue, AssignedQueue] = {}
        self._sought: set[MessageQueue] = set()
        self._kept_back: dict[MessageQueue, AssignedQueue] = {}
        """Queues of which the user has committed less than was given."""
        self._turn = 0
        self._arrival = asyncio.Event()

    # -- pulling ahead -----------------------------------------------------------------------

    def is_full(self, one: AssignedQueue) -> bool:
        """Return whether pulling from a queue has to pause: so much is held, or it is paused."""
        settings, held = self._settings, one.held
        if one.queue in self._paused:
            return True
        if held.count > settings.queue_count_max or held.size > settings.queue_size_max:
            return True
        # What is held of paused queues must not keep the others from being pulled.
        total = sum(
            each.held.count for queue, each in self._queues.items() if queue not in self._paused
        )
        return total > settings.total_count_max

    def arrived(self) -> None:
        """Wake a waiting poll: messages have come, or a queue is no longer paused."""
        self._arrival.set()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give nothing of these queues for the time being."""
        self._paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Give messages of these queues again."""
        self._paused.difference_update(queues)
        self.arrived()

    def keep_paused(self, queues: Collection[MessageQueue]) -> None:
        """Forget the pauses of queues that are not among these."""
        self._paused.intersection_update(queues)

    # -- giving ------------------------------------------------------------------------------

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
        if self._given.get(one.queue) is not one:
            self._sought.discard(one.queue)  # That was before the queue was taken up again.
        self._kept_back.pop(one.queue, None)
        self._given[one.queue] = one
        messages = one.held.take(count_max)
        one.held.commit()
        return messages

    # -- progress ----------------------------------------------------------------------------

    def sought(self, queue: MessageQueue) -> None:
        """Note that the user has moved a queue: its new position counts like a message given."""
        if queue in self._queues:
            self._given[queue] = self._queues[queue]
            self._sought.add(queue)
            self._kept_back.pop(queue, None)

    def restarted(self, before: AssignedQueue) -> None:
        """Note that a queue was taken up anew at a corrected offset."""
        if self._given.get(before.queue) is before and before.queue in self._queues:
            self._given[before.queue] = self._queues[before.queue]

    def is_given(self, one: AssignedQueue) -> bool:
        """Return whether messages of a queue were given that do not count as consumed yet."""
        return one in (self._given.get(one.queue), self._kept_back.get(one.queue))

    def is_sought(self, queue: MessageQueue) -> bool:
        """Return whether the user has moved a queue since its progress was noted."""
        return queue in self._sought

    def progress(self) -> dict[MessageQueue, int]:
        """Return the positions of queues whose progress was not noted yet.

        Queues that were given up in the meantime are not among them: others have them now.
        """
        return {
            queue: one.position
            for queue, one in self._given.items()
            if self._queues.get(queue) is one
        }

    def committed(self, queue: MessageQueue, offset: int) -> None:
        """Note up to where the user says that messages given of a queue are consumed.

        The rest of them counts only when further messages are given.
        """
        self.noted(queue)
        one = self._queues.get(queue)
        if one is not None and offset < one.position:
            self._kept_back[queue] = one

    def noted(self, queue: MessageQueue) -> None:
        """Note that the progress of a queue is known to the offset store."""
        self._given.pop(queue, None)
        self._sought.discard(queue)
