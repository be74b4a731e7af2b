"""Calling what a user wrote: a coroutine function on the loop, a plain one in a thread."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from flintmq.client.handler_threads import HandlerThreads

if TYPE_CHECKING:
    from flintmq.client.messages import ReceivedMessage

logger = logging.getLogger(__name__)


class ConsumeResult(Enum):
    """What became of messages: handled, or to be delivered again later."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"


class Outcome(NamedTuple):
    """How a call of a handler ended."""

    result: ConsumeResult
    error: BaseException | None = None

    @property
    def is_success(self) -> bool:
        """Whether the messages are handled."""
        return self.result is ConsumeResult.SUCCESS


_SUCCESS: Final = Outcome(ConsumeResult.SUCCESS)

Handler: TypeAlias = Callable[[Any], Any] | Callable[[Any], Awaitable[Any]]
"""Takes a message, or a list of them; None, True and SUCCESS mean handled."""


class Runner(Protocol):
    """Whoever hands messages to a handler."""

    async def run(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Hand messages over."""
        ...


class HandlerRunner:
    """Runs a handler; plain functions run in at most ``thread_count`` threads."""

    def __init__(self, handler: Handler, *, thread_count: int, takes_list: bool) -> None:
        self._handler = handler
        self._takes_list = takes_list
        is_coroutine = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._threads = None if is_coroutine else HandlerThreads(self._call, count=thread_count)

    async def run(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Hand messages over; an exception means that they are to come again."""
        given: Any = list(messages) if self._takes_list else messages[0]
        if self._threads is None:
            outcome = await self._await(given)
        else:
            outcome = await self._threads.call(given)
        if outcome.error is not None:
            first = messages[0]
            logger.error(
                "handler failed: topic=%s id=%s",
                first.topic,
                first.message_id,
                exc_info=outcome.error,
            )
        return outcome

    def _call(self, given: Any) -> Outcome:
        # An exception must not leave the thread as such: a StopIteration could not be told to the
        # loop, which would then wait for ever.
        try:
            return _outcome(self._handler(given))
        except Exception as error:
            return Outcome(ConsumeResult.LATER, error)

    async def _await(self, given: Any) -> Outcome:
        try:
            return _outcome(await self._handler(given))
        except Exception as error:
            return Outcome(ConsumeResult.LATER, error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something that the handler waited for was cancelled, not the consumer.
            return Outcome(ConsumeResult.LATER, error)

    def close(self, *, wait: bool) -> None:
        """Let the threads end; with ``wait`` those at work finish first."""
        if self._threads is not None:
            self._threads.close(wait=wait)


def _outcome(value: object) -> Outcome:
    if value is None or value is True:
        return _SUCCESS
    if isinstance(value, ConsumeResult):
        return Outcome(value)
    if value is not False:
        logger.warning("a handler returned a %s; None, True or SUCCESS mean handled", type(value))
    return Outcome(ConsumeResult.LATER)
