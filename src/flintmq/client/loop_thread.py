"""Asynchronous objects for code without asyncio: they live in the event loop of a thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    cast,
)

from flintmq.client.errors import UsageError
from flintmq.client.forks import leave_behind_in_forks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Member = TypeVar("_Member", bound="AbstractAsyncContextManager[Any]")


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


CANCEL_TIMEOUT_S: Final = 1.0
"""How long tasks that are left at the end may take to notice that they are cancelled."""


class _Call(Generic[_T]):
    """A coroutine that runs in the loop while a thread waits for it.

    A lock is all that the two need; a future for threads costs several times as much.
    """

    __slots__ = ("_error", "_has_begun", "_has_ended", "_result", "_running", "_task", "_work")

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._result: _T | None = None
        self._error: BaseException | None = None
        self._has_begun = self._has_ended = False
        self._running = threading.Lock()
        self._running.acquire()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start in the loop."""
        self._task = loop.create_task(self._run())

    async def _run(self) -> None:
        self._has_begun = True
        try:
            self._result = await self._work
            self._has_ended = True
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # SystemExit and the like would end the loop, with everything that runs in it.
            self._error = error
            self._has_ended = True
        finally:
            # The thread goes on now, and not only when the loop has looked at its sockets again.
            self._running.release()

    def cancel(self) -> None:
        """Give up, in the loop: nobody waits any more."""
        if self._task is not None:
            self._task.cancel()
        self._close_work()

    def abandon(self) -> None:
        """Let the waiting thread go: the loop has ended."""
        self._close_work()
        if self._running.locked():
            self._running.release()

    def _close_work(self) -> None:
        # A task that is cancelled before its first step does not await the work.
        if not self._has_begun:
            self._work.close()

    def wait(self) -> _T:
        """Wait in the calling thread and return the result."""
        self._running.acquire()
        if self._error is not None:
            raise self._error
        if not self._has_ended:
            raise UsageError("this client was closed meanwhile")
        return cast("_T", self._result)


class LoopThread:
    """An event loop in a thread of its own; calls may come from any other thread."""

    def __init__(self, name: str = "flintmq-client") -> None:
        self._loop = _new_loop()
        # One of our own can be left alone at the end if a function of the user does not return.
        self._executor = ThreadPoolExecutor(thread_name_prefix=f"{name}-executor")
        self._loop.set_default_executor(self._executor)
        self._calls: set[_Call[Any]] = set()
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_ending:
            try:
                self._loop.run_forever()
            except BaseException:
                # A task or callback has raised SystemExit or KeyboardInterrupt.  All who wait for
                # this loop, and those who want to close it, would wait for ever.
                logger.exception("the loop of a client goes on after an exception")

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread itself, which must not wait for its own loop."""
        return threading.get_ident() == self._thread.ident

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and return its result."""
        if self.is_current:
            work.close()
            raise UsageError(_WAITS_FOR_ITSELF)
        call = _Call(work)
        self._calls.add(call)
        try:
            self._begin(call)
            return call.wait()
        except BaseException:
            # An interrupted caller does not leave the work running behind its back.
            self._schedule(call.cancel)
            raise
        finally:
            self._calls.discard(call)

    def _begin(self, call: _Call[Any]) -> None:
        if not self._schedule(call.begin, self._loop):
            call.abandon()
            raise UsageError("this client is closed")

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop without waiting for it; nothing happens once it has ended."""
        self._schedule(function, *arguments)

    def _schedule(self, function: Callable[..., object], *arguments: object) -> bool:
        """Have a function called in the loop; return False if the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            # A signal handler of the user may have raised it as well.
            if not self._loop.is_closed():
                raise
            return False
        return True

    def close(self) -> None:
        """End the loop and its thread; a second call does nothing."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self.run(self._cancel_all())
        self._end_executor()
        self._is_ending = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        # Calls that came too late to be cancelled would wait for ever.
        for call in list(self._calls):
            call.abandon()

    def _end_executor(self) -> None:
        """Wait for the threads of the executor, but not for functions that do not return."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        waiting = threading.Thread(target=self._executor.shutdown, daemon=True)
        waiting.start()
        waiting.join(CANCEL_TIMEOUT_S)

    @staticmethod
    async def _cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CANCEL_TIMEOUT_S)


_WAITS_FOR_ITSELF: Final = (
    "a blocking call out of a hook, a coroutine handler or a coroutine listener would wait for "
    "itself: use a plain function as handler or listener, or the asynchronous client"
)


class InThread(Generic[_Member]):
    """A blocking face: it owns an asynchronous object and the thread in which that lives.

    A process that is forked has no threads but the one that forked.  In the child a face with
    ``_reopens_after_fork`` opens an object of its own at its next use; others say what to do.
    """

    _noun = "client"
    _reopens_after_fork: ClassVar[bool] = False

    def __init__(self, make: Callable[[], _Member]) -> None:
        self._make: Callable[[], _Member] = make
        self._thread: LoopThread | None = None
        self._member: _Member | None = None
        self._is_left_by_fork = False
        """Whether the thread and the object were open when this process was forked."""
        self._reopening = threading.Lock()
        leave_behind_in_forks(self)

    def start(self) -> Self:
        """Start the thread and open the object in it; `close` ends both."""
        if self._thread is not None:
            raise UsageError(f"this {self._noun} is open already")
        thread = LoopThread(f"flintmq-{self._noun}")
        try:
            self._member = thread.run(self._open())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        self._is_left_by_fork = False
        return self

    def forked(self) -> tuple[object, ...]:
        """Learn that this process is a fork; return what belongs to the parent and must stay."""
        left = (self._thread, self._member)
        self._is_left_by_fork = self._is_left_by_fork or self._thread is not None
        self._thread = self._member = None
        self._reopening = threading.Lock()
        return left

    async def _open(self) -> _Member:
        # The object makes its locks and events for the loop in which it is made.
        member = self._make()
        await member.__aenter__()
        return member

    def close(self) -> None:
        """Close the object and end its thread; a second call does nothing."""
        self.__exit__(None, None, None)

    def _opened(self) -> tuple[LoopThread, _Member]:
        if self._is_left_by_fork:
            self._open_in_fork()
        if self._thread is None or self._member is None:
            raise UsageError(f"the {self._noun} is not open: use it in a with statement")
        return self._thread, self._member

    def _open_in_fork(self) -> None:
        if not self._reopens_after_fork:
            raise UsageError(
                f"this {self._noun} was opened before the process was forked, and works in the "
                "parent only: open one in the child"
            )
        with self._reopening:
            if self._is_left_by_fork:
                self.start()

    def _await(
        self,
        method: Callable[Concatenate[_Member, _P], Coroutine[Any, Any, _T]],
        *arguments: _P.args,
        **keywords: _P.kwargs,
    ) -> _T:
        """Run a coroutine method of the member in its loop and return the result."""
        thread, member = self._opened()
        return thread.run(method(member, *arguments, **keywords))

    def _call(
        self,
        method: Callable[Concatenate[_Member, _P], _T],
        *arguments: _P.args,
        **keywords: _P.kwargs,
    ) -> _T:
        """Call a plain method of the member from within its loop and return the result."""
        thread, member = self._opened()

        async def call() -> _T:
            return method(member, *arguments, **keywords)

        return thread.run(call())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._finish(lambda member: member.__aexit__(kind, error, trace))

    def _finish(self, end: Callable[[_Member], Coroutine[Any, Any, object]]) -> None:
        """End the object in one of its ways, and then its thread."""
        thread, member = self._thread, self._member
        self._is_left_by_fork = False
        if thread is None or member is None:
            return
        if thread.is_current:
            raise UsageError(_WAITS_FOR_ITSELF)
        self._thread = self._member = None
        try:
            thread.run(end(member))
        finally:
            thread.close()
