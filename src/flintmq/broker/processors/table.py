"""Which request is handled by which function, and which requests can be handled in bulk."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from flintmq.broker.processors.clients import ClientProcessor
from flintmq.broker.processors.known_requests import KnownRequests
from flintmq.broker.processors.offsets import OffsetProcessor
from flintmq.broker.processors.pull import PullProcessor
from flintmq.broker.processors.send import SendProcessor
from flintmq.broker.pulling.pull_fast_path import PullFastPath
from flintmq.broker.sending.send_fast_path import SendFastPath
from flintmq.broker.waiting.old_requests import OldRequests
from flintmq.broker.waiting.saved_answers import SavedAnswers
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX
from flintmq.remoting import Answer, RequestTable
from flintmq.remoting.request_table import admit_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from flintmq.broker.context import BrokerContext
    from flintmq.broker.waiting.saved_answers import TopicsOf
    from flintmq.format.wire.headers.send import SendMessageRequest
    from flintmq.format.wire.headers.send_back import SendBackRequest
    from flintmq.remoting import Request
    from flintmq.remoting.processors import Outcome, Processor
    from flintmq.remoting.request_table import BulkHandler


def request_table(context: BrokerContext) -> RequestTable:
    """Return who handles the requests of a broker, by their codes."""
    access, sends = context.access, SendFastPath(context)
    pulls = PullFastPath(context, PullProcessor(context).read_after_all)
    return RequestTable(
        processors(context),
        bulk=bulk_handlers(context, sends, pulls),
        reads=KnownRequests(pulls, None if context.is_slave else sends),
        admit=admit_all if access is None else access.admit,
        shed=OldRequests(lambda: context.config, context.refused),
        latencies=context.latencies,
    )


def processors(context: BrokerContext) -> dict[int, Processor]:
    """Return the processors of a broker by request code."""
    found = _messages(context) | _occasional(context) | _clients(context) | _operators(context)
    for code in found.keys() - _SENT_TO.keys():
        found[code] = _without_body(found[code])
    guard = SavedAnswers(context.topics, context.groups).guard
    for code in _CHANGES:
        found[code] = guard(found[code])
    for acknowledged, topics_of in _SENT_TO.items():
        found[acknowledged] = guard(found[acknowledged], topics_of)
    if context.is_slave:
        found |= {code: _refusing(answer) for code, answer in _REFUSED_BY_SLAVES.items()}
    return found


def _refusing(answer: Answer) -> Processor:
    """Return a processor that does nothing, and says so."""

    def refuse(request: Request[Any]) -> Answer:
        return answer

    return refuse


def _without_body(processor: Processor) -> Processor:
    """Return a processor that keeps nothing of what a request brought while it is worked on.

    A peer may put megabytes into thousands of requests that wait; their typed headers are enough.
    """

    @functools.wraps(processor)
    def run(request: Request[Any]) -> Outcome | Awaitable[Outcome]:
        outcome = processor(request)
        if outcome is not None and not isinstance(outcome, Answer):
            request.command.body, request.command.ext_fields = b"", {}
        return outcome

    return run


def _topics_sent_to(request: Request[SendMessageRequest]) -> tuple[str, ...]:
    topic = request.header.topic
    if not topic.startswith(RETRY_PREFIX):
        return (topic,)
    return topic, DLQ_PREFIX + topic.removeprefix(RETRY_PREFIX)


def _topics_sent_back_to(request: Request[SendBackRequest]) -> tuple[str, ...]:
    group = request.header.group
    return RETRY_PREFIX + group, DLQ_PREFIX + group


_SENT_TO: Final[dict[int, TopicsOf]] = {
    RequestCode.SEND_MESSAGE: _topics_sent_to,
    RequestCode.SEND_MESSAGE_V2: _topics_sent_to,
    RequestCode.SEND_BATCH_MESSAGE: _topics_sent_to,
    RequestCode.CONSUMER_SEND_MSG_BACK: _topics_sent_back_to,
}
"""The requests whose answers acknowledge messages, and where these go."""

_CHANGES: Final = (
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.END_TRANSACTION,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)
"""The requests whose answers promise that a topic or a group is as it was asked for."""


_NO_MESSAGES: Final = Answer(
    ResponseCode.SERVICE_NOT_AVAILABLE, remark="this broker is a slave and takes no messages"
)
_NO_CHANGES: Final = Answer(
    ResponseCode.SYSTEM_ERROR,
    remark="Can't modify topic or subscription group from slave broker, "
    "please execute it from master broker.",
)
_REFUSED_BY_SLAVES: Final = {
    RequestCode.SEND_MESSAGE: _NO_MESSAGES,
    RequestCode.SEND_MESSAGE_V2: _NO_MESSAGES,
    RequestCode.SEND_BATCH_MESSAGE: _NO_MESSAGES,
    RequestCode.SEND_REPLY_MESSAGE: _NO_MESSAGES,
    RequestCode.SEND_REPLY_MESSAGE_V2: _NO_MESSAGES,
    RequestCode.CONSUMER_SEND_MSG_BACK: Answer(
        ResponseCode.SYSTEM_ERROR, remark="this broker is a slave and takes no messages"
    ),
    RequestCode.END_TRANSACTION: Answer(
        ResponseCode.SLAVE_NOT_AVAILABLE,
        remark="Message store is slave mode, so end transaction is forbidden. ",
    ),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _NO_CHANGES,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _NO_CHANGES,
    RequestCode.DELETE_TOPIC_IN_BROKER: _NO_CHANGES,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _NO_CHANGES,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _NO_CHANGES,
}
"""What a slave says instead of changing anything that only its master may change."""


def bulk_handlers(
    context: BrokerContext, sends: SendFastPath, pulls: PullFastPath
) -> dict[int, BulkHandler]:
    """Return the bulk handlers of a broker by request code; all else goes to processors only."""
    if context.is_slave:
        return {RequestCode.PULL_MESSAGE: pulls}
    return {
        RequestCode.SEND_MESSAGE_V2: sends,
        RequestCode.SEND_BATCH_MESSAGE: sends,
        RequestCode.PULL_MESSAGE: pulls,
    }


def _messages(context: BrokerContext) -> dict[int, Processor]:
    send, pull = SendProcessor(context), PullProcessor(context)
    offsets = OffsetProcessor(context)
    return {
        RequestCode.SEND_MESSAGE: send.send,
        RequestCode.SEND_MESSAGE_V2: send.send,
        RequestCode.SEND_BATCH_MESSAGE: send.send,
        RequestCode.PULL_MESSAGE: pull.pull,
        RequestCode.LITE_PULL_MESSAGE: pull.pull,
        RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
        RequestCode.GET_MAX_OFFSET: offsets.maximum,
        RequestCode.GET_MIN_OFFSET: offsets.minimum,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.by_time,
        RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.earliest_time,
    }


def _clients(context: BrokerContext) -> dict[int, Processor]:
    clients = ClientProcessor(context)
    return {
        RequestCode.HEART_BEAT: clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: clients.unregister,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
        RequestCode.CHECK_CLIENT_CONFIG: clients.check_config,
        RequestCode.LOCK_BATCH_MQ: clients.lock,
        RequestCode.UNLOCK_BATCH_MQ: clients.unlock,
    }


OPERATOR_CODES: Final = (
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
)
"""The requests of operators and their tools."""


OCCASIONAL_CODES: Final = (
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
)
"""The requests of clients that many brokers never get."""


def _operators(context: BrokerContext) -> dict[int, Processor]:
    def load() -> dict[int, Processor]:
        from flintmq.broker.processors.operator_table import operator_processors

        return operator_processors(context)

    return _late(OPERATOR_CODES, load)


def _occasional(context: BrokerContext) -> dict[int, Processor]:
    def load() -> dict[int, Processor]:
        from flintmq.broker.processors.occasional_table import occasional_processors

        return occasional_processors(context)

    return _late(OCCASIONAL_CODES, load)


def _late(codes: Iterable[int], load: Callable[[], dict[int, Processor]]) -> dict[int, Processor]:
    """Return processors that are loaded, all of them, at the first such request."""
    loaded = functools.cache(load)

    def late(code: int) -> Processor:
        return lambda request: loaded()[code](request)

    return {code: late(code) for code in codes}
