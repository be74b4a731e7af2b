"""Whether a send may be stored, and where: the rules that every way of sending goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.broker.tables.topic_table import TopicLimitError
from flintmq.format.sys_flag import COMPRESSED, HOSTS_MASK, MULTI_TAGS, TRANSACTION_MASK
from flintmq.format.topic_names import name_fault
from flintmq.format.wire.codes import ResponseCode
from flintmq.model.topic_config import Perm
from flintmq.model.topics import RETRY_PREFIX
from flintmq.remoting import RefusedError
from flintmq.remoting.refusal_counts import STUCK_DISK, WAITING_SENDS

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.format.wire.headers.send import SendMessageRequest
    from flintmq.model.topic_config import TopicConfig

_WRITE: Final = int(Perm.WRITE)
"""As a plain number: a flag of an enum takes ten times as long to test."""
_MULTI_TAG: Final = "MULTI_TAG"


class AdmittedSend(NamedTuple):
    """What was found out about a send when it was admitted."""

    queue_id: int
    """The queue that was asked for, or the one that was chosen if none was."""
    sys_flag: int
    """The flags of the request and those that the topic adds."""


def admit_send(context: BrokerContext, header: SendMessageRequest) -> AdmittedSend:
    """Admit a send, with the topic made if it may be; raise RefusedError if it may not be stored.

    What it depends on are the settings, the topics and, for a broker that accepts sends only from
    some time on, the clock.  So a send with the same topic, queue and flags is admitted as well,
    for as long as settings and topics are the same.
    """
    _check_broker(context)
    topic = _checked_topic(context, header)
    queue_id = _checked_queue_id(header, topic)
    is_multi_tag = topic.filter_type == _MULTI_TAG
    return AdmittedSend(queue_id, header.sys_flag | MULTI_TAGS if is_multi_tag else header.sys_flag)


def check_batch(header: SendMessageRequest) -> None:
    """Raise RefusedError for a batch that goes where only single messages may go."""
    if header.topic.startswith(RETRY_PREFIX):
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"batch request does not support retry group {header.topic}",
        )


def check_transaction(context: BrokerContext) -> None:
    """Raise RefusedError if the broker takes no messages of transactions."""
    config = context.config
    if config.reject_transactions:
        raise RefusedError(
            ResponseCode.NO_PERMISSION,
            f"the broker[{config.ip1}] sending transaction message is forbidden",
        )


def check_disk(context: BrokerContext) -> None:
    """Raise RefusedError for a send that would wait for a disk that does nothing any more.

    That is so when an answer had to leave before its message was on the disk, until it is there;
    or when sends wait for the next file of the log for longer than `osPageCacheBusyTimeOutMills`.
    """
    if not context.config.fast_failure:
        return
    waited_ms = context.late_sends.waited_ms
    most_ms = context.store.config.page_cache_busy_timeout_ms
    if context.puts.is_disk_stuck:
        reason = "a message was not flushed in time"
    elif waited_ms > most_ms and not context.late_sends.is_retrying:
        reason = f"sends have waited for {waited_ms} ms for the next file of the log"
    else:
        return
    context.refused.note(STUCK_DISK)
    raise RefusedError(ResponseCode.SYSTEM_BUSY, f"[PCBUSY_CLEAN_QUEUE]the disk is stuck: {reason}")


def _check_broker(context: BrokerContext) -> None:
    config = context.config
    check_disk(context)
    if context.puts.waiting_count >= config.send_queue_capacity:
        context.refused.note(WAITING_SENDS)
        raise RefusedError(
            ResponseCode.SYSTEM_BUSY,
            f"[OVERLOAD]the disk is slow: {context.puts.waiting_count} messages wait for it, "
            f"sendThreadPoolQueueCapacity is {config.send_queue_capacity}",
        )
    if config.accept_sends_from_ms and context.clock.now_ms() < config.accept_sends_from_ms:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"broker unable to service, until {config.accept_sends_from_ms}",
        )


def _checked_topic(context: BrokerContext, header: SendMessageRequest) -> TopicConfig:
    config = context.config
    if not context.topics.may_be_sent_to(header.topic):
        raise RefusedError(
            ResponseCode.NO_PERMISSION,
            f"Sending message to topic[{header.topic}] is forbidden.",
        )
    topic = context.topics.get(header.topic)
    if topic is None:
        topic = _new_topic(context, header)
    if not config.permission & _WRITE and topic.order:
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"the broker[{config.ip1}] sending message is forbidden"
        )
    return topic


def _new_topic(context: BrokerContext, header: SendMessageRequest) -> TopicConfig:
    fault = name_fault(header.topic)
    if fault is not None:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, fault)
    try:
        made = context.topics.create_on_send(
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            unit=header.unit_mode,
        )
        if made is None and header.topic.startswith(RETRY_PREFIX):
            made = context.topics.ensure(header.topic, 1)
    except TopicLimitError as error:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
    if made is None:
        raise RefusedError(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{header.topic}] not exist, apply first please!",
        )
    return made


def _checked_queue_id(header: SendMessageRequest, topic: TopicConfig) -> int:
    """Return the queue of a send; a negative one is any that can be written to."""
    count = max(topic.write_queue_count, topic.read_queue_count)
    if header.queue_id >= count:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"request queueId[{header.queue_id}] is illegal, {topic.name} has {count} queues",
        )
    if header.queue_id >= 0:
        return header.queue_id
    import random  # Few senders leave the queue to the broker.

    return random.randrange(max(topic.write_queue_count, 1))


def has_plain_header(header: SendMessageRequest) -> bool:
    """Whether sends with this header can go with an append group, whatever they bring."""
    return (
        header.queue_id >= 0
        and not header.topic.startswith(RETRY_PREFIX)
        and not header.sys_flag & (TRANSACTION_MASK | HOSTS_MASK)
        and not (header.batch and header.sys_flag & COMPRESSED)
    )
