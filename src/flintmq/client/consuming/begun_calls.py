"""Coroutines that are begun without a task: many end before they wait for anything."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator

_T = TypeVar("_T")


def begin_call(work: Coroutine[Any, Any, _T]) -> _T | Awaitable[_T]:
    """Run a coroutine up to where it first waits.

    Return its result if it does not wait at all, else what has to be awaited for the result: at
    once, and by the same task.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as ended:
        result: _T = ended.value
        return result
    return rest_of(work, waits_for)


@types.coroutine
def rest_of(work: Coroutine[Any, Any, _T], waits_for: Any) -> Generator[Any, Any, _T]:
    """Do what awaiting ``work`` does, from its first wait on, which is for ``waits_for``."""
    thrown: BaseException | None
    while True:
        try:
            sent = yield waits_for
            thrown = None
        except BaseException as error:
            thrown = error
        try:
            waits_for = work.send(sent) if thrown is None else work.throw(thrown)
        except StopIteration as ended:
            result: _T = ended.value
            return result
