"""Hooks of a consumer see what handlers get and how that ended; filters keep messages back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from flintmq.client.consuming.handlers import HandlerCaller, Outcome
    from flintmq.client.messaging.messages import ReceivedMessage

logger = logging.getLogger(__name__)

MessageFilter: TypeAlias = "Callable[[ReceivedMessage], bool]"
"""Says whether a message is for the handler; one that is not counts as handled."""


class ConsumeHook(Protocol):
    """Sees messages before and after their handler is called.

    What it raises is logged, and changes nothing.  It is called in the event loop and must not
    block.
    """

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        """See messages that the handler is about to get."""
        ...

    def after_consume(self, messages: Sequence[ReceivedMessage], outcome: Outcome) -> None:
        """See how the call ended."""
        ...


class HookedRunner:
    """Calls hooks around a handler; it wraps whoever calls the handler, and has the same `run`."""

    def __init__(self, runner: HandlerCaller, hooks: Sequence[ConsumeHook]) -> None:
        self._runner = runner
        self._hooks = tuple(hooks)

    async def run(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Call the handler and return how the call ended."""
        for hook in self._hooks:
            try:
                hook.before_consume(messages)
            except BaseException:
                # As that of a handler it has an outcome: none of it may end the loop.
                logger.exception("a hook has failed before a handler: %r", hook)
        outcome = await self._runner.run(messages)
        for hook in self._hooks:
            try:
                hook.after_consume(messages, outcome)
            except BaseException:
                # What became of the messages is for the handler to say.
                logger.exception("a hook has failed after a handler: %r", hook)
        return outcome


def is_wanted(message: ReceivedMessage, filters: Sequence[MessageFilter]) -> bool:
    """Return whether all filters let a message pass; one that raises lets it pass."""
    for keeps in filters:
        try:
            if not keeps(message):
                return False
        except BaseException:
            # A message must not be lost because a filter is broken.
            logger.exception("a filter has failed: %r", keeps)
    return True
