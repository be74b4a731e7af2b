"""The trace of a producer: a line for each message sent, and for each transaction ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.client.messaging.transaction_listener import TransactionState
from flintmq.client.tracing.trace import TraceLine, TraceSender, trace_text
from flintmq.format.sys_flag import TRANSACTION_PREPARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.closing_time import ClosingTime
    from flintmq.client.messaging.envelope import Envelope
    from flintmq.client.messaging.messages import Message, ReceivedMessage, SendResult
    from flintmq.client.routing.route_cache import RouteCache

PLAIN: Final = 0
HALF: Final = 1
COMMIT: Final = 2
DELAYED: Final = 3

_STATES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
"""The states by the names that Java gives them, misspelt as there."""

_REGION: Final = "DefaultRegion"


class SendTrace:
    """Writes the trace lines of one producer group."""

    def __init__(self, sender: TraceSender, routes: RouteCache, group: str) -> None:
        self._sender = sender
        self._routes = routes
        self._group = group

    def sent(
        self,
        messages: Sequence[Message],
        envelope: Envelope,
        result: SendResult | None,
        *,
        started_ms: int,
        cost_ms: int,
    ) -> None:
        """Write a line for each message of one send; without a result the send has failed."""
        if result is not None and not result.trace_on:
            return
        ids = envelope.message_id.split(",")
        offset_ids: Sequence[str | None] = [None] * len(ids)
        if result is not None and result.offset_message_id.count(",") == len(ids) - 1:
            offset_ids = result.offset_message_id.split(",")
        for message, message_id, offset_id in zip(messages, ids, offset_ids, strict=True):
            text = trace_text(
                "Pub",
                started_ms,
                _REGION if result is None else result.region,
                self._group,
                message.topic,
                message_id,
                message.tag or "",
                " ".join(message.keys),
                "" if result is None else self._address(result.queue.broker_name),
                len(message.body),
                cost_ms,
                _kind(message, envelope),
                offset_id,
                result is not None and result.ok,
            )
            self._sender.add(TraceLine(text, (message_id, *message.keys)))

    def ended(
        self,
        message: Message | ReceivedMessage,
        state: TransactionState,
        *,
        message_id: str,
        transaction_id: str | None,
        address: str,
        ended_ms: int,
        from_check: bool,
    ) -> None:
        """Write a line for a transaction that has ended."""
        text = trace_text(
            "EndTransaction",
            ended_ms,
            _REGION,
            self._group,
            message.topic,
            message_id,
            message.tag or "",
            " ".join(message.keys),
            address,
            COMMIT,
            transaction_id,
            _STATES[state],
            from_check,
        )
        self._sender.add(TraceLine(text, (message_id, *message.keys)))

    def _address(self, broker_name: str) -> str:
        return self._routes.master(broker_name) or ""

    async def close(self, closing: ClosingTime) -> None:
        """Send the lines that are left and stop."""
        await self._sender.close(closing)


def _kind(message: Message, envelope: Envelope) -> int:
    if envelope.sys_flag & TRANSACTION_PREPARED:
        return HALF
    return DELAYED if message.is_held_back else PLAIN
