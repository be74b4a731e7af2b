"""Answers that wait for the disk: none leaves before its promise holds.

The store tells from its flushing thread that a range is on the disk.  What waits is answered on
the event loop, and all that one flush has freed in one turn of it.  The time that an answer may
wait is kept here too: the flushing thread cannot tell while it waits for the disk itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from flintmq.store.config import FlushMode
from flintmq.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.store.message_store import MessageStore
    from flintmq.store.results import PutResult

    Done: TypeAlias = Callable[[PutResult], None]

logger = logging.getLogger(__name__)


class _WaitingPut:
    """A put whose answer waits."""

    __slots__ = ("deadline", "done", "is_over", "result")

    def __init__(self, result: PutResult, done: Done, deadline: float) -> None:
        self.result = result
        self.done = done
        self.deadline = deadline
        """When the answer leaves at the latest, on the loop's clock."""
        self.is_over = False


class DurablePuts:
    """Calls back once a put is as durable as it was asked to be."""

    def __init__(self, store: MessageStore, *, dispatch: Callable[[], None]) -> None:
        self._store = store
        self._dispatch = dispatch
        self._loop = asyncio.get_running_loop()
        self._timeout_s = store.config.sync_flush_timeout_ms / 1000
        self._waiting: deque[_WaitingPut] = deque()
        """In the order of their deadlines; some at the front may be over."""
        self._timer: asyncio.TimerHandle | None = None
        self._ready: deque[tuple[_WaitingPut, PutStatus, str]] = deque()
        self._is_scheduled = False
        self.waiting_count = 0
        """Requests whose answers wait."""
        self._stuck_below = 0
        """An end of a put whose time was up before the disk had it."""
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waited_ms(self) -> int:
        """How long the put has waited that came first; 0 if none waits."""
        for put in self._waiting:
            if not put.is_over:
                return round((self._loop.time() - put.deadline + self._timeout_s) * 1000)
        return 0

    @property
    def is_disk_stuck(self) -> bool:
        """Whether the disk still does not have what it was given too much time for."""
        return self._stuck_below > self._store.flusher.flushed_offset

    def when_done(self, result: PutResult, done: Done, *, must_wait: bool = False) -> None:
        """Call ``done`` with the final result: at once if there is nothing to wait for.

        With ``must_wait`` a store that flushes synchronously is waited for whatever the message
        itself says.  RocketMQ stores retries as messages that nobody waits for, and answers a
        consumer that gives one back before it is on the disk.
        """
        is_sync = self._store.config.flush_mode is FlushMode.SYNC
        if not (result.ok and is_sync and (result.wait_for_flush or must_wait)):
            done(result)
            return
        self.waiting_count += result.request_count
        self._idle.clear()
        waiting = _WaitingPut(result, done, self._loop.time() + self._timeout_s)
        self._waiting.append(waiting)
        if self._timer is None:
            self._timer = self._loop.call_at(waiting.deadline, self._expire)

        def flushed(status: PutStatus, reason: str) -> None:
            self._ready.append((waiting, status, reason))
            # From whatever thread: a second wake-up does no harm, a missing one would.
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon_threadsafe(self._run)

        self._store.when_flushed(result.end_offset, flushed)

    async def put_done(self, result: PutResult) -> PutResult:
        """Return the final result of a put."""
        future: asyncio.Future[PutResult] = self._loop.create_future()

        def done(final: PutResult) -> None:
            # Whoever waited may be gone with its connection.
            if not future.done():
                future.set_result(final)

        self.when_done(result, done)
        return await future

    def _run(self) -> None:
        self._is_scheduled = False
        # The senders' turn comes first: their next messages are on the way while the queues follow.
        # Whoever reads a queue has it brought up to date before.
        while self._ready:
            self._finish(*self._ready.popleft())
        self._dispatch()
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()

    def _finish(self, waiting: _WaitingPut, status: PutStatus, reason: str) -> None:
        if waiting.is_over:
            return
        waiting.is_over = True
        self.waiting_count -= waiting.result.request_count
        if status is not waiting.result.status:
            waiting.result.with_status(status, reason)
        try:
            waiting.done(waiting.result)
        except Exception:
            # It concerns one put only; the others are answered all the same.
            logger.exception("put could not be answered")
        if not self.waiting_count:
            self._idle.set()

    def _expire(self) -> None:
        """Answer what has waited too long, and wait for the next one."""
        self._timer = None
        now = self._loop.time()
        while self._waiting and (self._waiting[0].is_over or self._waiting[0].deadline <= now):
            late = self._waiting.popleft()
            if not late.is_over:
                self._stuck_below = max(self._stuck_below, late.result.end_offset)
            reason = "not flushed within syncFlushTimeout"
            self._finish(late, PutStatus.FLUSH_DISK_TIMEOUT, reason)
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0].deadline, self._expire)

    async def idle(self) -> None:
        """Wait until nothing waits for the disk any more."""
        await self._idle.wait()
