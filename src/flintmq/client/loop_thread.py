"""Asynchronous things for code without asyncio: an event loop in a thread, and who lives in it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from flintmq.client.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

_T = TypeVar("_T")
_Member = TypeVar("_Member", bound="AbstractAsyncContextManager[Any]")


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


class _Call(Generic[_T]):
    """A coroutine that runs in the loop while a thread waits for it.

    A lock is all that the two need; a future for threads costs several times as much.
    """

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        self._work = work
        self._task: asyncio.Task[_T] | None = None
        self._running = threading.Lock()
        self._running.acquire()

    def begin(self) -> None:
        """Start in the loop."""
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(lambda _: self._running.release())

    def cancel(self) -> None:
        """Give up, in the loop."""
        if self._task is not None:
            self._task.cancel()

    def abandon(self) -> None:
        """Let the waiting thread go: the loop has ended."""
        if self._task is None:
            self._work.close()
        if self._running.locked():
            self._running.release()

    def wait(self) -> _T:
        """Wait in the calling thread and return the result."""
        self._running.acquire()
        task = self._task
        if task is None or not task.done() or task.cancelled():
            raise UsageError("this client was closed meanwhile")
        return task.result()


class LoopThread:
    """An event loop in a thread of its own; calls may come from any other thread."""

    def __init__(self, name: str = "flintmq-client") -> None:
        self._loop = _new_loop()
        self._calls: set[_Call[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and return its result."""
        call = _Call(work)
        self._calls.add(call)
        try:
            try:
                self._loop.call_soon_threadsafe(call.begin)
            except RuntimeError:
                work.close()
                raise UsageError("this client is closed") from None
            try:
                return call.wait()
            except BaseException:
                # An interrupted caller does not leave the work running behind its back.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(call.cancel)
                raise
        finally:
            self._calls.discard(call)

    def close(self) -> None:
        """End the loop and its thread; a second call does nothing."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        # Calls that came too late to be cancelled would wait for ever.
        for call in list(self._calls):
            call.abandon()

    @staticmethod
    async def _cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()


class InThread(Generic[_Member]):
    """Owns something asynchronous and the thread in which it lives; a context manager."""

    _noun = "client"

    def __init__(self, make: Callable[[], _Member]) -> None:
        self._make: Callable[[], _Member] = make
        self._thread: LoopThread | None = None
        self._member: _Member | None = None

    def start(self) -> Self:
        """Begin; `close` ends it."""
        if self._thread is not None:
            raise UsageError(f"this {self._noun} is open already")
        thread = LoopThread(f"flintmq-{self._noun}")
        try:
            self._member = thread.run(self._open())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    async def _open(self) -> _Member:
        # It makes its locks and events for the loop that it is made in.
        member = self._make()
        await member.__aenter__()
        return member

    def close(self) -> None:
        """End it and its thread; a second call does nothing."""
        self.__exit__(None, None, None)

    def _opened(self) -> tuple[LoopThread, _Member]:
        if self._thread is None or self._member is None:
            raise UsageError(f"the {self._noun} is not open: use it in a with statement")
        return self._thread, self._member

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        thread, member = self._thread, self._member
        self._thread = self._member = None
        if thread is None or member is None:
            return
        try:
            thread.run(member.__aexit__(kind, error, trace))
        finally:
            thread.close()


async def now(function: Callable[[], _T]) -> _T:
    """Call a plain function from within the loop."""
    return function()
