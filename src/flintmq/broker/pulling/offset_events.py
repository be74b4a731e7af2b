"""Telling operators of pulls whose offset was outside of its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.format.wire.bodies.dialect import dumps_body
from flintmq.model.message import PutMessage
from flintmq.model.message_queue import MessageQueue
from flintmq.model.property_names import DELAY, KEYS, TAGS
from flintmq.model.topics import OFFSET_MOVED_TOPIC

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.format.wire.headers.pull import PullMessageRequest
    from flintmq.store.results import GetResult


def offset_moved_event(
    context: BrokerContext, header: PullMessageRequest, result: GetResult
) -> PutMessage:
    """Return the message that says where a group was sent to."""
    queue = MessageQueue(header.topic, context.config.name, header.queue_id)
    body = dumps_body(
        {
            "consumerGroup": header.consumer_group,
            "messageQueue": queue,
            "offsetNew": result.next_begin_offset,
            "offsetRequest": header.queue_offset,
        }
    )
    return PutMessage(
        topic=OFFSET_MOVED_TOPIC,
        body=body,
        properties={TAGS: header.consumer_group, KEYS: header.consumer_group, DELAY: "0"},
        born_timestamp=context.clock.now_ms(),
        born_host=context.store_host,
        store_host=context.store_host,
    )
