"""From the records of a pull to the messages that a user sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.client.messages import ReceivedMessage
from flintmq.client.namespaces import unwrap
from flintmq.format.compression import decompress
from flintmq.format.properties import find_property
from flintmq.format.record_run import decode_records
from flintmq.format.sys_flag import COMPRESSED, compression_type
from flintmq.model.message_queue import MessageQueue
from flintmq.model.property_names import RETRY_TOPIC, TAGS
from flintmq.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from flintmq.format.record import Record
    from flintmq.model.subscription import Subscription

BODY_SIZE_MAX: Final = 64 << 20
"""A compressed body may not unfold to more."""

_TAGS: Final = TAGS.encode()


def received(record: Record, broker_name: str) -> ReceivedMessage:
    """Return a record as a message, with the topic it is stored under."""
    queue = MessageQueue(record.topic, broker_name, record.queue_id)
    return ReceivedMessage(record, queue, body=_body(record))


def _body(record: Record) -> bytes | None:
    """Return the body of a record that is compressed; None stands for the stored one."""
    if not record.sys_flag & COMPRESSED:
        return None
    stored = bytes(record.body)
    return decompress(stored, compression_type(record.sys_flag), limit=BODY_SIZE_MAX)


def opened(message: ReceivedMessage, group: str, namespace: str | None) -> ReceivedMessage:
    """Return a message as its user sees it: with its own topic, without a namespace."""
    topic = message.topic
    if topic == RETRY_PREFIX + group:
        topic = message.properties.get(RETRY_TOPIC, topic)
    return message.with_topic(unwrap(namespace, topic))


def pulled_messages(
    body: bytes,
    queue: MessageQueue,
    subscription: Subscription,
    *,
    group: str,
    namespace: str | None,
    bounds: tuple[int, int],
) -> list[ReceivedMessage]:
    """Return the messages of a pull that are wanted, as the users of a group see them."""
    is_retry = queue.topic == RETRY_PREFIX + group
    topic = unwrap(namespace, queue.topic)
    tags = _wanted_tags(subscription)
    found = []
    for record in decode_records(body):
        if tags is not None and find_property(record.properties_text, _TAGS) not in tags:
            # Brokers compare only hashes of tags.
            continue
        message = ReceivedMessage(record, queue, topic=topic, body=_body(record), bounds=bounds)
        found.append(opened(message, group, namespace) if is_retry else message)
    return found


def _wanted_tags(subscription: Subscription) -> frozenset[bytes] | None:
    if not subscription.is_tag or not subscription.tags:
        return None
    return frozenset(tag.encode() for tag in subscription.tags)
