"""Concurrent consumption by a plain function: its threads take batches themselves.

A task that waits for each call would cost more than most handlers do.  Here batches wait for
threads in one list, and what came of them is noted together, in the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, TypeAlias

from flintmq.client.consuming.concurrent_service import ConcurrentService, HandlerTurn, HeldBatch
from flintmq.client.consuming.handler_threads import ThreadCrew
from flintmq.client.consuming.handlers import STOPPING, HandlerRunner, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.assigning.assigned_queue import AssignedQueue
    from flintmq.model.message_queue import MessageQueue

logger = logging.getLogger(__name__)

_Called: TypeAlias = "tuple[Outcome, int]"
"""How a call ended, and how many milliseconds it took."""


class ThreadedService(ConcurrentService):
    """Hands batches to a plain function in at most ``concurrency`` threads."""

    def _set_up(self) -> None:
        super()._set_up()
        assert isinstance(self._runner, HandlerRunner), "others call handlers from the loop"
        self._handler = self._runner
        self._crew = ThreadCrew(self._call, self._take, count=self._settings.concurrency)
        self._all_taken: asyncio.Future[None] | None = None
        """Done when no call is left, for whoever waits for that."""
        self._has_stopped = False

    def _begin(self, batches: Sequence[HeldBatch]) -> None:
        if not self._is_stopping:
            self._crew.submit(batches)

    def _call(self, batch: HeldBatch) -> _Called | None:
        """Call the handler, in a thread; None if there is no reason to do so any more."""
        one, messages = batch
        if one.held.is_dropped or self._is_stopping:
            return None
        began_ms = self._now_ms()
        one.held.start(messages, now_ms=began_ms)
        outcome = self._handler.call(messages)
        if isinstance(outcome.error, STOPPING):
            self.halt()  # Other threads begin nothing more, even before the loop hears of it.
        return outcome, self._now_ms() - began_ms

    def _take(self, results: Sequence[tuple[HeldBatch, _Called | None]]) -> None:
        """Note what came of calls."""
        if not self._has_stopped:
            self._note_results(results)
        if self._all_taken is not None and not self._crew.open_count:
            self._all_taken.set_result(None)
            self._all_taken = None

    def _note_results(self, results: Sequence[tuple[HeldBatch, _Called | None]]) -> None:
        turns: dict[AssignedQueue, HandlerTurn] = {}
        for batch, called in results:
            if called is None:
                continue
            outcome, elapsed_ms = called
            if not outcome.is_success:
                failing = asyncio.create_task(self._fail(batch, outcome, elapsed_ms))
                self._workers.add(failing)
                failing.add_done_callback(self._dismissed)
                continue
            one, messages = batch
            turn = turns.get(one)
            if turn is None:
                turn = turns[one] = HandlerTurn(one)
            turn.handled += messages
            turn.call_count += 1
            turn.elapsed_ms += elapsed_ms
        for turn in turns.values():
            self._note_turn(turn)

    async def _fail(self, batch: HeldBatch, outcome: Outcome, elapsed_ms: int) -> None:
        one, messages = batch
        try:
            self._note_calls(one, messages, elapsed_ms=elapsed_ms, is_success=False)
            if outcome.error is not None:
                self._handler.report(messages, outcome.error)
            await self._take_outcome(one, messages, outcome)
        except Exception:
            # They stay held and uncommitted, so a later owner of the queue gets them.
            logger.exception("messages not consumed: queue=%s", one.queue)

    async def stop(self, timeout_ms: int) -> set[MessageQueue]:
        """Start no further batch and wait for running handlers, which cannot be cancelled.

        Return the queues for which handlers may still be running.
        """
        self.halt()
        self._crew.withdraw()
        ends_at = time.monotonic() + timeout_ms / 1000
        if self._crew.open_count:
            self._all_taken = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._all_taken}, timeout=timeout_ms / 1000)
        if late_count := self._crew.open_count:
            self.is_idle = False
            logger.warning("%d handlers are still at work, their messages come again", late_count)
        left_ms = max(round((ends_at - time.monotonic()) * 1000), 0)
        busy = await super().stop(left_ms)
        self._has_stopped = True
        return busy

    def close(self, *, wait: bool) -> None:
        """Let the threads end; with ``wait``, return when they have."""
        self._crew.close(wait=wait)
