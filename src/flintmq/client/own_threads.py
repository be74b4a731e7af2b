"""Threads for plain functions of users, apart from the executor that everybody shares.

The default executor of a loop has few threads, which programs fill with work of their own.  What
the client must not wait for longer than it takes has a thread for each call instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_T = TypeVar("_T")


def is_own_end(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether an exception ends the task that it came through: nobody else may catch it.

    Such a task is cancelled, or Python throws its coroutine away.  Anything else that a function
    of the user raises is the failure of that function.
    """
    if isinstance(error, GeneratorExit):
        return not is_running(task)
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def is_running(task: asyncio.Task[Any] | None) -> bool:
    """Return whether a task runs now; otherwise Python throws its coroutine away."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False


class ThreadCallError(Exception):
    """A function has raised what no event loop may see, such as SystemExit."""


async def call_in_thread(
    name: str, function: Callable[_P, _T], *arguments: _P.args, **keywords: _P.kwargs
) -> _T:
    """Call a function in a thread of its own and return the result.

    The thread does not keep the process from ending.  If the caller is cancelled, the function
    goes on without it.
    """
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    work = functools.partial(function, *arguments, **keywords)
    threading.Thread(target=_work, args=(work, future), name=name, daemon=True).start()
    return await future


def _work(function: Callable[[], _T], future: asyncio.Future[_T]) -> None:
    tell: Callable[[], None]
    try:
        tell = functools.partial(_set_result, future, function())
    except Exception as error:
        tell = functools.partial(_set_error, future, error)
    except BaseException as error:
        tell = functools.partial(_set_error, future, ThreadCallError(f"it has raised {error!r}"))
    # A loop that has ended waits for nothing.
    with contextlib.suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(tell)
    # An error leads to this frame; what it led to from here would be kept alive.
    del future, tell, function


def _set_result(future: asyncio.Future[_T], result: _T) -> None:
    if not future.done():
        future.set_result(result)


def _set_error(future: asyncio.Future[_T], error: Exception) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):
        # No future takes this one.
        error = ThreadCallError(f"it has raised {error!r}")
    future.set_exception(error)
