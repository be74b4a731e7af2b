"""Which request of an operator is handled by which function.

A broker has loaded all this once the first such request came: its start need not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.processors.access import AccessProcessor
from flintmq.broker.processors.broker_admin import BrokerProcessor
from flintmq.broker.processors.forwarding import ForwardingProcessor
from flintmq.broker.processors.groups import GroupProcessor
from flintmq.broker.processors.query import QueryProcessor
from flintmq.broker.processors.topics import TopicProcessor
from flintmq.format.wire.codes import RequestCode

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.remoting.processors import Processor


def operator_processors(context: BrokerContext) -> dict[int, Processor]:
    """Return the processors by request code."""
    return _messages(context) | _clients(context) | _administration(context) | _access(context)


def _messages(context: BrokerContext) -> dict[int, Processor]:
    query = QueryProcessor(context)
    return {
        RequestCode.QUERY_MESSAGE: query.by_key,
        RequestCode.VIEW_MESSAGE_BY_ID: query.by_offset,
        RequestCode.QUERY_CONSUME_QUEUE: query.queue_units,
    }


def _clients(context: BrokerContext) -> dict[int, Processor]:
    forwarding = ForwardingProcessor(context)
    return {
        RequestCode.GET_CONSUMER_RUNNING_INFO: forwarding.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: forwarding.consume_directly,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: forwarding.reset_offset,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: forwarding.consumer_status,
    }


def _access(context: BrokerContext) -> dict[int, Processor]:
    access = AccessProcessor(context)
    return {
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: access.update_account,
        RequestCode.DELETE_ACL_CONFIG: access.delete_account,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO: access.versions,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: access.update_white_addresses,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: access.configuration,
    }


def _administration(context: BrokerContext) -> dict[int, Processor]:
    topics, groups, broker = (
        TopicProcessor(context),
        GroupProcessor(context),
        BrokerProcessor(context),
    )
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: topics.create,
        RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete,
        RequestCode.GET_ALL_TOPIC_CONFIG: topics.all_configs,
        RequestCode.GET_TOPIC_CONFIG: topics.config,
        RequestCode.GET_TOPIC_STATS_INFO: topics.stats,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system_topics,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: topics.consumed_by,
        RequestCode.CLEAN_UNUSED_TOPIC: topics.clean_unused,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: topics.clean_expired,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.put,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.all_configs,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.config,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: groups.consumer_connections,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: groups.producer_connections,
        RequestCode.GET_ALL_PRODUCER_INFO: groups.all_producers,
        RequestCode.GET_CONSUME_STATS: groups.consume_stats,
        RequestCode.GET_BROKER_CONSUME_STATS: groups.broker_consume_stats,
        RequestCode.QUERY_CONSUME_TIME_SPAN: groups.time_span,
        RequestCode.QUERY_CORRECTION_OFFSET: groups.correction_offset,
        RequestCode.CLONE_GROUP_OFFSET: groups.clone_offset,
        RequestCode.GET_ALL_CONSUMER_OFFSET: groups.all_offsets,
        RequestCode.GET_ALL_DELAY_OFFSET: groups.delay_offsets,
        RequestCode.GET_BROKER_CONFIG: broker.get_config,
        RequestCode.UPDATE_BROKER_CONFIG: broker.update_config,
        RequestCode.GET_BROKER_RUNTIME_INFO: broker.runtime,
        RequestCode.VIEW_BROKER_STATS_DATA: broker.stats,
        RequestCode.DELETE_EXPIRED_COMMITLOG: broker.delete_expired_log,
    }
