"""The trace of a consumer: two lines for each message, before it is handed over and after."""

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
    code: int,
    *,
    group: str,
    request_id: str,
    cost_ms: int,
    ended_ms: int,
) -> TraceLine:
    """Return the line of a message that a handler has had; ``code`` says how that ended."""
    text = trace_text(
        "SubAfter",
        request_id,
        message.message_id,
        cost_ms,
        code == SUCCESS,
        " ".join(message.keys),
        code,
        ended_ms,
        group,
    )
    return TraceLine(text, (message.message_id, *message.keys))


class ConsumeTrace:
    """Writes trace lines for the messages of one group, with a producer of its own."""

    def __init__(self, client: ClientInstance, group: str, *, topic: str) -> None:
        self._client = client
        self.group = unwrap(client.options.namespace, group)
        self._topic = topic
        self._producer = AsyncProducer(
            group=f"_INNER_TRACE_PRODUCER-{self.group}-CONSUME-0", client=client
        )
        self.sender = TraceSender(self._producer.send, topic=topic)

    async def start(self) -> None:
        """Start to send lines."""
        await self._producer.start()
        self.sender.start()

    async def close(self, closing: ClosingTime) -> None:
        """Send the lines that are left, and close the producer."""
        await self.sender.close(closing)
        await close_within(self._producer, closing)

    def begin(self, messages: Sequence[ReceivedMessage]) -> TracedMessages:
        """Write the lines of messages that are about to be handed over together.

        Messages of the trace itself are left out, and those whose sender wants no trace.
        """
        told = [
            message
            for message in messages
            if message.topic != self._topic and message.properties.get(TRACE_ON) != "false"
        ]
        return TracedMessages(self, told, len(messages), self._client.unique_ids.next())


class TracedMessages:
    """Messages that were handed over together, from the first of their lines to the second."""

    def __init__(
        self,
        trace: ConsumeTrace,
        told: Sequence[ReceivedMessage],
        count: int,
        request_id: str,
    ) -> None:
        self._trace = trace
        self._told = told
        self._count = count
        self._request_id = request_id
        self._began = time.monotonic()
        started_ms = wall_ms()
        for message in told:
            trace.sender.add(
                before_line(
                    message, group=trace.group, request_id=request_id, started_ms=started_ms
                )
            )

    def ended(self, code: int) -> None:
        """Write the second lines; ``code`` is SUCCESS, EXCEPTION or FAILED."""
        cost_ms = round((time.monotonic() - self._began) * 1000 / self._count)
        ended_ms = wall_ms()
        for message in self._told:
            self._trace.sender.add(
                after_line(
                    message,
                    code,
                    group=self._trace.group,
                    request_id=self._request_id,
                    cost_ms=cost_ms,
                    ended_ms=ended_ms,
                )
            )
