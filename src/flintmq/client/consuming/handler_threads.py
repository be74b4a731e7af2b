"""Threads that call plain functions for an event loop, with few switches between the two.

A pool that wakes a thread for each call, and the loop for each result, spends more time on that
than most handlers take.  Here a thread that has finished takes the next call itself, and results
that come close together reach the loop together.  Further threads are woken when calls wait and
those at work get on slowly: twice as many each time, until none waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Argument = TypeVar("_Argument")
_T = TypeVar("_T")

HELP_AFTER_S: Final = 0.001
"""How long calls wait before another thread is woken."""
FAST_COUNT: Final = 32
"""Calls that a thread ends in that time if it gets on well.  Another one would only take turns with
it: Python runs one thread at a time."""


class ThreadCrew(Generic[_Argument, _T]):
    """Calls ``function`` in at most ``count`` threads; it must not raise.

    ``take`` gets arguments with their results, in the loop.  All methods belong to the thread of
    the loop in which this was first used.
    """

    def __init__(
        self,
        function: Callable[[_Argument], _T],
        take: Callable[[Sequence[tuple[_Argument, _T]]], None],
        *,
        count: int,
    ) -> None:
        self._function = function
        self._take = take
        self._count = count
        self._threads: list[threading.Thread] = []
        self._calls: deque[_Argument] = deque()
        self._results: deque[tuple[_Argument, _T]] = deque()
        # Guards what follows, and the decision of a thread to sleep.
        self._changed = threading.Condition()
        self._awake_count = 0
        self._is_closed = False
        self._is_loop_told = False
        self._help: asyncio.TimerHandle | None = None
        self.open_count = 0
        """Calls whose results were not taken yet."""
        self._helped_at = 0
        """How many calls had ended when more threads were last thought of."""
        self._ended_count = 0

    def submit(self, arguments: Sequence[_Argument]) -> None:
        """Have the function called with each of some arguments."""
        assert not self._is_closed, "a call after the end"
        self.open_count += len(arguments)
        loop = asyncio.get_running_loop()
        with self._changed:
            self._calls += arguments
            if not self._awake_count:
                self._wake(1)
        if self._help is None:
            self._look_later(loop)

    def withdraw(self) -> None:
        """Have nothing called any more that no thread has taken yet."""
        while self._calls:
            with contextlib.suppress(IndexError):  # A thread may have been faster.
                self._calls.popleft()
                self.open_count -= 1

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._helped_at = self._ended_count
        self._help = loop.call_later(HELP_AFTER_S, self._send_help, loop)

    def _send_help(self, loop: asyncio.AbstractEventLoop) -> None:
        self._help = None
        with self._changed:
            waiting, at_work = len(self._calls), max(self._awake_count, 1)
            if self._ended_count - self._helped_at < FAST_COUNT * at_work:
                self._wake(min(waiting, at_work))
            if waiting and self._awake_count < self._count:
                self._look_later(loop)

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
        function, calls, results = self._function, self._calls, self._results
        while calls or self._wait():
            try:
                argument = calls.popleft()
            except IndexError:
                continue  # Another thread was faster.
            results.append((argument, function(argument)))
            if not self._is_loop_told:
                self._is_loop_told = True
                # A loop that has ended waits for nothing.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._hand_over)

    def _wait(self) -> bool:
        """Sleep until there may be a call; return whether there will be any."""
        with self._changed:
            if self._calls:
                return True
            self._awake_count -= 1
            if self._is_closed:
                return False
            self._changed.wait()
            return True

    # -- in the loop -------------------------------------------------------------------------

    def _hand_over(self) -> None:
        # First this: a result that comes from now on tells the loop again.
        self._is_loop_told = False
        results = self._results
        taken = [results.popleft() for _ in range(len(results))]
        self.open_count -= len(taken)
        self._ended_count += len(taken)
        self._take(taken)

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


class HandlerThreads(Generic[_Argument, _T]):
    """A thread crew that gives a future for each call."""

    def __init__(self, function: Callable[[_Argument], _T], *, count: int) -> None:
        self._function = function
        self._crew = ThreadCrew(self._call, self._take, count=count)

    def call(self, argument: _Argument) -> asyncio.Future[_T]:
        """Return a future of the result; it can be cancelled until a thread takes the call."""
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._crew.submit([(argument, future)])
        return future

    def _call(self, call: tuple[_Argument, asyncio.Future[_T]]) -> _T | None:
        argument, future = call
        return None if future.cancelled() else self._function(argument)

    def _take(
        self, results: Sequence[tuple[tuple[_Argument, asyncio.Future[_T]], _T | None]]
    ) -> None:
        for (_, future), result in results:
            if not future.done():
                future.set_result(cast("_T", result))

    def close(self, *, wait: bool) -> None:
        """Start no further call; with ``wait``, return when all threads have ended."""
        self._crew.close(wait=wait)
