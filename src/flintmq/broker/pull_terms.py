"""The terms of a pull: whether it may read at all, and what it wants of what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.broker.tag_filter import filter_for
from flintmq.format.bodies.heartbeat import MESSAGE_MODELS
from flintmq.format.codes import ResponseCode
from flintmq.format.subscription import ExpressionError, build_subscription
from flintmq.model.topic_config import Perm
from flintmq.remoting import RefusedError

if TYPE_CHECKING:
    from flintmq.broker.config import BrokerConfig
    from flintmq.broker.parts import BrokerParts
    from flintmq.broker.tag_filter import TagFilter
    from flintmq.format.headers.pull import PullMessageRequest
    from flintmq.model.group_config import GroupConfig
    from flintmq.model.subscription import Subscription
    from flintmq.store.results import GetResult

COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4

_BROADCASTING: Final = MESSAGE_MODELS[0]


class PullTerms(NamedTuple):
    """What a pull that may read goes by."""

    group: GroupConfig
    subscription: Subscription
    message_filter: TagFilter | None


def checked_terms(parts: BrokerParts, header: PullMessageRequest) -> PullTerms:
    """Return the terms of a pull, or raise RefusedError with the reason why it may not read."""
    group = _checked_group(parts, header)
    _check_topic(parts, header)
    found = _subscription(parts, header, group)
    return PullTerms(group, found, filter_for(found))


def suggested_broker(config: BrokerConfig, result: GetResult, group: GroupConfig) -> int:
    """Return the id of the broker that a group should pull from next."""
    if not config.slave_read:
        return 0
    return group.slow_broker_id if result.suggest_slave else group.broker_id


def _checked_group(parts: BrokerParts, header: PullMessageRequest) -> GroupConfig:
    config = parts.config
    if not config.permission & Perm.READ:
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"the broker[{config.ip1}] pulling message is forbidden"
        )
    group = parts.groups.get(header.consumer_group)
    if group is None:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{header.consumer_group}] does not exist",
        )
    if not group.consume_enable:
        raise RefusedError(
            ResponseCode.NO_PERMISSION,
            f"subscription group no permission, {header.consumer_group}",
        )
    return group


def _check_topic(parts: BrokerParts, header: PullMessageRequest) -> None:
    topic = parts.topics.get(header.topic)
    if topic is None:
        raise RefusedError(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{header.topic}] not exist, apply first please!",
        )
    if not topic.perm & Perm.READ:
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling is forbidden"
        )
    if not 0 <= header.queue_id < topic.read_queue_count:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] has "
            f"{topic.read_queue_count} queues to read",
        )


def _subscription(
    parts: BrokerParts, header: PullMessageRequest, group: GroupConfig
) -> Subscription:
    if header.sys_flag & SUBSCRIPTION:
        try:
            found = build_subscription(header.topic, header.subscription, header.expression_type)
        except ExpressionError as error:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the subscription: {error}"
            ) from error
    else:
        found = _registered_subscription(parts, header, group)
    if not found.is_tag:
        kind = found.expression_type
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind}",
        )
    return found


def _registered_subscription(
    parts: BrokerParts, header: PullMessageRequest, config: GroupConfig
) -> Subscription:
    group = parts.consumers.get(header.consumer_group)
    if group is None:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
        )
    if not config.consume_broadcast_enable and group.message_model == _BROADCASTING:
        raise RefusedError(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{config.name}] can not consume by broadcast way",
        )
    found = group.subscriptions.get(header.topic)
    if found is None:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the group {config.name} does not subscribe to {header.topic}",
        )
    if found.version < header.sub_version:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
        )
    return found
