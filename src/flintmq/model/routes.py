"""Where topics are: what a name server tells."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from flintmq.model.value_class import Value, value_class

MASTER_ID: Final = 0


@value_class
class QueueData(Value):
    """The queues of a topic on one broker."""

    broker_name: str
    read_queue_count: int
    write_queue_count: int
    perm: int
    topic_sys_flag: int = 0


@value_class
class BrokerData(Value):
    """The addresses of a broker and its replicas, by broker id."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str]


@value_class
class TopicRoute(Value):
    """Which brokers have a topic, and how to reach them."""

    queues: tuple[QueueData, ...] = ()
    brokers: tuple[BrokerData, ...] = ()
    order_topic_conf: str | None = None
    filter_servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@value_class
class ClusterInfo(Value):
    """All brokers, and which cluster each belongs to."""

    brokers: Mapping[str, BrokerData]
    clusters: Mapping[str, tuple[str, ...]]
