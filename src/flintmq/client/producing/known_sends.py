"""Headers of sends: what repeats from one send to the next is checked and encoded once.

Of the sends of one kind only the opaque number, the time and the properties differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from flintmq.client.request_forms import RequestForm
from flintmq.format.wire.headers.send import SendMessageRequestV2

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.client.messaging.envelope import Envelope
    from flintmq.format.wire.command import Command
    from flintmq.model.message_queue import MessageQueue
    from flintmq.remoting import EncodedRequest

KNOWN_COUNT_MAX: Final = 4096
"""Kinds of sends that are remembered; one more, and the table begins anew."""

_BORN_TIMESTAMP: Final = SendMessageRequestV2.wire_name("born_timestamp")
_PROPERTIES: Final = SendMessageRequestV2.wire_name("properties")


class EncodedFields(NamedTuple):
    """Ext fields that are encoded already."""

    fields: dict[str, str]

    def encode(self) -> dict[str, str]:
        """Return the ext fields."""
        return self.fields


class _Known(NamedTuple):
    """What repeats in the sends of one kind."""

    fields: dict[str, str]
    form: RequestForm
    """The request, with gaps for the time and the properties."""


class KnownSends:
    """The encoded headers of one producer group, by everything in them that repeats.

    ``prepare`` finishes requests, as it does for others of the client.
    """

    def __init__(self, group: str, prepare: Callable[[Command], None] | None = None) -> None:
        self._group = group
        self._prepare = prepare
        self._kinds: dict[tuple[object, ...], _Known] = {}

    def header(self, envelope: Envelope, queue: MessageQueue) -> EncodedFields:
        """Return the header of a send to a queue."""
        # Replaced values stay in their places, so the order is that of any other send.
        return EncodedFields(
            self._known(envelope, queue).fields
            | {_BORN_TIMESTAMP: str(envelope.born_timestamp), _PROPERTIES: envelope.properties}
        )

    def request(self, envelope: Envelope, queue: MessageQueue, opaque: int) -> EncodedRequest:
        """Return a send to a queue as a request with a JSON header and no signature."""
        properties = orjson.dumps(envelope.properties)
        form = self._known(envelope, queue).form
        return form.fill(opaque, envelope.born_timestamp, properties, body=envelope.body)

    def _known(self, envelope: Envelope, queue: MessageQueue) -> _Known:
        kind = (
            queue,
            envelope.topic,
            envelope.code,
            envelope.sys_flag,
            envelope.flag,
            envelope.is_batch,
            envelope.reconsume_times,
            envelope.max_reconsume_times,
        )
        known = self._kinds.get(kind)
        if known is None:
            fields = envelope.header(self._group, queue).encode()
            if len(self._kinds) >= KNOWN_COUNT_MAX:
                self._kinds.clear()
            form = RequestForm.of(
                envelope.code,
                fields,
                self._prepare,
                numbers=[_BORN_TIMESTAMP],
                texts=[_PROPERTIES],
            )
            known = self._kinds[kind] = _Known(fields, form)
        return known
