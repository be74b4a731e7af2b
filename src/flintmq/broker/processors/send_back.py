"""Messages that a consumer could not handle: again later, or to the dead letters."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flintmq.broker.processors.send import reconsume_times_max
from flintmq.broker.record_copies import copy_of
from flintmq.broker.sending.put_answers import put_remark
from flintmq.broker.statistics.broker_statistics import SEND_BACK_COUNT
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.send_back import SendBackRequest
from flintmq.model.message import PutMessage
from flintmq.model.property_names import DELAY, DELIVERY_TIMES, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT
from flintmq.model.topic_config import Perm, TopicSysFlag
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.format.stored.record import Record
    from flintmq.model.group_config import GroupConfig
    from flintmq.store.results import PutResult

FIRST_LEVEL: Final = 3
"""The delay level of the first time; each further one is a level higher."""


class SendBackProcessor:
    """Takes messages back."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def send_back(self, request: Request[SendBackRequest]) -> Answer | None:
        """Store a message for the group again."""
        context, header = self._context, request.header
        group = context.groups.get(header.group)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group}",
            )
        if not context.config.permission & Perm.WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{context.config.ip1}] sending message is forbidden",
            )
        if group.retry_queue_count <= 0:
            return Answer()
        self._check_retry_topic(group, is_unit=header.unit_mode)
        record = context.look(header.offset)
        if record is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        result = context.store.put(self._again(request, group, record))
        if not result.ok:
            return self._answer(result, record, header.group)
        context.puts.when_done(
            result,
            lambda final: request.answer(self._answer(final, record, header.group)),
            must_wait=True,
        )
        return None

    def _check_retry_topic(self, group: GroupConfig, *, is_unit: bool) -> None:
        flag = TopicSysFlag.UNIT_SUB if is_unit else TopicSysFlag.NONE
        topic = self._context.topics.ensure(
            RETRY_PREFIX + group.name, group.retry_queue_count, sys_flag=int(flag)
        )
        if not topic.perm & Perm.WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden"
            )

    def _again(
        self, request: Request[SendBackRequest], group: GroupConfig, record: Record
    ) -> PutMessage:
        header = request.header
        properties = record.properties
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties[WAIT] = "false"
        for name in DELIVERY_TIMES:
            properties.pop(name, None)
        origin = properties.get(ORIGIN_MESSAGE_ID, "")
        if not origin.strip():
            properties[ORIGIN_MESSAGE_ID] = record.message_id
        times_max = reconsume_times_max(request, group)
        if record.reconsume_times >= times_max or header.delay_level < 0:
            topic, queue_id = DLQ_PREFIX + group.name, 0
            self._context.topics.ensure(topic, 1)
            properties[DELAY] = "0"
        else:
            topic = RETRY_PREFIX + group.name
            queue_id = random.randrange(group.retry_queue_count)
            level = header.delay_level or FIRST_LEVEL + record.reconsume_times
            properties[DELAY] = str(level)
        return replace(
            copy_of(record, properties),
            topic=topic,
            queue_id=queue_id,
            reconsume_times=record.reconsume_times + 1,
        )

    def _answer(self, result: PutResult, record: Record, group: str) -> Answer:
        if not result.ok:
            return Answer(ResponseCode.SYSTEM_ERROR, remark=put_remark(result))
        topic = record.properties.get(RETRY_TOPIC, record.topic)
        self._context.statistics.add(SEND_BACK_COUNT, f"{topic}@{group}", 1)
        return Answer()
