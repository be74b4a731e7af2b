"""Answers that wait for the disk: none leaves before its promise holds.

The store tells from its flushing thread that a range is on the disk.  What waits is answered on
the event loop, and all that one flush has freed in one turn of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.store.message_store import MessageStore
    from flintmq.store.results import PutResult, PutStatus

    Done: TypeAlias = Callable[[PutResult], None]


class DurablePuts:
    """Calls back once a put is as durable as it was asked to be."""

    def __init__(self, store: MessageStore, *, dispatch: Callable[[], None]) -> None:
        self._store = store
        self._dispatch = dispatch
        self._loop = asyncio.get_running_loop()
        self._ready: deque[tuple[PutResult, PutStatus, str, Done]] = deque()
        self._is_scheduled = False
        self.waiting_count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def when_done(self, result: PutResult, done: Done) -> None:
        """Call ``done`` with the final result: at once if there is nothing to wait for."""
        if not (result.ok and result.wait_for_flush):
            done(result)
            return
        self.waiting_count += 1
        self._idle.clear()

        def flushed(status: PutStatus, reason: str) -> None:
            self._ready.append((result, status, reason, done))
            # From whatever thread: a second wake-up does no harm, a missing one would.
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon_threadsafe(self._run)

        self._store.when_flushed(result.end_offset, flushed)

    async def put_done(self, result: PutResult) -> PutResult:
        """Return the final result of a put."""
        future: asyncio.Future[PutResult] = self._loop.create_future()
        self.when_done(result, future.set_result)
        return await future

    def _run(self) -> None:
        self._is_scheduled = False
        self._dispatch()
        while self._ready:
            result, status, reason, done = self._ready.popleft()
            self.waiting_count -= 1
            if status is not result.status:
                result.with_status(status, reason)
            done(result)
        if not self.waiting_count:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until nothing waits for the disk any more."""
        await self._idle.wait()
