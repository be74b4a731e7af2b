"""What a consumer tells operators who ask through its broker."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final, Protocol

from flintmq.client.received import received
from flintmq.format.bodies.dialect import Members, dumps_body, loads_body, queue_from
from flintmq.format.bodies.heartbeat import subscription_to_json
from flintmq.format.codes import RequestCode, ResponseCode
from flintmq.format.record import decode_record
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.client.consume_statistics import ConsumeStatistics
    from flintmq.client.handlers import Outcome
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messages import ReceivedMessage
    from flintmq.client.offset_store import OffsetStore
    from flintmq.client.process_queue import ProcessQueue
    from flintmq.client.push_settings import PushSettings
    from flintmq.client.sharing import SharingRules
    from flintmq.client.subscriptions import Subscriptions
    from flintmq.model.message_queue import MessageQueue
    from flintmq.remoting import Request

STACK_SIZE_MAX: Final = 256 << 10
REMARK_SIZE_MAX: Final = 1000


class ToldOf(Protocol):
    """A push consumer, as far as operators are told of it."""

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


async def serve_admin(consumer: ToldOf, request: Request[Any]) -> Answer:
    """Serve the four requests that concern a consumer group."""
    code = request.command.code
    if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        info = running_info(consumer, with_stacks=request.header.jstack_enable)
        return Answer(parts=[dumps_body(info)])
    if code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
        table = {
            queue: consumer.offsets.noted(queue) or 0
            for queue in consumer.held
            if queue.topic == request.header.topic
        }
        return Answer(parts=[dumps_body({"messageQueueTable": table})])
    if code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
        await consumer.move(_offsets(request.body))
        return Answer()
    assert code == RequestCode.CONSUME_MESSAGE_DIRECTLY
    return await _consume_directly(consumer, request)


def _offsets(body: bytes) -> dict[MessageQueue, int]:
    """Return the queues of a reset; brokers send a map, to clients in C++ a list."""
    found = Members(loads_body(body), "a reset").get("offsetTable")
    if isinstance(found, list):
        return {queue_from(row): Members(row, "a reset").integer("offset", 0) for row in found}
    return {queue_from(key): int(value) for key, value in (found or {}).items()}


async def _consume_directly(consumer: ToldOf, request: Request[Any]) -> Answer:
    record = decode_record(request.body)
    message = received(record, request.header.broker_name or "")
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


def running_info(consumer: ToldOf, *, with_stacks: bool) -> dict[str, Any]:
    """Return settings, queues and progress of a consumer."""
    return {
        "jstack": _stacks() if with_stacks else None,
        "mqTable": {queue: _queue_info(consumer, queue) for queue in consumer.held},
        "properties": _properties(consumer),
        "statusTable": consumer.statistics.table(),
        "subscriptionSet": [subscription_to_json(one) for one in consumer.topics],
    }


def _properties(consumer: ToldOf) -> dict[str, str]:
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


def _queue_info(consumer: ToldOf, queue: MessageQueue) -> dict[str, Any]:
    held = consumer.held[queue]
    low, high = held.bounds or (0, 0)
    return {
        "cachedMsgCount": held.count,
        "cachedMsgMaxOffset": high,
        "cachedMsgMinOffset": low,
        "cachedMsgSizeInMiB": held.size >> 20,
        "commitOffset": consumer.offsets.noted(queue) or 0,
        "droped": held.is_dropped,
        "lastConsumeTimestamp": held.last_consume_ms,
        "lastLockTimestamp": held.locked_ms,
        "lastPullTimestamp": held.last_pull_ms,
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
