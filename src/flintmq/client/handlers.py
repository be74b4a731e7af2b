"""Calling what a user wrote: a coroutine function on the loop, a plain one in a thread."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from flintmq.client.messages import ReceivedMessage

logger = logging.getLogger(__name__)


class ConsumeResult(Enum):
    """What became of messages: handled, or to be delivered again later."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"


Handler: TypeAlias = Callable[[Any], Any] | Callable[[Any], Awaitable[Any]]
"""Takes a message, or a list of them; None, True and SUCCESS mean handled."""


class HandlerRunner:
    """Runs a handler, at most ``concurrency`` times at once."""

    def __init__(self, handler: Handler, *, concurrency: int, takes_list: bool) -> None:
        self._handler = handler
        self._takes_list = takes_list
        self._slots = asyncio.Semaphore(concurrency)
        self._is_coroutine = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._pool = (
            None
            if self._is_coroutine
            else ThreadPoolExecutor(concurrency, thread_name_prefix="flintmq-handler")
        )

    async def run(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        """Hand messages over; an exception means that they are to come again."""
        given: Any = list(messages) if self._takes_list else messages[0]
        async with self._slots:
            try:
                if self._pool is None:
                    result = await self._handler(given)
                else:
                    loop = asyncio.get_running_loop()
                    result = await loop.run_in_executor(self._pool, self._handler, given)
            except Exception:
                logger.exception(
                    "handler failed: topic=%s id=%s", messages[0].topic, messages[0].message_id
                )
                return ConsumeResult.LATER
        return _result(result)

    def close(self) -> None:
        """Let the threads end; those at work finish first."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)


def _result(value: object) -> ConsumeResult:
    if isinstance(value, ConsumeResult):
        return value
    if value is None or value is True:
        return ConsumeResult.SUCCESS
    if value is not False:
        logger.warning("a handler returned %r; None, True or SUCCESS mean handled", type(value))
    return ConsumeResult.LATER
