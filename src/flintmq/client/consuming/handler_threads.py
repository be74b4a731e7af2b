"""Threads that call plain functions for an event loop, with few switches between the two.

A pool that wakes a thread for each call, and the loop for each result, spends more time on that
than most handlers take.  Here a thread that has finished takes the next call itself, and results
that come close together reach the loop together.  Further threads are woken when calls have
waited for a moment: twice as many each time, until none waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Argument = TypeVar("_Argument")
_T = TypeVar("_T")

HELP_AFTER_S: Final = 0.001
"""How long calls wait before another thread is woken."""


class HandlerThreads(Generic[_Argument, _T]):
    """Calls ``function`` in at most ``count`` threads; it must not raise.

    All methods belong to the thread of the loop in which this was first used.
    """

    def __init__(self, function: Callable[[_Argument], _T], *, count: int) -> None:
        self._function = function
        self._count = count
        self._threads: list[threading.Thread] = []
        self._calls: deque[tuple[_Argument, asyncio.Future[_T]]] = deque()
        self._results: deque[tuple[asyncio.Future[_T], _T]] = deque()
        # Guards what follows, and the decision of a thread to sleep.
        self._changed = threading.Condition()
        self._awake_count = 0
        self._is_closed = False
        self._is_loop_told = False
        self._help: asyncio.TimerHandle | None = None

    def call(self, argument: _Argument) -> asyncio.Future[_T]:
        """Return a future of the result; it can be cancelled until a thread takes the call."""
        assert not self._is_closed, "a call after the end"
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        with self._changed:
            self._calls.append((argument, future))
            if not self._awake_count:
                self._wake(1)
                return future
        if self._help is None:
            self._help = loop.call_later(HELP_AFTER_S, self._send_help, loop)
        return future

    def _send_help(self, loop: asyncio.AbstractEventLoop) -> None:
        self._help = None
        with self._changed:
            waiting = len(self._calls)
            self._wake(min(waiting, max(self._awake_count, 1)))
            if waiting and self._awake_count < self._count:
                self._help = loop.call_later(HELP_AFTER_S, self._send_help, loop)

    def _wake(self, count: int) -> None:
        """Wake or start ``count`` more threads, within the limit; the caller holds the lock."""
        for _ in range(min(count, self._count - self._awake_count)):
            self._awake_count += 1
            if self._awake_count <= len(self._threads):
                self._changed.notify()
                continue
            thread = threading.Thread(
                target=self._work,
                args=(asyncio.get_running_loop(),),
                name=f"flintmq-handler_{len(self._threads)}",
                # A program that forgets to close its consumer ends all the same.
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()

    # -- in the threads ----------------------------------------------------------------------

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (taken := self._next()) is not None:
            argument, future = taken
            if future.cancelled():
                continue
            self._results.append((future, self._function(argument)))
            if not self._is_loop_told:
                self._is_loop_told = True
                # A loop that has ended waits for nothing.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._hand_over)

    def _next(self) -> tuple[_Argument, asyncio.Future[_T]] | None:
        with self._changed:
            while not self._calls:
                self._awake_count -= 1
                if self._is_closed:
                    return None
                self._changed.wait()
            return self._calls.popleft()

    # -- in the loop -------------------------------------------------------------------------

    def _hand_over(self) -> None:
        # First this: a result that comes from now on tells the loop again.
        self._is_loop_told = False
        while self._results:
            future, result = self._results.popleft()
            if not future.done():
                future.set_result(result)

    def close(self, *, wait: bool) -> None:
        """Start no further call; with ``wait``, return when all threads have ended."""
        if self._help is not None:
            self._help.cancel()
        with self._changed:
            self._is_closed = True
            self._calls.clear()
            self._awake_count = len(self._threads)
            self._changed.notify_all()
        if wait:
            for thread in self._threads:
                thread.join()
