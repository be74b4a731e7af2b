"""Headers of sends: what repeats from one send to the next is checked and encoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.wire.headers.send import SendMessageRequestV2

if TYPE_CHECKING:
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


class KnownSends:
    """The encoded headers of one producer group, by everything in them that repeats."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._known: dict[tuple[object, ...], dict[str, str]] = {}

    def header(self, envelope: Envelope, queue: MessageQueue) -> EncodedFields:
        """Return the header of a send to a queue."""
        kind = (
            queue,
            envelope.topic,
            envelope.sys_flag,
            envelope.flag,
            envelope.is_batch,
            envelope.reconsume_times,
            envelope.max_reconsume_times,
        )
        known = self._known.get(kind)
        if known is None:
            known = envelope.header(self._group, queue).encode()
            if len(self._known) >= KNOWN_COUNT_MAX:
                self._known.clear()
            self._known[kind] = known
        # Replaced values stay in their places, so the order is that of any other send.
        return EncodedFields(
            known
            | {_BORN_TIMESTAMP: str(envelope.born_timestamp), _PROPERTIES: envelope.properties}
        )
