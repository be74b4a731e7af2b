"""One queue of a topic on one broker."""

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """Names a queue in a cluster.  The order is that by which clients share queues out."""

    topic: str
    broker_name: str
    queue_id: int
