"""Telling operators of pulls whose offset was outside of its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.format.bodies.dialect import dumps_body
from flintmq.model.message import Message
from flintmq.model.message_queue import MessageQueue
from flintmq.model.property_names import DELAY, KEYS, TAGS
from flintmq.model.topics import OFFSET_MOVED_TOPIC

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.format.headers.pull import PullMessageRequest
    from flintmq.store.results import GetResult


def offset_moved_event(
    parts: BrokerParts, header: PullMessageRequest, result: GetResult
) -> Message:
    """Return the message that says where a group was sent to."""
    queue = MessageQueue(header.topic, parts.config.name, header.queue_id)
    body = dumps_body(
        {
            "consumerGroup": header.consumer_group,
            "messageQueue": queue,
            "offsetNew": result.next_begin_offset,
            "offsetRequest": header.queue_offset,
        }
    )
    return Message(
        topic=OFFSET_MOVED_TOPIC,
        body=body,
        properties={TAGS: header.consumer_group, KEYS: header.consumer_group, DELAY: "0"},
        born_timestamp=parts.clock.now_ms(),
        born_host=parts.store_host,
        store_host=parts.store_host,
    )
