"""Which request is handled by which function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.processors.broker import BrokerProcessor
from flintmq.broker.processors.clients import ClientProcessor
from flintmq.broker.processors.forwarding import ForwardingProcessor
from flintmq.broker.processors.groups import GroupProcessor
from flintmq.broker.processors.offsets import OffsetProcessor
from flintmq.broker.processors.pull import PullProcessor
from flintmq.broker.processors.query import QueryProcessor
from flintmq.broker.processors.replies import ReplyProcessor
from flintmq.broker.processors.send import SendProcessor
from flintmq.broker.processors.send_back import SendBackProcessor
from flintmq.broker.processors.topics import TopicProcessor
from flintmq.broker.processors.transactions import TransactionProcessor
from flintmq.format.codes import RequestCode
from flintmq.remoting import ProcessorTable

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.remoting.processors import Processor


def processor_table(parts: BrokerParts) -> ProcessorTable:
    """Return the processors of a broker by request code."""
    return ProcessorTable(_messages(parts) | _clients(parts) | _administration(parts))


def _messages(parts: BrokerParts) -> dict[int, Processor]:
    send, pull, query = SendProcessor(parts), PullProcessor(parts), QueryProcessor(parts)
    back, transactions = SendBackProcessor(parts), TransactionProcessor(parts)
    replies, offsets = ReplyProcessor(parts, send), OffsetProcessor(parts)
    return {
        RequestCode.SEND_MESSAGE: send.send,
        RequestCode.SEND_MESSAGE_V2: send.send,
        RequestCode.SEND_BATCH_MESSAGE: send.send,
        RequestCode.SEND_REPLY_MESSAGE: replies.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply,
        RequestCode.CONSUMER_SEND_MSG_BACK: back.send_back,
        RequestCode.END_TRANSACTION: transactions.end,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: transactions.resume_check,
        RequestCode.PULL_MESSAGE: pull.pull,
        RequestCode.LITE_PULL_MESSAGE: pull.pull,
        RequestCode.QUERY_MESSAGE: query.by_key,
        RequestCode.VIEW_MESSAGE_BY_ID: query.by_offset,
        RequestCode.QUERY_CONSUME_QUEUE: query.queue_units,
        RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
        RequestCode.GET_MAX_OFFSET: offsets.maximum,
        RequestCode.GET_MIN_OFFSET: offsets.minimum,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.by_time,
        RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.earliest_time,
    }


def _clients(parts: BrokerParts) -> dict[int, Processor]:
    clients, forwarding = ClientProcessor(parts), ForwardingProcessor(parts)
    return {
        RequestCode.HEART_BEAT: clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: clients.unregister,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
        RequestCode.CHECK_CLIENT_CONFIG: clients.check_config,
        RequestCode.LOCK_BATCH_MQ: clients.lock,
        RequestCode.UNLOCK_BATCH_MQ: clients.unlock,
        RequestCode.GET_CONSUMER_RUNNING_INFO: forwarding.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: forwarding.consume_directly,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: forwarding.reset_offset,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: forwarding.consumer_status,
    }


def _administration(parts: BrokerParts) -> dict[int, Processor]:
    topics, groups, broker = TopicProcessor(parts), GroupProcessor(parts), BrokerProcessor(parts)
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
