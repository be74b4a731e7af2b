"""Concurrent consumption: handlers run side by side, and the order of a queue is not kept."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from flintmq.client.assigning.process_queue import NOTHING
from flintmq.client.consuming.begun_calls import begin_call
from flintmq.client.consuming.consume_service import CANCEL_WAIT_S, ConsumeService
from flintmq.client.consuming.handlers import SUCCESS, HandlerRunner, Outcome
from flintmq.client.pulling.send_back import DEFAULT_TIMES_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from flintmq.client.assigning.assigned_queue import AssignedQueue
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)

STUCK_COUNT_MAX: Final = 16
"""Stuck messages of a queue that are given back in one round."""

STUCK_LEVEL: Final = 3
TURN_COUNT: Final = 32
"""Batches of one queue that a worker consumes before it notes what came of them."""

STINT_COUNT: Final = 128
"""Batches that a worker consumes before it lets other tasks of the loop run."""

STINT_MS: Final = 5
"""How long handlers may take before other tasks of the loop run, even if they were few."""

HeldBatch: TypeAlias = "tuple[AssignedQueue, Sequence[ReceivedMessage]]"
"""Messages of a queue for one call of the handler."""


class HandlerTurn:
    """Calls of the handler for one queue, and what came of them."""

    __slots__ = ("call_count", "called", "elapsed_ms", "handled", "one")

    def __init__(self, one: AssignedQueue) -> None:
        self.one = one
        self.called: Sequence[ReceivedMessage] = ()
        """The batch of the last call."""
        self.call_count = 0
        """Calls that have handled their batches, and that nobody had to wait for."""
        self.handled: list[ReceivedMessage] = []
        """The messages of those."""
        self.elapsed_ms = 0
        """How long those took together."""


class ConcurrentService(ConsumeService):
    """Hands batches to at most ``concurrency`` handlers at once.

    Without ``send_back``, in a broadcasting group, no other member could take failed messages:
    they are tried here again, until they have failed too often.
    """

    def _set_up(self) -> None:
        runner = self._runner
        self._begin_call = (
            runner.begin
            if isinstance(runner, HandlerRunner)
            else lambda messages: begin_call(runner.run(messages))
        )
        self._ready: deque[HeldBatch] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._coming: set[object] = set()
        """The marks of workers that run soon by themselves: they have not begun, or gave way."""
        self._retries: set[asyncio.TimerHandle] = set()

    # -- from pulls to handlers --------------------------------------------------------------

    def begin(self, one: AssignedQueue) -> None:
        """Do nothing: work begins when messages arrive."""

    def arrived(self, one: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Consume messages that the queue holds now."""
        size = self._settings.batch_size
        if size == 1:
            self._begin([(one, [message]) for message in messages])
        else:
            self._begin([(one, messages[at : at + size]) for at in range(0, len(messages), size)])

    def _begin(self, batches: Sequence[HeldBatch]) -> None:
        self._ready += batches
        self._hire()

    def _hire(self) -> None:
        """Start one more worker if batches wait; a worker that has to wait starts the next one.

        Handlers that never wait are served by one worker, without the cost of tasks beside it.
        """
        if (
            self._ready
            and not (self._coming or self._is_stopping)
            and len(self._workers) < self._settings.concurrency
        ):
            mark = object()
            self._coming.add(mark)
            worker = asyncio.create_task(self._work(mark), name="consume")
            self._workers.add(worker)
            worker.add_done_callback(partial(self._dismissed, mark=mark))

    def _dismissed(self, worker: asyncio.Task[None], *, mark: object = None) -> None:
        self._workers.discard(worker)
        self._coming.discard(mark)
        # Messages may have come after the worker's last look.
        self._hire()

    async def _work(self, mark: object) -> None:
        self._coming.discard(mark)
        call_count = elapsed_ms = 0
        while self._ready and not self._is_stopping:
            turn = HandlerTurn(self._ready[0][0])
            try:
                await self._consume(turn)
            except asyncio.CancelledError:
                if not self._is_stopping:
                    # The handler has cancelled the task that called it: that is a failure.
                    self._retry_here(turn.one, list(filter(turn.one.held.holds, turn.called)))
                raise
            except Exception:
                # They stay held and uncommitted, so a later owner of the queue gets them.
                logger.exception("messages not consumed: queue=%s", turn.one.queue)
            call_count += turn.call_count + 1
            elapsed_ms += turn.elapsed_ms
            if (call_count >= STINT_COUNT or elapsed_ms >= STINT_MS) and self._ready:
                # Others have work to do in this loop too.
                call_count = elapsed_ms = 0
                self._coming.add(mark)
                await asyncio.sleep(0)
                self._coming.discard(mark)

    async def _consume(self, turn: HandlerTurn) -> None:
        """Consume batches of a queue until a handler fails or has to wait, and finish that one."""
        began_ms = self._now_ms()
        try:
            outcome = self._consume_at_once(turn)
        finally:
            turn.elapsed_ms = self._now_ms() - began_ms
            self._note_turn(turn)
        if outcome is not None:
            self._hire()
            await self._finish(turn.one, turn.called, outcome)

    def _consume_at_once(self, turn: HandlerTurn) -> Outcome | Awaitable[Outcome] | None:
        """Consume batches of a queue whose handlers handle them without waiting.

        Return the outcome of the first call that is different, None if there is none in this turn.
        """
        one, ready, call = turn.one, self._ready, self._begin_call
        held, handled = one.held, turn.handled
        while ready and ready[0][0] is one and turn.call_count < TURN_COUNT:
            called = turn.called = ready.popleft()[1]
            if held.is_dropped:
                continue
            outcome = call(called)
            if outcome is not SUCCESS and not (isinstance(outcome, Outcome) and outcome.is_success):
                return outcome
            turn.call_count += 1
            handled += called
            if self._is_stopping:
                break
        return None

    def _note_turn(self, turn: HandlerTurn) -> None:
        """Note what was handled in a turn."""
        if not turn.handled:
            return
        self._note_calls(
            turn.one, turn.handled, elapsed_ms=turn.elapsed_ms, call_count=turn.call_count
        )
        if not turn.one.held.is_dropped:
            self._let_go(turn.one, turn.handled)

    async def _finish(
        self,
        one: AssignedQueue,
        messages: Sequence[ReceivedMessage],
        begun: Outcome | Awaitable[Outcome],
    ) -> None:
        """Wait for a call of the handler that has begun, and do what its outcome says."""
        held, began_ms = one.held, self._now_ms()
        held.start(messages, now_ms=began_ms)
        outcome = begun if isinstance(begun, Outcome) else await begun
        elapsed_ms = self._now_ms() - began_ms
        self._note_calls(one, messages, elapsed_ms=elapsed_ms, is_success=outcome.is_success)
        await self._take_outcome(one, messages, outcome)

    async def _take_outcome(
        self, one: AssignedQueue, messages: Sequence[ReceivedMessage], outcome: Outcome
    ) -> None:
        """Let go what was handled, and give back what was not."""
        if one.held.is_dropped:
            return  # Another member gets the messages again.
        handled, failed = outcome.split(messages)
        if handled:
            self._let_go(one, handled)
        if failed:
            level = 0 if outcome.later is None else outcome.later.delay_level
            await self._take_failure(one, failed, delay_level=level)

    async def _take_failure(
        self, one: AssignedQueue, messages: Sequence[ReceivedMessage], *, delay_level: int
    ) -> None:
        # One that was stuck may have been given back already.
        kept = await self._give_back(filter(one.held.holds, messages), delay_level)
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

    async def _give_back(
        self, failed: Iterable[ReceivedMessage], delay_level: int
    ) -> list[ReceivedMessage]:
        """Give failed messages back; return those that have to be tried here again."""
        if self._send_back is None:
            return [message for message in failed if not self._is_let_go(message)]
        give = self._send_back.give
        return [message for message in failed if not await give(message, delay_level=delay_level)]

    def _is_let_go(self, message: ReceivedMessage) -> bool:
        """Return whether a message has failed too often to be tried again."""
        times_max = self._settings.reconsume_times_max
        if message.reconsume_times < (DEFAULT_TIMES_MAX if times_max is None else times_max):
            return False
        logger.warning("message let go, it has failed too often: id=%s", message.message_id)
        return True

    def _retry_here(self, one: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        again = [message.failed_once_more() for message in messages]

        def retry() -> None:
            self._retries.discard(handle)
            self.arrived(one, again)

        loop = asyncio.get_running_loop()
        handle = loop.call_later(self._settings.local_retry_ms / 1000, retry)
        self._retries.add(handle)

    async def give_stuck_back(self, queues: Iterable[AssignedQueue]) -> None:
        """Give back messages whose handlers do not finish.

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
        """Wait for nothing: results for a dropped queue are ignored."""
        return True

    async def stop(self, timeout_ms: int) -> set[MessageQueue]:
        """Start no further batch and wait for running handlers; cancel those that take too long.

        Return the queues for which handlers may still be running.
        """
        self.halt()
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
        if late:
            # A handler may want to tidy up, or not be cancelled at all.
            await asyncio.wait(late, timeout=CANCEL_WAIT_S)
        return set()

    def close(self, *, wait: bool) -> None:
        """Do nothing: handlers run in the loop, or in threads of who calls them."""
