"""Decoding of stored records into the messages that users see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.client.messaging.messages import BodyBudget, ReceivedMessage
from flintmq.client.namespaces import unwrap
from flintmq.format.properties import find_property
from flintmq.format.stored.pulled_records import split_records
from flintmq.model.message_queue import MessageQueue
from flintmq.model.property_names import RETRY_TOPIC, TAGS
from flintmq.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from flintmq.format.stored.record import Record
    from flintmq.model.subscription import Subscription

_TAGS: Final = TAGS.encode()


def decode_message(record: Record, broker_name: str) -> ReceivedMessage:
    """Return a record as a message, with the topic it is stored under."""
    queue = MessageQueue(record.topic, broker_name, record.queue_id)
    return ReceivedMessage(record, queue)


def with_user_topic(message: ReceivedMessage, group: str, namespace: str | None) -> ReceivedMessage:
    """Return a message with the topic that its user knows: not the retry topic, no namespace."""
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
    records, budget = split_records(body), BodyBudget()
    if tags is not None:
        # Brokers compare only hashes of tags.
        records = [one for one in records if find_property(one.properties_text, _TAGS) in tags]
    messages = ReceivedMessage.of_pull(records, queue, topic=topic, bounds=bounds, budget=budget)
    if is_retry:
        return [with_user_topic(message, group, namespace) for message in messages]
    return messages


def _wanted_tags(subscription: Subscription) -> frozenset[bytes] | None:
    if not subscription.is_tag or not subscription.tags:
        return None
    return frozenset(tag.encode() for tag in subscription.tags)
