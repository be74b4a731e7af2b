"""Which header a request and its answer have: one line per request code."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers import (
    access,
    admin,
    clients,
    namesrv,
    offsets,
    pull,
    query,
    send,
    send_back,
    transaction,
)
from flintmq.format.wire.headers.clients import NoFields
from flintmq.format.wire.headers.codec import Header


class HeaderPair(NamedTuple):
    """The headers of one request code; the second is that of an answer which found something."""

    request: type[Header]
    response: type[Header] = NoFields


HEADERS: Final[Mapping[int, HeaderPair]] = MappingProxyType(
    {
        # Messages
        RequestCode.SEND_MESSAGE: HeaderPair(send.SendMessageRequest, send.SendMessageResponse),
        RequestCode.SEND_MESSAGE_V2: HeaderPair(
            send.SendMessageRequestV2, send.SendMessageResponse
        ),
        RequestCode.SEND_BATCH_MESSAGE: HeaderPair(
            send.SendMessageRequestV2, send.SendMessageResponse
        ),
        RequestCode.SEND_REPLY_MESSAGE: HeaderPair(
            send.SendMessageRequest, send.SendMessageResponse
        ),
        RequestCode.SEND_REPLY_MESSAGE_V2: HeaderPair(
            send.SendMessageRequestV2, send.SendMessageResponse
        ),
        RequestCode.PULL_MESSAGE: HeaderPair(pull.PullMessageRequest, pull.PullMessageResponse),
        RequestCode.LITE_PULL_MESSAGE: HeaderPair(
            pull.PullMessageRequest, pull.PullMessageResponse
        ),
        RequestCode.CONSUMER_SEND_MSG_BACK: HeaderPair(send_back.SendBackRequest),
        RequestCode.QUERY_MESSAGE: HeaderPair(
            query.QueryMessageRequest, query.QueryMessageResponse
        ),
        RequestCode.VIEW_MESSAGE_BY_ID: HeaderPair(query.ViewMessageRequest),
        RequestCode.QUERY_CONSUME_QUEUE: HeaderPair(query.QueryConsumeQueueRequest),
        # Transactions
        RequestCode.END_TRANSACTION: HeaderPair(transaction.EndTransactionRequest),
        RequestCode.CHECK_TRANSACTION_STATE: HeaderPair(transaction.CheckTransactionRequest),
        RequestCode.RESUME_CHECK_HALF_MESSAGE: HeaderPair(transaction.ResumeCheckRequest),
        # Offsets
        RequestCode.QUERY_CONSUMER_OFFSET: HeaderPair(
            offsets.QueryConsumerOffsetRequest, offsets.OffsetResponse
        ),
        RequestCode.UPDATE_CONSUMER_OFFSET: HeaderPair(offsets.UpdateConsumerOffsetRequest),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: HeaderPair(
            offsets.SearchOffsetRequest, offsets.OffsetResponse
        ),
        RequestCode.GET_MAX_OFFSET: HeaderPair(offsets.QueueBoundRequest, offsets.OffsetResponse),
        RequestCode.GET_MIN_OFFSET: HeaderPair(offsets.QueueBoundRequest, offsets.OffsetResponse),
        RequestCode.GET_EARLIEST_MSG_STORETIME: HeaderPair(
            offsets.QueueBoundRequest, offsets.EarliestStoreTimeResponse
        ),
        RequestCode.GET_ALL_CONSUMER_OFFSET: HeaderPair(NoFields),
        RequestCode.GET_ALL_DELAY_OFFSET: HeaderPair(NoFields),
        # Clients
        RequestCode.HEART_BEAT: HeaderPair(NoFields),
        RequestCode.UNREGISTER_CLIENT: HeaderPair(clients.UnregisterClientRequest),
        RequestCode.CHECK_CLIENT_CONFIG: HeaderPair(NoFields),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: HeaderPair(clients.ConsumerGroupRequest),
        RequestCode.LOCK_BATCH_MQ: HeaderPair(NoFields),
        RequestCode.UNLOCK_BATCH_MQ: HeaderPair(NoFields),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: HeaderPair(clients.ConsumerGroupRequest),
        RequestCode.GET_PRODUCER_CONNECTION_LIST: HeaderPair(clients.ProducerGroupRequest),
        RequestCode.GET_ALL_PRODUCER_INFO: HeaderPair(NoFields),
        # The broker's requests to clients, and those it passes on
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: HeaderPair(clients.ConsumerGroupRequest),
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: HeaderPair(clients.ResetOffsetRequest),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: HeaderPair(clients.ResetOffsetRequest),
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: HeaderPair(clients.ConsumerStatusRequest),
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: HeaderPair(clients.ConsumerStatusRequest),
        RequestCode.GET_CONSUMER_RUNNING_INFO: HeaderPair(clients.ConsumerRunningInfoRequest),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: HeaderPair(clients.ConsumeDirectlyRequest),
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: HeaderPair(clients.PushReplyRequest),
        # The name server
        RequestCode.REGISTER_BROKER: HeaderPair(
            namesrv.RegisterBrokerRequest, namesrv.RegisterBrokerResponse
        ),
        RequestCode.UNREGISTER_BROKER: HeaderPair(namesrv.UnregisterBrokerRequest),
        RequestCode.QUERY_DATA_VERSION: HeaderPair(
            namesrv.QueryDataVersionRequest, namesrv.QueryDataVersionResponse
        ),
        RequestCode.GET_ROUTEINFO_BY_TOPIC: HeaderPair(namesrv.RouteRequest),
        RequestCode.GET_BROKER_CLUSTER_INFO: HeaderPair(NoFields),
        RequestCode.PUT_KV_CONFIG: HeaderPair(namesrv.PutKvConfigRequest),
        RequestCode.GET_KV_CONFIG: HeaderPair(namesrv.KvConfigRequest, namesrv.KvConfigResponse),
        RequestCode.DELETE_KV_CONFIG: HeaderPair(namesrv.KvConfigRequest),
        RequestCode.GET_KVLIST_BY_NAMESPACE: HeaderPair(namesrv.KvNamespaceRequest),
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: HeaderPair(
            namesrv.WritePermRequest, namesrv.WipeWritePermResponse
        ),
        RequestCode.ADD_WRITE_PERM_OF_BROKER: HeaderPair(
            namesrv.WritePermRequest, namesrv.AddWritePermResponse
        ),
        RequestCode.DELETE_TOPIC_IN_NAMESRV: HeaderPair(namesrv.DeleteTopicInNamesrvRequest),
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: HeaderPair(NoFields),
        RequestCode.GET_TOPICS_BY_CLUSTER: HeaderPair(namesrv.ClusterRequest),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: HeaderPair(NoFields),
        RequestCode.GET_UNIT_TOPIC_LIST: HeaderPair(NoFields),
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: HeaderPair(NoFields),
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: HeaderPair(NoFields),
        RequestCode.UPDATE_NAMESRV_CONFIG: HeaderPair(NoFields),
        RequestCode.GET_NAMESRV_CONFIG: HeaderPair(NoFields),
        # Access control
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: HeaderPair(access.UpdateAccountRequest),
        RequestCode.DELETE_ACL_CONFIG: HeaderPair(access.DeleteAccountRequest),
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO: HeaderPair(NoFields, access.AccessVersionResponse),
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: HeaderPair(
            access.UpdateWhiteAddressesRequest
        ),
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: HeaderPair(NoFields),
        # Administration
        RequestCode.UPDATE_AND_CREATE_TOPIC: HeaderPair(admin.CreateTopicRequest),
        RequestCode.DELETE_TOPIC_IN_BROKER: HeaderPair(admin.TopicRequest),
        RequestCode.GET_ALL_TOPIC_CONFIG: HeaderPair(NoFields),
        RequestCode.GET_TOPIC_CONFIG: HeaderPair(admin.TopicRequest),
        RequestCode.GET_TOPIC_STATS_INFO: HeaderPair(admin.TopicRequest),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: HeaderPair(NoFields),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: HeaderPair(NoFields),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: HeaderPair(admin.DeleteGroupRequest),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: HeaderPair(NoFields),
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: HeaderPair(admin.GroupConfigRequest),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: HeaderPair(admin.TopicRequest),
        RequestCode.GET_CONSUME_STATS: HeaderPair(admin.ConsumeStatsRequest),
        RequestCode.GET_BROKER_CONSUME_STATS: HeaderPair(admin.BrokerConsumeStatsRequest),
        RequestCode.QUERY_CONSUME_TIME_SPAN: HeaderPair(admin.ConsumeTimeSpanRequest),
        RequestCode.QUERY_CORRECTION_OFFSET: HeaderPair(admin.CorrectionOffsetRequest),
        RequestCode.CLONE_GROUP_OFFSET: HeaderPair(admin.CloneGroupOffsetRequest),
        RequestCode.VIEW_BROKER_STATS_DATA: HeaderPair(admin.BrokerStatsRequest),
        RequestCode.GET_BROKER_RUNTIME_INFO: HeaderPair(NoFields),
        RequestCode.GET_BROKER_CONFIG: HeaderPair(NoFields, admin.BrokerConfigResponse),
        RequestCode.UPDATE_BROKER_CONFIG: HeaderPair(NoFields),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: HeaderPair(NoFields),
        RequestCode.CLEAN_UNUSED_TOPIC: HeaderPair(NoFields),
        RequestCode.DELETE_EXPIRED_COMMITLOG: HeaderPair(NoFields),
    }
)
