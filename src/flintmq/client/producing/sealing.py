"""Sealing: messages and batches of one producer made ready to be sent.

Whatever is here may be used by several threads at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.client.messaging.envelope import make_batch_envelope, make_envelope
from flintmq.client.namespaces import wrap
from flintmq.model.property_names import INSTANCE_ID

if TYPE_CHECKING:
    from flintmq.client.messaging.envelope import Envelope
    from flintmq.client.messaging.messages import Message
    from flintmq.client.messaging.unique_ids import UniqueIds
    from flintmq.client.producing.producer_settings import ProducerSettings
    from flintmq.format.stored.batch import BatchColumns


class Sealing:
    """Gives messages their ids, the namespace of the producer, and compressed bodies."""

    def __init__(self, unique_ids: UniqueIds, namespace: str, settings: ProducerSettings) -> None:
        self._unique_ids = unique_ids
        self._namespace = namespace
        self._settings = settings
        self._extra = {INSTANCE_ID: namespace} if namespace else {}

    def seal(self, message: Message, extra: dict[str, str] | None = None) -> Envelope:
        """Return the envelope of a message; ``extra`` are properties that the client adds."""
        return make_envelope(
            message,
            self._unique_ids.next(),
            topic=wrap(self._namespace, message.topic),
            extra=self._extra | extra if extra else self._extra,
            compression=self._settings.compression,
            compress_from=self._settings.compress_from,
        )

    def seal_batch(self, first: Message, items: BatchColumns) -> Envelope:
        """Return the envelope of messages that are stored together; ``first`` is one of them."""
        return make_batch_envelope(
            items,
            self._unique_ids.next_ones(len(items.bodies)),
            topic=wrap(self._namespace, first.topic),
            wait=first.wait,
            extra=self._extra,
        )
