"""The queues of a route: those that can be sent to, and those that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.model.message_queue import MessageQueue
from flintmq.model.routes import MASTER_ID
from flintmq.model.topic_config import Perm

if TYPE_CHECKING:
    from flintmq.model.routes import TopicRoute


NEW_TOPIC_QUEUE_COUNT: Final = 4
"""How many queues a client asks for when a send creates a topic."""


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the queues that can be sent to, in the order by which they take turns.

    An order configuration names brokers and counts itself.  Otherwise a queue counts if it is
    writable and its broker has a master.
    """
    if route.order_topic_conf:
        return _ordered_queues(topic, route.order_topic_conf)
    masters = {one.broker_name for one in route.brokers if MASTER_ID in one.addresses}
    return [
        MessageQueue(topic, entry.broker_name, queue_id)
        for entry in sorted(route.queues, key=lambda one: one.broker_name)
        if entry.perm & Perm.WRITE and entry.broker_name in masters
        for queue_id in range(entry.write_queue_count)
    ]


def _ordered_queues(topic: str, configuration: str) -> list[MessageQueue]:
    queues = []
    for part in configuration.split(";"):
        broker_name, separator, count = part.strip().partition(":")
        if separator and count.isdigit():
            queues += [MessageQueue(topic, broker_name, number) for number in range(int(count))]
    return queues


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the queues that can be read, sorted as all members of a group sort them."""
    return sorted(
        MessageQueue(topic, entry.broker_name, queue_id)
        for entry in route.queues
        if entry.perm & Perm.READ
        for queue_id in range(entry.read_queue_count)
    )
