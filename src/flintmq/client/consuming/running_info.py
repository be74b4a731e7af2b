"""Answers of a consumer to operators, whose requests come through its broker."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.client.messaging.message_decoding import decode_message
from flintmq.client.wall_clock import wall_time_of
from flintmq.format.stored.record import decode_record
from flintmq.format.wire.bodies.dialect import Members, dumps_body, loads_body, queue_from
from flintmq.format.wire.bodies.heartbeat import subscription_to_json
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.clients import (
    ConsumeDirectlyRequest,
    ConsumerRunningInfoRequest,
    ConsumerStatusRequest,
    ResetOffsetRequest,
)
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.client.assigning.offset_store import OffsetStore
    from flintmq.client.assigning.process_queue import ProcessQueue
    from flintmq.client.assigning.sharing import SharingRules
    from flintmq.client.assigning.subscriptions import Subscriptions
    from flintmq.client.consuming.consume_statistics import ConsumeStatistics
    from flintmq.client.consuming.handlers import Outcome
    from flintmq.client.consuming.push_settings import PushSettings
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.format.wire.headers.codec import Header
    from flintmq.model.message_queue import MessageQueue
    from flintmq.remoting import Request

STACK_SIZE_MAX: Final = 256 << 10
REMARK_SIZE_MAX: Final = 1000


class ReportedConsumer(Protocol):
    """The part of a push consumer that operators can ask for and change."""

    group: str
    settings: PushSettings
    rules: SharingRules
    started_ms: int
    offsets: OffsetStore
    topics: Subscriptions
    statistics: ConsumeStatistics

    @property
    def client(self) -> ClientInstance:
        """The client it is a member of."""
        ...

    @property
    def held(self) -> Mapping[MessageQueue, ProcessQueue]:
        """What it holds of its queues."""
        ...

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Consume queues from given offsets on."""
        ...

    async def hand_over(self, message: ReceivedMessage) -> Outcome:
        """Call the handler for one message."""
        ...


async def serve_admin(consumer: ReportedConsumer, request: Request[Header]) -> Answer:
    """Serve the four requests that concern a consumer group."""
    header = request.header
    if isinstance(header, ConsumerRunningInfoRequest):
        info = running_info(consumer, with_stacks=header.jstack_enable)
        return Answer(parts=[dumps_body(info)])
    if isinstance(header, ConsumerStatusRequest):
        table = {
            queue: consumer.offsets.noted(queue) or 0
            for queue in consumer.held
            if queue.topic == header.topic
        }
        return Answer(parts=[dumps_body({"messageQueueTable": table})])
    if isinstance(header, ResetOffsetRequest):
        await consumer.move(_offsets(request.body))
        return Answer()
    assert isinstance(header, ConsumeDirectlyRequest)
    return await _consume_directly(consumer, request.body, header.broker_name or "")


def _offsets(body: bytes) -> dict[MessageQueue, int]:
    """Return the queues of a reset; brokers send a map, to clients in C++ a list."""
    found = Members(loads_body(body), "a reset").get("offsetTable")
    if isinstance(found, list):
        return {queue_from(row): Members(row, "a reset").integer("offset", 0) for row in found}
    return {queue_from(key): int(value) for key, value in (found or {}).items()}


async def _consume_directly(consumer: ReportedConsumer, stored: bytes, broker_name: str) -> Answer:
    message = decode_message(decode_record(stored), broker_name)
    began = time.monotonic()
    outcome = await consumer.hand_over(message)
    if outcome.error is not None:
        result = "CR_THROW_EXCEPTION"
    else:
        result = "CR_SUCCESS" if outcome.is_success else "CR_LATER"
    body = {
        "autoCommit": True,
        "consumeResult": result,
        "order": consumer.settings.orderly,
        "remark": None if outcome.error is None else repr(outcome.error)[:REMARK_SIZE_MAX],
        "spentTimeMills": round((time.monotonic() - began) * 1000),
    }
    return Answer(ResponseCode.SUCCESS, parts=[dumps_body(body)])


def running_info(consumer: ReportedConsumer, *, with_stacks: bool) -> dict[str, object]:
    """Return settings, queues and progress of a consumer."""
    return {
        "jstack": _stacks() if with_stacks else None,
        "mqTable": {queue: _queue_info(consumer, queue) for queue in consumer.held},
        "properties": _properties(consumer),
        "statusTable": consumer.statistics.table(),
        "subscriptionSet": [subscription_to_json(one) for one in consumer.topics],
    }


def _properties(consumer: ReportedConsumer) -> dict[str, str]:
    """Return the settings as text, by the names that operators' tools know."""
    settings, rules = consumer.settings, consumer.rules
    values = {
        "PROP_CLIENT_VERSION": "V4_9_8",
        "PROP_CONSUMEORDERLY": settings.orderly,
        "PROP_CONSUMER_START_TIMESTAMP": consumer.started_ms,
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_NAMESERVER_ADDR": ";".join(consumer.client.servers.addresses),
        "PROP_THREADPOOL_CORE_SIZE": settings.concurrency,
        "consumeConcurrentlyMaxSpan": settings.span_max,
        "consumeFromWhere": rules.consume_from.value,
        "consumeMessageBatchMaxSize": settings.batch_size,
        "consumeThreadMax": settings.concurrency,
        "consumeThreadMin": settings.concurrency,
        "consumeTimeout": settings.consume_timeout_ms // 60_000,
        "consumerGroup": consumer.group,
        "maxReconsumeTimes": _or_minus_one(settings.reconsume_times_max),
        "messageModel": rules.model.value,
        "pullBatchSize": settings.pull_count,
        "pullThresholdForQueue": settings.queue_count_max,
        "pullThresholdForTopic": _or_minus_one(settings.topic_count_max),
        "pullThresholdSizeForQueue": settings.queue_size_max >> 20,
        "suspendCurrentQueueTimeMillis": settings.suspend_queue_ms,
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }


def _or_minus_one(value: int | None) -> int:
    return -1 if value is None else value


def _queue_info(consumer: ReportedConsumer, queue: MessageQueue) -> dict[str, object]:
    held = consumer.held[queue]
    low, high = held.bounds or (0, 0)
    return {
        "cachedMsgCount": held.count,
        "cachedMsgMaxOffset": high,
        "cachedMsgMinOffset": low,
        "cachedMsgSizeInMiB": held.size >> 20,
        "commitOffset": consumer.offsets.noted(queue) or 0,
        "droped": held.is_dropped,
        "lastConsumeTimestamp": wall_time_of(held.last_consume_ms),
        "lastLockTimestamp": wall_time_of(held.locked_ms) if held.is_locked else 0,
        "lastPullTimestamp": wall_time_of(held.last_pull_ms),
        "locked": held.is_locked,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _stacks() -> str:
    """Return what all threads and tasks of this process are doing."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}")
    for task in asyncio.all_tasks():
        frames = "".join(f"  {frame}\n" for frame in task.get_stack(limit=8))
        parts.append(f"task {task.get_name()}\n{frames}")
    return "\n".join(parts)[:STACK_SIZE_MAX]
