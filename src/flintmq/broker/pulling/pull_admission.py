"""Whether a pull may read, and what it wants: the rules that every way of pulling goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.broker.filtering.sql_filter import RetryFilter, SqlFilter
from flintmq.broker.filtering.tag_filter import filter_for
from flintmq.filter.errors import SqlFilterError
from flintmq.format.subscription import ExpressionError, build_subscription
from flintmq.format.wire.bodies.heartbeat import MESSAGE_MODELS
from flintmq.format.wire.codes import ResponseCode
from flintmq.model.subscription import SQL92
from flintmq.model.topic_config import Perm
from flintmq.model.topics import RETRY_PREFIX
from flintmq.remoting import RefusedError

if TYPE_CHECKING:
    from flintmq.broker.config import BrokerConfig
    from flintmq.broker.context import BrokerContext
    from flintmq.broker.filtering.pull_filter import PullFilter
    from flintmq.format.wire.headers.pull import PullMessageRequest
    from flintmq.model.group_config import GroupConfig
    from flintmq.model.subscription import Subscription
    from flintmq.store.results import GetResult

COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4

_READ: Final = int(Perm.READ)
"""As a plain number: to combine flags of an enumeration takes ten times as long."""
_BROADCASTING: Final = MESSAGE_MODELS[0]


class AdmittedPull(NamedTuple):
    """What was found out about a pull when it was admitted."""

    group: GroupConfig
    subscription: Subscription
    message_filter: PullFilter | None


def admit_pull(context: BrokerContext, header: PullMessageRequest) -> AdmittedPull:
    """Admit a pull; raise RefusedError with the reason if it may not read."""
    group = check_group_and_topic(context, header)
    found = _subscription(context, header, group)
    return AdmittedPull(group, found, _filter(context, header, found))


def check_group_and_topic(context: BrokerContext, header: PullMessageRequest) -> GroupConfig:
    """Return the group of a pull; raise RefusedError if it, or the topic, may not be read."""
    group = _checked_group(context, header)
    _check_topic(context, header)
    return group


def takes_long_to_compile(context: BrokerContext, header: PullMessageRequest) -> bool:
    """Return whether a pull brings an expression that is not compiled within one turn."""
    return (
        bool(header.sys_flag & SUBSCRIPTION)
        and header.expression_type == SQL92
        and context.config.property_filter
        and context.filters.takes_long(header.subscription or "")
    )


def suggested_broker(config: BrokerConfig, result: GetResult, group: GroupConfig) -> int:
    """Return the id of the broker that a group should pull from next."""
    if not config.slave_read:
        return 0
    return group.slow_broker_id if result.suggest_slave else group.broker_id


def _checked_group(context: BrokerContext, header: PullMessageRequest) -> GroupConfig:
    config = context.config
    if not config.permission & _READ:
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"the broker[{config.ip1}] pulling message is forbidden"
        )
    group = context.groups.get(header.consumer_group)
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


def _check_topic(context: BrokerContext, header: PullMessageRequest) -> None:
    topic = context.topics.get(header.topic)
    if topic is None:
        raise RefusedError(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{header.topic}] not exist, apply first please!",
        )
    if not int(topic.perm) & _READ:
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
    context: BrokerContext, header: PullMessageRequest, group: GroupConfig
) -> Subscription:
    if header.sys_flag & SUBSCRIPTION:
        try:
            found = build_subscription(header.topic, header.subscription, header.expression_type)
        except ExpressionError as error:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the subscription: {error}"
            ) from error
    else:
        found = _registered_subscription(context, header, group)
    if not found.is_tag:
        check_sql_is_served(context, found)
    return found


def check_sql_is_served(context: BrokerContext, subscription: Subscription) -> None:
    """Raise RefusedError if messages cannot be chosen in the way of a subscription."""
    kind = subscription.expression_type
    if not context.config.property_filter or kind != SQL92:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind}",
        )


def _filter(
    context: BrokerContext, header: PullMessageRequest, subscription: Subscription
) -> PullFilter | None:
    """Return what a pull asks of messages, None if it wants all."""
    filters, group = context.filters, header.consumer_group
    if subscription.is_tag:
        tags = filter_for(subscription)
        if not context.config.filter_retry or not header.topic.startswith(RETRY_PREFIX):
            return tags
        retried = header.topic.removeprefix(RETRY_PREFIX)
        return RetryFilter(lambda topic: filters.filter_of(topic, retried), tags)
    if header.sys_flag & SUBSCRIPTION:
        try:
            return SqlFilter(filters.compiled(subscription.expression))
        except SqlFilterError as error:
            raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
    entry, found = filters.get(header.topic, group), filters.filter_of(header.topic, group)
    if entry is None or found is None:
        raise RefusedError(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        )
    if entry.version < header.sub_version:
        raise RefusedError(
            ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest"
        )
    return found


def _registered_subscription(
    context: BrokerContext, header: PullMessageRequest, config: GroupConfig
) -> Subscription:
    group = context.consumers.get(header.consumer_group)
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
