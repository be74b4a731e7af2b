"""The trace of a consumer: two lines for each message, before its handler is called and after."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from flintmq.client.client_user import close_within
from flintmq.client.namespaces import unwrap
from flintmq.client.producing.producer import AsyncProducer
from flintmq.client.tracing.trace import TraceLine, TraceSender, trace_text
from flintmq.client.wall_clock import wall_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.closing_time import ClosingTime
    from flintmq.client.consuming.handlers import HandlerRunner, Outcome
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage

REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"

SUCCESS: Final = 0
EXCEPTION: Final = 2
FAILED: Final = 4


def before_line(
    message: ReceivedMessage, *, group: str, request_id: str, started_ms: int
) -> TraceLine:
    """Return the line of a message that a handler is about to get."""
    text = trace_text(
        "SubBefore",
        started_ms,
        message.properties.get(REGION),
        group,
        request_id,
        message.message_id,
        message.reconsume_times,
        " ".join(message.keys),
    )
    return TraceLine(text, (message.message_id, *message.keys))


def after_line(
    message: ReceivedMessage,
    outcome: Outcome,
    *,
    group: str,
    request_id: str,
    cost_ms: int,
    ended_ms: int,
) -> TraceLine:
    """Return the line of a message that a handler has had."""
    code = EXCEPTION if outcome.error is not None else FAILED
    text = trace_text(
        "SubAfter",
        request_id,
        message.message_id,
        cost_ms,
        outcome.is_success,
        " ".join(message.keys),
        SUCCESS if outcome.is_success else code,
        ended_ms,
        group,
    )
    return TraceLine(text, (message.message_id, *message.keys))


class ConsumeTrace:
    """Writes trace lines for the messages of one group, with a producer of its own.

    It wraps a handler runner and has the same `run`.  Messages of the trace itself are left out.
    """

    def __init__(
        self, runner: HandlerRunner, client: ClientInstance, group: str, *, topic: str
    ) -> None:
        self._runner = runner
        self._client = client
        self._group = unwrap(client.options.namespace, group)
        self._topic = topic
        self._producer = AsyncProducer(
            group=f"_INNER_TRACE_PRODUCER-{self._group}-CONSUME-0", client=client
        )
        self._sender = TraceSender(self._producer.send, topic=topic)

    async def start(self) -> None:
        """Start to send lines."""
        await self._producer.start()
        self._sender.start()

    async def close(self, closing: ClosingTime) -> None:
        """Send the lines that are left, and close the producer."""
        await self._sender.close(closing)
        await close_within(self._producer, closing)

    async def run(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Call the handler; write a line for each message before and after."""
        told = [
            message
            for message in messages
            if message.topic != self._topic and message.properties.get(TRACE_ON) != "false"
        ]
        request_id, began = self._client.unique_ids.next(), time.monotonic()
        started_ms = wall_ms()
        for message in told:
            self._sender.add(
                before_line(
                    message, group=self._group, request_id=request_id, started_ms=started_ms
                )
            )
        outcome = await self._runner.run(messages)
        cost_ms = round((time.monotonic() - began) * 1000 / len(messages))
        for message in told:
            self._sender.add(
                after_line(
                    message,
                    outcome,
                    group=self._group,
                    request_id=request_id,
                    cost_ms=cost_ms,
                    ended_ms=wall_ms(),
                )
            )
        return outcome
