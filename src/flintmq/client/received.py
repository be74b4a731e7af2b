"""From the records of a pull to the messages that a user sees."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING, Final

from flintmq.client.messages import ReceivedMessage
from flintmq.client.namespaces import unwrap
from flintmq.format.compression import decompress
from flintmq.format.errors import CorruptRecordError
from flintmq.format.host import host_text
from flintmq.format.record import decode_record
from flintmq.format.sys_flag import COMPRESSED, compression_type
from flintmq.model.message_queue import MessageQueue
from flintmq.model.property_names import MAX_OFFSET, MIN_OFFSET, RETRY_TOPIC, TAGS
from flintmq.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.format.record import Record
    from flintmq.model.subscription import Subscription

BODY_SIZE_MAX: Final = 64 << 20
"""A compressed body may not unfold to more."""

_SIZE: Final = struct.Struct(">i")


def received(record: Record, broker_name: str) -> ReceivedMessage:
    """Return a record as a message; its body is decompressed if its flag says so."""
    body = bytes(record.body)
    if record.sys_flag & COMPRESSED:
        body = decompress(body, compression_type(record.sys_flag), limit=BODY_SIZE_MAX)
    return ReceivedMessage(
        topic=record.topic,
        body=body,
        queue=MessageQueue(record.topic, broker_name, record.queue_id),
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        properties=record.properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=host_text(record.born_host),
        store_timestamp=record.store_timestamp,
        store_host=host_text(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        offset_message_id=record.message_id,
        store_size=record.size,
    )


def decode_messages(body: bytes, broker_name: str) -> Iterator[ReceivedMessage]:
    """Yield the messages of a pull, one record behind the other."""
    at = 0
    while at < len(body):
        if len(body) - at < _SIZE.size:
            raise CorruptRecordError("the answer ends within a record", at)
        (size,) = _SIZE.unpack_from(body, at)
        if not 0 < size <= len(body) - at:
            raise CorruptRecordError(f"a record of {size} bytes, {len(body) - at} are left", at)
        yield received(decode_record(body[at : at + size]), broker_name)
        at += size


def is_wanted(message: ReceivedMessage, subscription: Subscription) -> bool:
    """Whether a message has one of the tags asked for; brokers compare only their hashes."""
    if not subscription.is_tag or not subscription.tags:
        return True
    return message.properties.get(TAGS) in subscription.tags


def opened(
    message: ReceivedMessage,
    group: str,
    namespace: str | None,
    *,
    bounds: tuple[int, int] | None = None,
) -> ReceivedMessage:
    """Return a message as its user sees it: with its own topic, without a namespace.

    With ``bounds``, its properties tell the lowest offset of its queue and the next one.
    """
    topic, properties = message.topic, message.properties
    if topic == RETRY_PREFIX + group:
        topic = properties.get(RETRY_TOPIC, topic)
    if bounds is not None:
        low, high = bounds
        properties = {**properties, MIN_OFFSET: str(low), MAX_OFFSET: str(high)}
    return dataclasses.replace(message, topic=unwrap(namespace, topic), properties=properties)
