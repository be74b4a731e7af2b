"""Consuming messages side by side: the order of a queue is not kept, a slow one holds up none."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from flintmq.client.consuming import Consuming
from flintmq.client.process_queue import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flintmq.client.assigned_queue import AssignedQueue
    from flintmq.client.messages import ReceivedMessage
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)

STUCK_COUNT_MAX: Final = 16
"""Stuck messages of a queue that are given back in one round."""

STUCK_LEVEL: Final = 3
TURN_COUNT: Final = 32
"""Batches that a worker may have consumed before it lets others go on."""

_Batch = tuple["AssignedQueue", "Sequence[ReceivedMessage]"]


class ConcurrentConsuming(Consuming):
    """Hands batches to at most ``concurrency`` handlers at once.

    Without ``send_back``, failed messages are not given back but let go: nobody else could get
    them in a broadcasting group.
    """

    def _set_up(self) -> None:
        self._ready: deque[_Batch] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._retries: set[asyncio.TimerHandle] = set()

    # -- from pulls to handlers --------------------------------------------------------------

    def begin(self, one: AssignedQueue) -> None:
        """Nothing is to be done before messages come."""

    def arrived(self, one: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Consume messages that the queue holds now."""
        size = self._settings.batch_size
        for at in range(0, len(messages), size):
            self._ready.append((one, messages[at : at + size]))
        self._hire()

    def _hire(self) -> None:
        """Put one more worker to work if there is anything to do; it sends for the next."""
        if (
            self._ready
            and not self._is_stopping
            and len(self._workers) < self._settings.concurrency
        ):
            worker = asyncio.create_task(self._work(), name="consume")
            self._workers.add(worker)
            worker.add_done_callback(self._dismissed)

    def _dismissed(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        # Messages may have come after the worker's last look.
        self._hire()

    async def _work(self) -> None:
        # This comes to pass when the worker has to wait for the first time.  Handlers that never
        # wait are served by one worker, without the cost of a task for each message.
        asyncio.get_running_loop().call_soon(self._hire)
        turn = 0
        while self._ready and not self._is_stopping:
            one, messages = self._ready.popleft()
            try:
                await self._consume(one, messages)
            except Exception:
                # They stay held and uncommitted, so a later owner of the queue gets them.
                logger.exception("messages not consumed: queue=%s", one.queue)
            turn += 1
            if turn % TURN_COUNT == 0:
                # Others have work to do in this loop too.
                await asyncio.sleep(0)

    async def _consume(self, one: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        held = one.held
        if held.is_dropped:
            return
        began_ms = self._now_ms()
        held.start(messages, now_ms=began_ms)
        outcome = await self._hand_over(one, messages, began_ms=began_ms)
        if not outcome.is_success and not held.is_dropped:
            await self._take_failure(one, messages)
        elif not held.is_dropped:
            self._let_go(one, messages)
        # Of a dropped queue another member gets the messages again.

    async def _take_failure(self, one: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        # One that was stuck may have been given back already.
        kept = await self._give_back(filter(one.held.holds, messages))
        if one.held.is_dropped:
            return
        kept_offsets = {message.queue_offset for message in kept}
        self._let_go(one, [each for each in messages if each.queue_offset not in kept_offsets])
        if kept:
            self._retry_here(one, kept)

    def _let_go(self, one: AssignedQueue, messages: Iterable[ReceivedMessage]) -> None:
        offset = one.held.remove(messages)
        if offset != NOTHING:
            self._offsets.update(one.queue, offset, increase_only=True)

    # -- failures ----------------------------------------------------------------------------

    async def _give_back(self, failed: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Give failed messages back; return those that have to be tried here again."""
        if self._send_back is None:
            for message in failed:
                logger.warning("message let go after a failure: id=%s", message.message_id)
            return []
        return [message for message in failed if not await self._send_back.give(message)]

    def _retry_here(self, one: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        again = [message.failed_once_more() for message in messages]

        def retry() -> None:
            self._retries.discard(handle)
            self.arrived(one, again)

        loop = asyncio.get_running_loop()
        handle = loop.call_later(self._settings.local_retry_ms / 1000, retry)
        self._retries.add(handle)

    async def give_stuck_back(self, queues: Iterable[AssignedQueue]) -> None:
        """Give messages back that handlers do not come to an end with.

        Such a message holds the committed offset of its queue back.
        """
        if self._send_back is None:
            return
        for one in queues:
            for _ in range(STUCK_COUNT_MAX):
                message = one.held.stuck(
                    now_ms=self._now_ms(), timeout_ms=self._settings.consume_timeout_ms
                )
                if message is None or not await self._send_back.give(
                    message, delay_level=STUCK_LEVEL
                ):
                    break
                logger.warning("message given back, its handler is stuck: %s", message.message_id)
                if not one.held.is_dropped:
                    self._let_go(one, [message])

    # -- the end -----------------------------------------------------------------------------

    async def settle(self, one: AssignedQueue) -> bool:
        """Nothing is waited for: results that come late count for nothing."""
        return True

    async def stop(self, timeout_ms: int) -> set[MessageQueue]:
        """Begin nothing more and wait for handlers at work; cancel those that take too long.

        Return the queues in which handlers may still be at work.
        """
        self._is_stopping = True
        self._ready.clear()
        for handle in self._retries:
            handle.cancel()
        self._retries.clear()
        if not self._workers:
            return set()
        _, late = await asyncio.wait(self._workers, timeout=timeout_ms / 1000)
        if late:
            self.is_idle = False
            logger.warning("%d handlers are still at work, their messages come again", len(late))
        for worker in late:
            worker.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return set()
