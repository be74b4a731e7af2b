"""Orderly consumption: the batches of a queue follow each other, and a failure stops the queue."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import TYPE_CHECKING

from flintmq.client.assigning.process_queue import NOTHING
from flintmq.client.consuming.consume_service import CANCEL_WAIT_S, ConsumeService

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flintmq.client.assigning.assigned_queue import AssignedQueue
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)


class OrderlyService(ConsumeService):
    """Hands the messages of each queue over in their order.

    In a clustering group (``send_back`` is given) a queue is consumed only while its lock is
    valid.
    """

    def _set_up(self) -> None:
        self._slots = asyncio.Semaphore(self._settings.concurrency)
        self._tasks: dict[AssignedQueue, asyncio.Task[None]] = {}

    def begin(self, one: AssignedQueue) -> None:
        """Start the task that consumes a queue until it is given up."""
        task = asyncio.create_task(self._consume_forever(one), name=f"consume {one.queue}")
        self._tasks[one] = task
        task.add_done_callback(functools.partial(self._ended, one))

    def _ended(self, one: AssignedQueue, task: asyncio.Task[None]) -> None:
        self._tasks.pop(one, None)
        if task.cancelled() and not self._is_stopping and not one.leaving.is_set():
            # The handler has cancelled the task that called it: that is a failure.
            one.held.put_back()
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.suspend_queue_ms / 1000, self._begin_again, one)

    def _begin_again(self, one: AssignedQueue) -> None:
        if not self._is_stopping and not one.leaving.is_set():
            self.begin(one)

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
                pause_ms = await self._consume_next(one)
            except Exception:
                # What was taken is not committed; the queue must not fall silent.
                logger.exception("messages not consumed: queue=%s", one.queue)
                one.held.put_back()
                pause_ms = self._settings.suspend_queue_ms
            if pause_ms:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_ms / 1000):
                        await one.leaving.wait()

    async def _consume_next(self, one: AssignedQueue) -> int:
        """Hand the next batch over; return how long the queue has to wait then."""
        async with self._slots:
            # The queue may have been left while this waited for its turn.
            if not self._may_consume(one):
                return 0
            messages = one.held.take(self._settings.batch_size)
            began_ms = self._now_ms()
            outcome = await self._runner.run(messages)
            elapsed_ms = self._now_ms() - began_ms
            self._note_calls(one, messages, elapsed_ms=elapsed_ms, is_success=outcome.is_success)
        handled, failed = outcome.split(messages)
        if failed and await self._are_dead_letters(failed):
            handled, failed = messages, ()
        again = [message.failed_once_more() for message in failed]
        # What is handled counts, also when the queue is being given up meanwhile: it is handed
        # over only after this.
        offset = one.held.commit_first(handled, put_back=again)
        if offset != NOTHING:
            self._offsets.update(one.queue, offset, increase_only=True)
        if not again:
            return 0
        asked_ms = None if outcome.later is None else outcome.later.suspend_ms
        return self._settings.suspend_queue_ms if asked_ms is None else max(asked_ms, 1)

    async def _are_dead_letters(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Return whether all messages have failed too often and are dead letters now.

        In a broadcasting group there are no dead letters: they are let go.
        """
        times_max = self._settings.reconsume_times_max
        if times_max is None or any(one.reconsume_times < times_max for one in messages):
            return False
        if self._send_back is None:
            for message in messages:
                logger.warning("message let go, it has failed too often: id=%s", message.message_id)
            return True
        return all([await self._send_back.send_dead_letter(message) for message in messages])

    async def give_stuck_back(self, queues: Iterable[AssignedQueue]) -> None:
        """Give nothing back: that would break the order."""

    # -- the end -----------------------------------------------------------------------------

    async def settle(self, one: AssignedQueue) -> bool:
        """Wait for the running batch: the next owner has to start behind it."""
        task = self._tasks.get(one)
        if task is None:
            return True
        await asyncio.wait([task])
        return not task.cancelled()

    async def stop(self, timeout_ms: int) -> set[MessageQueue]:
        """Start no further batch and wait for running handlers; cancel those that take too long.

        Return the queues for which handlers may still be running.
        """
        self.halt()
        tasks = dict(self._tasks)
        for one in tasks:
            one.leave()
        if not tasks:
            return set()
        _, late = await asyncio.wait(tasks.values(), timeout=timeout_ms / 1000)
        for task in late:
            task.cancel()
        if late:
            # A handler may want to tidy up, or not be cancelled at all.
            await asyncio.wait(late, timeout=CANCEL_WAIT_S)
        busy = {one.queue for one, task in tasks.items() if task in late}
        if busy:
            self.is_idle = False
            logger.warning("handlers are still at work, their messages come again: %s", busy)
        return busy

    def close(self, *, wait: bool) -> None:
        """Do nothing: handlers run in the loop, or in threads of who calls them."""
