"""Plain values everyone shares."""

from flintmq.model.data_version import DataVersion
from flintmq.model.group_config import GroupConfig
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.model.message_queue import MessageQueue
from flintmq.model.routes import BrokerData, ClusterInfo, QueueData, TopicRoute
from flintmq.model.subscription import Subscription
from flintmq.model.topic_config import Perm, TopicConfig, TopicSysFlag

__all__ = [
    "BrokerData",
    "ClusterInfo",
    "DataVersion",
    "GroupConfig",
    "MessageBatch",
    "MessageQueue",
    "Perm",
    "PutMessage",
    "QueueData",
    "Subscription",
    "TopicConfig",
    "TopicRoute",
    "TopicSysFlag",
    "data_version",
    "group_config",
    "message",
    "message_queue",
    "property_names",
    "routes",
    "steps",
    "subscription",
    "topic_config",
    "topics",
    "value_class",
]
