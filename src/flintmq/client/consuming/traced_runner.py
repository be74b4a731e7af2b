"""Calls a handler and writes the trace of what it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.client.pulling.consume_trace import EXCEPTION, FAILED, SUCCESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.consuming.handlers import HandlerRunner, Outcome
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.client.pulling.consume_trace import ConsumeTrace


class TracedRunner:
    """Wraps a handler runner and has the same `run`."""

    def __init__(self, runner: HandlerRunner, trace: ConsumeTrace) -> None:
        self._runner = runner
        self._trace = trace

    async def run(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Call the handler; write a line for each message before and after."""
        traced = self._trace.begin(messages)
        outcome = await self._runner.run(messages)
        failure = EXCEPTION if outcome.error is not None else FAILED
        traced.ended(SUCCESS if outcome.is_success else failure)
        return outcome
