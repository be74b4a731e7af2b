"""Headers of sends: what repeats from one send to the next is checked and encoded once.

Of the sends of one kind only the opaque number, the time and the properties differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from flintmq.client.request_forms import RequestForm, remember
from flintmq.format.wire.headers.send import SendMessageRequestV2

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.client.messaging.envelope import Envelope
    from flintmq.format.wire.command import Command
    from flintmq.model.message_queue import MessageQueue
    from flintmq.remoting import EncodedRequest


_BORN_TIMESTAMP: Final = SendMessageRequestV2.wire_name("born_timestamp")
_PROPERTIES: Final = SendMessageRequestV2.wire_name("properties")


class EncodedFields(NamedTuple):
    """Ext fields that are encoded already."""

    fields: dict[str, str]

    def encode(self) -> dict[str, str]:
        """Return the ext fields."""
        return self.fields


class KnownSends:
    """The encoded headers of one producer group, by everything in them that repeats.

    ``prepare`` finishes requests, as it does for others of the client.
    """

    def __init__(self, group: str, prepare: Callable[[Command], None] | None = None) -> None:
        self._group = group
        self._prepare = prepare
        self._fields: dict[tuple[object, ...], dict[str, str]] = {}
        self._forms: dict[tuple[object, ...], RequestForm] = {}

    def header(self, envelope: Envelope, queue: MessageQueue) -> EncodedFields:
        """Return the header of a send to a queue."""
        kind = _kind(envelope, queue)
        known = self._fields.get(kind)
        if known is None:
            header = envelope.header(self._group, queue)
            known = remember(self._fields, kind, header.encode())
        # Replaced values stay in their places, so the order is that of any other send.
        return EncodedFields(
            known
            | {_BORN_TIMESTAMP: str(envelope.born_timestamp), _PROPERTIES: envelope.properties}
        )

    def request(self, envelope: Envelope, queue: MessageQueue, opaque: int) -> EncodedRequest:
        """Return a send to a queue as a request with a JSON header and no signature."""
        kind = _kind(envelope, queue)
        form = self._forms.get(kind)
        if form is None:
            form = RequestForm.of(
                envelope.code,
                envelope.header(self._group, queue).encode(),
                self._prepare,
                numbers=[_BORN_TIMESTAMP],
                texts=[_PROPERTIES],
            )
            remember(self._forms, kind, form)
        properties = orjson.dumps(envelope.properties)
        return form.fill(opaque, envelope.born_timestamp, properties, body=envelope.body)


def _kind(envelope: Envelope, queue: MessageQueue) -> tuple[object, ...]:
    """Return all that decides what a header holds, but for what varies from send to send."""
    return (
        queue,
        envelope.topic,
        envelope.code,
        envelope.sys_flag,
        envelope.flag,
        envelope.is_batch,
        envelope.reconsume_times,
        envelope.max_reconsume_times,
    )
