"""Headers of sends: what repeats from one send to the next is checked and encoded once.

Of the sends of one kind only the opaque number, the time and the properties differ.  Where a client
writes JSON and signs nothing, their frames are made from one text with three gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from flintmq.format.wire.command import Command, encode_header
from flintmq.format.wire.frame import FRAME_SIZE_MAX, encode_json_prefix
from flintmq.format.wire.headers.send import SendMessageRequestV2
from flintmq.remoting import EncodedRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.client.messaging.envelope import Envelope
    from flintmq.model.message_queue import MessageQueue

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
    form: bytes
    """The JSON header, with gaps for the time, the properties and the opaque number."""


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
        body = envelope.body
        header = self._known(envelope, queue).form % (
            envelope.born_timestamp,
            orjson.dumps(envelope.properties),
            opaque,
        )
        prefix = encode_json_prefix(len(header), len(body), FRAME_SIZE_MAX)
        return EncodedRequest(envelope.code, opaque, b"".join((prefix, header, body)))

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
            known = self._kinds[kind] = _Known(fields, self._form(envelope.code, fields))
        return known

    def _form(self, code: int, fields: dict[str, str]) -> bytes:
        # A text cannot hold what looks like one of these members: its quotes are escaped.
        fields = fields | {_BORN_TIMESTAMP: "", _PROPERTIES: ""}
        command = Command(code=code, opaque=0, ext_fields=fields)
        if self._prepare is not None:
            self._prepare(command)
        form = encode_header(command).replace(b"%", b"%%")
        for member, gap in _GAPS:
            assert form.count(member) == 1
            form = form.replace(member, gap)
        return form


_GAPS: Final = (
    (b'"%b":""' % _BORN_TIMESTAMP.encode(), b'"%b":"%%d"' % _BORN_TIMESTAMP.encode()),
    (b'"%b":""' % _PROPERTIES.encode(), b'"%b":%%b' % _PROPERTIES.encode()),
    (b'"opaque":0,', b'"opaque":%d,'),
)
"""What the header of a send without time, properties and number holds, and what gaps are there."""
