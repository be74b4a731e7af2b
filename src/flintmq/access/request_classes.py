"""What each request needs: the one table of access control.

A request whose code is not here is denied.  The names of fields are those of the header classes,
so what is checked is what its processor reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from flintmq.access.accounts import PUBLISH, SUBSCRIBE, Resource, group, topic
from flintmq.format.wire.bodies.dialect import Members, check_request_size, loads_body, queue_from
from flintmq.format.wire.bodies.heartbeat import decode_heartbeat, subscription_from_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.table import HEADERS
from flintmq.model.property_names import INNER_MULTI_DISPATCH

if TYPE_CHECKING:
    from flintmq.remoting import ReceivedRequest

ANY_RIGHT: Final = PUBLISH | SUBSCRIBE

JUDGED_SIZE_MAX: Final = 256 << 10
"""Bytes of JSON that are read to find out what a request is about: a heartbeat of 500 groups or
more.  It is read before the request is admitted, and everybody waits meanwhile."""

TopicAt: TypeAlias = Callable[[int], str | None]
"""Returns the topic of the message at a place in the log, or None if there is none."""

Fields: TypeAlias = Mapping[str, str]
Needs: TypeAlias = Callable[["ReceivedRequest", Fields, TopicAt], Iterable[Resource]]
"""Returns the topics and groups that a request is about."""


class Access(Enum):
    """The classes of requests.  None is open to everybody: all of them need an account."""

    READ = "read"
    """Any account; where it names a topic, one with any right to it."""
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"
    """Administrators only."""


class RequestClass(NamedTuple):
    """What one request code needs."""

    access: Access
    needs: Needs | None = None


_TOPIC_RIGHTS: Final = {
    Access.READ: ANY_RIGHT,
    Access.PUBLISH: PUBLISH,
    Access.SUBSCRIBE: SUBSCRIBE,
}


def _named(code: int, access: Access, *names: str) -> RequestClass:
    """Return the class of a request whose header names topics and groups in these fields."""
    wire_fields, rights = _wire_fields(code), _TOPIC_RIGHTS[access]
    topics = tuple(wire_fields[name] for name in names if name.endswith("topic"))
    groups = tuple(wire_fields[name] for name in names if name.endswith("group"))
    assert len(topics) + len(groups) == len(names)

    def needs(request: ReceivedRequest, fields: Fields, topic_at: TopicAt) -> Iterator[Resource]:
        for name, is_required in topics:
            value = fields.get(name, "")
            if value or is_required:
                yield topic(value, rights)
        for name, is_required in groups:
            value = fields.get(name, "")
            if value or is_required:
                yield group(value)

    return RequestClass(access, needs)


class _WireField(NamedTuple):
    """A field of a header."""

    name: str
    is_required: bool


def _wire_fields(code: int) -> dict[str, _WireField]:
    kind: Any = HEADERS[code].request
    fields = zip(dataclasses.fields(kind), kind.wire_fields(), strict=True)
    return {
        one.name: _WireField(wire_name, one.default is dataclasses.MISSING)
        for one, wire_name in fields
    }


# -- messages ------------------------------------------------------------------------------------


def _send(code: int) -> RequestClass:
    wire_fields = _wire_fields(code)
    topic_field, properties_field = wire_fields["topic"].name, wire_fields["properties"].name

    def needs(request: ReceivedRequest, fields: Fields, topic_at: TopicAt) -> Iterator[Resource]:
        yield topic(fields.get(topic_field, ""), PUBLISH)
        text = fields.get(properties_field, "")
        if INNER_MULTI_DISPATCH in text:
            yield from _dispatched_to(text)
        if _DISPATCH_BYTES in request.body:
            # It may be a message of a batch, which goes to queues of other topics then.
            yield from _dispatched_to(request.body.decode("utf-8", "replace"))

    return RequestClass(Access.PUBLISH, needs)


_DISPATCH_BYTES: Final = INNER_MULTI_DISPATCH.encode() + b"\x01"


def _dispatched_to(text: str) -> Iterator[Resource]:
    """Yield every topic that properties send a message to besides its own."""
    for value in text.split(INNER_MULTI_DISPATCH + "\x01")[1:]:
        for name in value.partition("\x02")[0].split(","):
            yield topic(name, PUBLISH)


def _send_back(request: ReceivedRequest, fields: Fields, topic_at: TopicAt) -> Iterator[Resource]:
    yield group(fields.get("group", ""))
    # The message is found by its place, and whoever gives it back gets it again.
    yield from _at(fields.get("offset"), topic_at, SUBSCRIBE)


def _view(request: ReceivedRequest, fields: Fields, topic_at: TopicAt) -> Iterator[Resource]:
    return _at(fields.get("offset"), topic_at, SUBSCRIBE)


def _end_transaction(
    request: ReceivedRequest, fields: Fields, topic_at: TopicAt
) -> Iterator[Resource]:
    return _at(fields.get("commitLogOffset"), topic_at, PUBLISH)


def _at(offset: str | None, topic_at: TopicAt, rights: int) -> Iterator[Resource]:
    try:
        found = topic_at(int(offset or ""))
    except ValueError:
        return  # Its processor refuses it for that.
    if found is not None:
        yield topic(found, rights)


# -- clients -------------------------------------------------------------------------------------


def _heartbeat(request: ReceivedRequest, fields: Fields, topic_at: TopicAt) -> Iterator[Resource]:
    check_request_size(request.body, JUDGED_SIZE_MAX)
    for consumer in decode_heartbeat(request.body).consumers:
        yield group(consumer.group)
        for subscription in consumer.subscriptions:
            yield topic(subscription.topic, SUBSCRIBE)


def _lock(request: ReceivedRequest, fields: Fields, topic_at: TopicAt) -> Iterator[Resource]:
    check_request_size(request.body, JUDGED_SIZE_MAX)
    members = Members(loads_body(request.body), "a lock request")
    yield group(members.name("consumerGroup"))
    for name in {queue_from(one).topic for one in members.items("mqSet")}:
        yield topic(name, SUBSCRIBE)


def _check_config(
    request: ReceivedRequest, fields: Fields, topic_at: TopicAt
) -> Iterator[Resource]:
    check_request_size(request.body, JUDGED_SIZE_MAX)
    members = Members(loads_body(request.body), "a client's configuration")
    yield group(members.text("group", ""))
    value = members.get("subscriptionData")
    if value is not None:
        yield topic(subscription_from_json(value).topic, SUBSCRIBE)


_ADMINISTRATION: Final = (
    # Of a broker
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    # Of a name server; who can register a broker gets the messages of everybody.
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.GET_NAMESRV_CONFIG,
)

_ANY_ACCOUNT: Final = (
    # Of a broker
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    # Of a name server
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
)

_NAMED: Final[dict[RequestCode, tuple[Access, tuple[str, ...]]]] = {
    RequestCode.PULL_MESSAGE: (Access.SUBSCRIBE, ("topic", "consumer_group")),
    RequestCode.LITE_PULL_MESSAGE: (Access.SUBSCRIBE, ("topic", "consumer_group")),
    RequestCode.QUERY_MESSAGE: (Access.SUBSCRIBE, ("topic",)),
    RequestCode.QUERY_CONSUME_QUEUE: (Access.SUBSCRIBE, ("topic", "consumer_group")),
    RequestCode.QUERY_CONSUMER_OFFSET: (Access.SUBSCRIBE, ("topic", "consumer_group")),
    RequestCode.UPDATE_CONSUMER_OFFSET: (Access.SUBSCRIBE, ("topic", "consumer_group")),
    RequestCode.GET_MAX_OFFSET: (Access.READ, ("topic",)),
    RequestCode.GET_MIN_OFFSET: (Access.READ, ("topic",)),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (Access.READ, ("topic",)),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (Access.READ, ("topic",)),
    # A group of producers has no permissions.
    RequestCode.UNREGISTER_CLIENT: (Access.READ, ("consumer_group",)),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (Access.SUBSCRIBE, ("consumer_group",)),
    RequestCode.GET_TOPIC_CONFIG: (Access.READ, ("topic",)),
    RequestCode.GET_TOPIC_STATS_INFO: (Access.READ, ("topic",)),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (Access.READ, ("topic",)),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (Access.READ, ("group",)),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (Access.READ, ("consumer_group",)),
    RequestCode.GET_CONSUME_STATS: (Access.READ, ("topic", "consumer_group")),
    RequestCode.QUERY_CONSUME_TIME_SPAN: (Access.READ, ("topic", "group")),
}
"""The requests whose header names all that they need."""

REQUEST_CLASSES: Final[Mapping[int, RequestClass]] = {
    **{code: RequestClass(Access.ADMIN) for code in _ADMINISTRATION},
    **{code: RequestClass(Access.READ) for code in _ANY_ACCOUNT},
    **{code: _named(code, access, *names) for code, (access, names) in _NAMED.items()},
    **{
        code: _send(code)
        for code in (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
        )
    },
    RequestCode.CONSUMER_SEND_MSG_BACK: RequestClass(Access.SUBSCRIBE, _send_back),
    RequestCode.VIEW_MESSAGE_BY_ID: RequestClass(Access.SUBSCRIBE, _view),
    RequestCode.END_TRANSACTION: RequestClass(Access.PUBLISH, _end_transaction),
    RequestCode.HEART_BEAT: RequestClass(Access.SUBSCRIBE, _heartbeat),
    RequestCode.LOCK_BATCH_MQ: RequestClass(Access.SUBSCRIBE, _lock),
    RequestCode.UNLOCK_BATCH_MQ: RequestClass(Access.SUBSCRIBE, _lock),
    RequestCode.CHECK_CLIENT_CONFIG: RequestClass(Access.SUBSCRIBE, _check_config),
}
"""The class of every request that brokers and name servers of ours handle."""

ACCESS_CODES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    }
)
"""The requests about access control itself, which an address alone never opens."""
