"""Calls of a user's handler: a coroutine function in the loop, a plain one in a thread.

Whatever a handler raises is a failure of its messages, and none of it ends a thread or the loop.
`STOPPING` exceptions stop the consumer as well.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from types import CoroutineType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from flintmq.client.consuming.begun_calls import begin_call, rest_of
from flintmq.client.consuming.handler_threads import HandlerThreads
from flintmq.client.errors import UsageError
from flintmq.client.field_types import check_field_types
from flintmq.client.messaging.messages import ReceivedMessage
from flintmq.client.own_threads import is_own_end

logger = logging.getLogger(__name__)


class ConsumeResult(Enum):
    """What became of messages: handled, or to be delivered again later."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeLater:
    """What a handler returns to say which messages come again, and when.

    The first ``handled`` messages of its list are handled, the others come again.  In a group
    without order they come after ``delay_level``: 0 leaves it to the broker, which waits longer
    with each failure, and a negative one makes them dead letters at once.  With order their queue
    waits for ``suspend_ms``, by default as long as the settings say.
    """

    handled: int = 0
    delay_level: int = 0
    suspend_ms: int | None = None

    def __post_init__(self) -> None:
        check_field_types(self)
        if self.handled < 0:
            raise UsageError(f"handled is a number of messages, not {self.handled}")
        if self.suspend_ms is not None and self.suspend_ms < 0:
            raise UsageError(f"suspend_ms must not be negative, but is {self.suspend_ms}")


class Outcome(NamedTuple):
    """How a call of a handler ended."""

    result: ConsumeResult
    error: BaseException | None = None
    later: ConsumeLater | None = None
    """What the handler has said of messages that come again."""

    @property
    def is_success(self) -> bool:
        """Whether the messages are handled."""
        return self.result is ConsumeResult.SUCCESS

    def split(
        self, messages: Sequence[ReceivedMessage]
    ) -> tuple[Sequence[ReceivedMessage], Sequence[ReceivedMessage]]:
        """Return which of the messages of the call are handled, and which come again."""
        if self.is_success:
            return messages, ()
        handled_count = 0 if self.later is None else self.later.handled
        return messages[:handled_count], messages[handled_count:]


STOPPING: Final = (SystemExit, KeyboardInterrupt)
"""What a handler raises to stop its consumer."""

SUCCESS: Final = Outcome(ConsumeResult.SUCCESS)
"""The outcome of nearly all calls."""

Handler: TypeAlias = Callable[[ReceivedMessage], object] | Callable[[list[ReceivedMessage]], object]
"""Takes a message, or a list of them; None, True and SUCCESS mean handled, see `ConsumeLater`.

A coroutine function is awaited, and its result counts in the same way.
"""


class HandlerCaller(Protocol):
    """Calls a handler for messages: the handler runner, or the trace that wraps it."""

    async def run(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Call the handler and return how the call ended."""
        ...


class StoppableConsumer(Protocol):
    """A consumer whose handlers may stop it."""

    def stop_soon(self, error: BaseException | None) -> None:
        """Start to stop, because a handler has raised ``error`` or has closed the consumer."""
        ...


_handling: ContextVar[StoppableConsumer | None] = ContextVar("_handling", default=None)


def is_in_handler_of(consumer: StoppableConsumer) -> bool:
    """Return whether a handler of a consumer, or a task that one has started, is the caller."""
    return _handling.get() is consumer


class HandlerRunner:
    """Runs a handler of a consumer; plain functions run in at most ``thread_count`` threads."""

    def __init__(
        self,
        handler: Handler,
        *,
        thread_count: int,
        takes_list: bool,
        consumer: StoppableConsumer | None = None,
    ) -> None:
        self._handler: Callable[[Any], Any] = handler
        self._takes_list = takes_list
        self._consumer = consumer
        is_coroutine = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._threads = None if is_coroutine else HandlerThreads(self.call, count=thread_count)

    async def run(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Call the handler; an exception means that the messages are delivered again."""
        begun = self.begin(messages)
        return begun if isinstance(begun, Outcome) else await begun

    def begin(self, messages: Sequence[ReceivedMessage]) -> Outcome | Awaitable[Outcome]:
        """Call the handler, a coroutine function up to where it first waits.

        If this is no outcome, it has to be awaited at once, and by the same task.
        """
        if self._threads is not None:
            return begin_call(self._ended(self._threads.call(messages), messages))
        # It is never reset: the tasks that call this do nothing else for a user.
        if _handling.get() is not self._consumer:
            _handling.set(self._consumer)
        try:
            work = self._handler(list(messages) if self._takes_list else messages[0])
            if work.__class__ is not CoroutineType:
                return begin_call(self._awaited(work, messages))
            try:
                waits_for = work.send(None)
            except StopIteration as ended:
                return SUCCESS if ended.value is None else _outcome(ended.value)
        except BaseException as error:
            return self._failure(error, messages)
        return self._awaited(rest_of(work, waits_for), messages)

    async def _awaited(self, work: Awaitable[Any], messages: Sequence[ReceivedMessage]) -> Outcome:
        """Return the outcome of a coroutine of the handler."""
        try:
            return _outcome(await work)
        except BaseException as error:
            return self._failure(error, messages)

    def _failure(self, error: BaseException, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Return the outcome of a coroutine that has raised ``error``; raise what ends our task."""
        # SystemExit and KeyboardInterrupt of a task would end the loop.  A cancellation that is
        # not our own is that of something that the handler waited for.
        if is_own_end(error, asyncio.current_task()):
            raise error
        self.report(messages, error)
        return Outcome(ConsumeResult.LATER, error)

    async def _ended(
        self, call: Awaitable[Outcome], messages: Sequence[ReceivedMessage]
    ) -> Outcome:
        """Return the outcome of a call in a thread."""
        outcome = await call
        if outcome.error is not None:
            self.report(messages, outcome.error)
        return outcome

    def report(self, messages: Sequence[ReceivedMessage], error: BaseException) -> None:
        """Log what a handler has raised, and stop the consumer if that is what it wants."""
        first = messages[0]
        logger.error(
            "handler failed: topic=%s id=%s", first.topic, first.message_id, exc_info=error
        )
        if isinstance(error, STOPPING) and self._consumer is not None:
            self._consumer.stop_soon(error)

    @property
    def is_in_threads(self) -> bool:
        """Whether the handler is a plain function, which runs in threads."""
        return self._threads is not None

    def call(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Call a plain function in the thread of the caller; `report` what it has raised."""
        # An exception must not leave the thread as such: it would end the thread, and a
        # StopIteration could not be told to the loop, which would then wait for ever.
        _handling.set(self._consumer)
        try:
            return _outcome(self._handler(list(messages) if self._takes_list else messages[0]))
        except BaseException as error:
            return Outcome(ConsumeResult.LATER, error)

    def close(self, *, wait: bool) -> None:
        """Let the threads end; with ``wait``, return when running handlers have finished."""
        if self._threads is not None:
            self._threads.close(wait=wait)


def _outcome(value: object) -> Outcome:
    if value is None or value is True:
        return SUCCESS
    if isinstance(value, ConsumeResult):
        return Outcome(value)
    if isinstance(value, ConsumeLater):
        return Outcome(ConsumeResult.LATER, later=value)
    if value is not False:
        logger.warning("a handler returned a %s; None, True or SUCCESS mean handled", type(value))
    return Outcome(ConsumeResult.LATER)
