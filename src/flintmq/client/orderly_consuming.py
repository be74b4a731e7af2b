"""Consuming each queue in order: one batch after the other, a failure holds the queue up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from flintmq.client.consuming import Consuming
from flintmq.client.process_queue import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flintmq.client.assigned_queue import AssignedQueue
    from flintmq.client.messages import ReceivedMessage
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)


class OrderlyConsuming(Consuming):
    """Hands the messages of each queue over in their order.

    In a clustering group (``send_back`` is given) a queue is consumed only while its lock is
    valid.
    """

    def _set_up(self) -> None:
        self._slots = asyncio.Semaphore(self._settings.concurrency)
        self._tasks: dict[AssignedQueue, asyncio.Task[None]] = {}

    def begin(self, one: AssignedQueue) -> None:
        """Consume a queue until it is left."""
        task = asyncio.create_task(self._consume_forever(one), name=f"consume {one.queue}")
        self._tasks[one] = task
        task.add_done_callback(lambda _: self._tasks.pop(one, None))

    def arrived(self, one: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Consume messages that the queue holds now."""
        one.changed.set()

    def _may_consume(self, one: AssignedQueue) -> bool:
        if self._is_stopping or one.leaving.is_set():
            return False
        return self._send_back is None or one.held.is_lock_valid(self._now_ms())

    async def _consume_forever(self, one: AssignedQueue) -> None:
        while not self._is_stopping and not one.leaving.is_set():
            one.changed.clear()
            if not one.held.untaken_count or not self._may_consume(one):
                await one.changed.wait()
                continue
            try:
                is_done = await self._consume_next(one)
            except Exception:
                # What was taken is not committed; the queue must not fall silent.
                logger.exception("messages not consumed: queue=%s", one.queue)
                one.held.put_back()
                is_done = False
            if not is_done:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.suspend_queue_ms / 1000):
                        await one.leaving.wait()

    async def _consume_next(self, one: AssignedQueue) -> bool:
        """Hand the next batch over; return False if it has to come again."""
        async with self._slots:
            # The queue may have been left while this waited for its turn.
            if not self._may_consume(one):
                return True
            messages = one.held.take(self._settings.batch_size)
            outcome = await self._hand_over(one, messages, began_ms=self._now_ms())
        if outcome.is_success or await self._all_buried(messages):
            offset = one.held.commit()
            # What is handled counts, also when the queue is being given up meanwhile: it is
            # handed over only after this.
            if offset != NOTHING:
                self._offsets.update(one.queue, offset, increase_only=False)
            return True
        one.held.put_back([message.failed_once_more() for message in messages])
        return False

    async def _all_buried(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Whether all messages have failed too often and are with the dead letters now."""
        times_max = self._settings.reconsume_times_max
        if times_max is None or self._send_back is None:
            return False
        if any(message.reconsume_times < times_max for message in messages):
            return False
        return all([await self._send_back.bury(message) for message in messages])

    async def give_stuck_back(self, queues: Iterable[AssignedQueue]) -> None:
        """Nothing is given back: the order would be lost."""

    # -- the end -----------------------------------------------------------------------------

    async def settle(self, one: AssignedQueue) -> bool:
        """Wait for the batch at work: the next owner has to start behind it."""
        task = self._tasks.get(one)
        if task is None:
            return True
        await asyncio.wait([task])
        return not task.cancelled()

    async def stop(self, timeout_ms: int) -> set[MessageQueue]:
        """Begin nothing more and wait for handlers at work; cancel those that take too long.

        Return the queues in which handlers may still be at work.
        """
        self._is_stopping = True
        tasks = dict(self._tasks)
        for one in tasks:
            one.leave()
        if not tasks:
            return set()
        _, late = await asyncio.wait(tasks.values(), timeout=timeout_ms / 1000)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        busy = {one.queue for one, task in tasks.items() if task in late}
        if busy:
            self.is_idle = False
            logger.warning("handlers are still at work, their messages come again: %s", busy)
        return busy
