"""Storing messages: single ones and batches."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from flintmq.broker import half_messages
from flintmq.broker.batch_bodies import unpacked_batch
from flintmq.broker.put_answers import PUT_CODES, put_remark
from flintmq.broker.received_messages import received_message
from flintmq.broker.stored_answer import SharedAnswer, StoredAnswer
from flintmq.broker.stored_text import received_properties
from flintmq.broker.topics import TopicLimitError
from flintmq.format.codes import ResponseCode
from flintmq.format.errors import CompressionError
from flintmq.format.headers.send import SendMessageRequest
from flintmq.format.sys_flag import MULTI_TAGS
from flintmq.format.topic_names import name_fault
from flintmq.model.message import Message, MessageBatch
from flintmq.model.property_names import TRAN_MSG
from flintmq.model.topic_config import Perm, TopicConfig
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.format.headers.send_back import SendBackRequest
    from flintmq.model.group_config import GroupConfig
    from flintmq.store.results import PutResult

_WRITE: Final = int(Perm.WRITE)
"""As a plain number: a flag of an enum takes ten times as long to test."""
MAX_RECONSUME_SINCE: Final = 121
"""Requests of earlier releases do not say after how many times a message is dead."""


def reconsume_times_max(
    request: Request[SendMessageRequest] | Request[SendBackRequest], group: GroupConfig
) -> int:
    """Return after how many times a message of a group is dead: as asked for, else as set."""
    wanted = request.header.max_reconsume_times
    if wanted is not None and request.command.version >= MAX_RECONSUME_SINCE:
        return wanted
    return group.retry_max_times


class SendProcessor:
    """Stores what clients send."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._shared = SharedAnswer.of(parts.config)

    def send(self, request: Request[SendMessageRequest]) -> Answer | None:
        """Store a message or batch; the answer may have to wait for the disk."""
        header = request.header
        try:
            topic = self.checked_topic(request)
            queue_id = self.checked_queue_id(header, topic)
            result = self._put(request, topic, queue_id)
        except RefusedError as refusal:
            return Answer(refusal.code, self._always().header, refusal.remark)
        if result.ok and result.wait_for_flush:
            self._parts.puts.when_done(
                result, lambda final: request.answer(self._answer(final, header.topic, queue_id))
            )
            return None
        return self._answer(result, header.topic, queue_id)

    # -- checks ------------------------------------------------------------------------------

    def checked_topic(self, request: Request[SendMessageRequest]) -> TopicConfig:
        """Return the topic of a send, made if it may be; RefusedError if it may not be sent to."""
        parts, header = self._parts, request.header
        config = parts.config
        if parts.puts.waiting_count >= config.send_queue_capacity:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]the disk is slow: {parts.puts.waiting_count} messages wait for it, "
                f"sendThreadPoolQueueCapacity is {config.send_queue_capacity}",
            )
        if config.accept_sends_from_ms and parts.clock.now_ms() < config.accept_sends_from_ms:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {config.accept_sends_from_ms}",
            )
        if not parts.topics.may_be_sent_to(header.topic):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{header.topic}] is forbidden.",
            )
        topic = parts.topics.get(header.topic)
        if topic is None:
            topic = self._new_topic(header)
        if not config.permission & _WRITE and topic.order:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"the broker[{config.ip1}] sending message is forbidden"
            )
        return topic

    def _new_topic(self, header: SendMessageRequest) -> TopicConfig:
        fault = name_fault(header.topic)
        if fault is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, fault)
        topics = self._parts.topics
        try:
            made = topics.create_on_send(
                header.topic,
                header.default_topic,
                header.default_topic_queue_nums,
                unit=header.unit_mode,
            )
            if made is None and header.topic.startswith(RETRY_PREFIX):
                made = topics.ensure(header.topic, 1)
        except TopicLimitError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if made is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        return made

    def checked_queue_id(self, header: SendMessageRequest, topic: TopicConfig) -> int:
        """Return the queue of a send; a negative one is any that can be written to."""
        count = max(topic.write_queue_count, topic.read_queue_count)
        if header.queue_id >= count:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, {topic.name} has {count} queues",
            )
        if header.queue_id >= 0:
            return header.queue_id
        return random.randrange(max(topic.write_queue_count, 1))

    # -- storing -----------------------------------------------------------------------------

    def _put(
        self, request: Request[SendMessageRequest], topic: TopicConfig, queue_id: int
    ) -> PutResult:
        header = request.header
        sys_flag = header.sys_flag
        if topic.filter_type == "MULTI_TAG":
            sys_flag |= MULTI_TAGS
        properties, text = received_properties(header.properties, self._parts.config.cluster)
        if header.batch:
            return self._put_batch(request, queue_id, sys_flag, properties, text)
        target, queue_id = self._dead_letter_or(request, queue_id)
        message = received_message(
            Message,
            request,
            topic=target,
            queue_id=queue_id,
            sys_flag=sys_flag,
            properties=properties,
            text=text,
            store_host=self._parts.store_host,
        )
        if properties.get(TRAN_MSG, "").lower() == "true":
            config = self._parts.config
            if config.reject_transactions:
                raise RefusedError(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{config.ip1}] sending transaction message is forbidden",
                )
            message = half_messages.half_of(message)
        return self._parts.store.put(message)

    def _put_batch(
        self,
        request: Request[SendMessageRequest],
        queue_id: int,
        sys_flag: int,
        properties: dict[str, str],
        text: bytes,
    ) -> PutResult:
        header = request.header
        if header.topic.startswith(RETRY_PREFIX):
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {header.topic}",
            )
        batch = received_message(
            MessageBatch,
            request,
            topic=header.topic,
            queue_id=queue_id,
            sys_flag=sys_flag,
            properties=properties,
            text=text,
            store_host=self._parts.store_host,
        )
        store = self._parts.store
        try:
            batch = unpacked_batch(batch, limit=store.config.max_message_size)
        except CompressionError as error:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, f"batch refused: {error}") from error
        return store.put_batch(batch)

    def _dead_letter_or(
        self, request: Request[SendMessageRequest], queue_id: int
    ) -> tuple[str, int]:
        """Return where a message goes: a retry too many goes to the dead letters."""
        header = request.header
        if not header.topic.startswith(RETRY_PREFIX):
            return header.topic, queue_id
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._parts.groups.get(group)
        if config is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}",
            )
        if (header.reconsume_times or 0) < reconsume_times_max(request, config):
            return header.topic, queue_id
        dead = DLQ_PREFIX + group
        self._parts.topics.ensure(dead, 1)
        return dead, 0

    # -- answers -----------------------------------------------------------------------------

    def _always(self) -> SharedAnswer:
        config = self._parts.config
        if config is not self._shared.config:
            self._shared = SharedAnswer.of(config)
        return self._shared

    def _answer(self, result: PutResult, topic: str, queue_id: int) -> Answer:
        shared = self._always()
        if result.ok:
            code, remark = ResponseCode.SUCCESS, None
        else:
            code, remark = PUT_CODES[result.status], put_remark(result)
            if not result.status.stored:
                return Answer(code, shared.header, remark)
        self._parts.statistics.add_put(topic, result.message_count, result.size)
        return StoredAnswer(code, shared, remark, result, queue_id)
