"""What a consumer tells operators who ask through its broker."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final, Protocol

from flintmq.client.handlers import ConsumeResult
from flintmq.client.received import received
from flintmq.format.bodies.dialect import Members, dumps_body, loads_body, queue_from
from flintmq.format.bodies.heartbeat import subscription_to_json
from flintmq.format.codes import RequestCode, ResponseCode
from flintmq.format.record import decode_record
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

    from flintmq.client.instance import ClientInstance
    from flintmq.client.messages import ReceivedMessage
    from flintmq.client.offset_store import OffsetStore
    from flintmq.client.process_queue import ProcessQueue
    from flintmq.model.message_queue import MessageQueue
    from flintmq.model.subscription import Subscription
    from flintmq.remoting import Request

STACK_SIZE_MAX: Final = 256 << 10


class ToldOf(Protocol):
    """A consumer, as far as operators are told of it."""

    group: str
    orderly: bool
    concurrency: int
    started_ms: int
    offsets: OffsetStore
    subscriptions: dict[str, Subscription]

    @property
    def model(self) -> Enum:
        """Whether members share the messages."""
        ...

    @property
    def client(self) -> ClientInstance:
        """The client it is a member of."""
        ...

    @property
    def held(self) -> Mapping[MessageQueue, ProcessQueue]:
        """What it holds of its queues."""
        ...

    async def drop(self, queue: MessageQueue) -> None:
        """Give a queue up."""
        ...

    async def hand_over(self, message: ReceivedMessage) -> ConsumeResult:
        """Call the handler for one message."""
        ...

    def suspend(self) -> None:
        """Pull nothing more."""
        ...

    def resume(self) -> None:
        """Go on."""
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
        await _reset(consumer, _offsets(request.body))
        return Answer()
    assert code == RequestCode.CONSUME_MESSAGE_DIRECTLY
    return await _consume_directly(consumer, request)


def _offsets(body: bytes) -> dict[MessageQueue, int]:
    """Return the queues of a reset; brokers send a map, to clients in C++ a list."""
    found = Members(loads_body(body), "a reset").get("offsetTable")
    if isinstance(found, list):
        return {queue_from(row): Members(row, "a reset").integer("offset", 0) for row in found}
    return {queue_from(key): int(value) for key, value in (found or {}).items()}


async def _reset(consumer: ToldOf, offsets: dict[MessageQueue, int]) -> None:
    consumer.suspend()
    try:
        for queue, offset in offsets.items():
            if queue in consumer.held:
                await consumer.drop(queue)
                consumer.offsets.update(queue, offset, increase_only=False)
                await consumer.offsets.persist([queue])
                consumer.offsets.forget(queue)
    finally:
        consumer.resume()


async def _consume_directly(consumer: ToldOf, request: Request[Any]) -> Answer:
    record = decode_record(request.body)
    message = received(record, request.header.broker_name or "")
    began = time.monotonic()
    result = await consumer.hand_over(message)
    body = {
        "autoCommit": True,
        "consumeResult": "CR_SUCCESS" if result is ConsumeResult.SUCCESS else "CR_LATER",
        "order": consumer.orderly,
        "spentTimeMills": round((time.monotonic() - began) * 1000),
    }
    return Answer(ResponseCode.SUCCESS, parts=[dumps_body(body)])


def running_info(consumer: ToldOf, *, with_stacks: bool) -> dict[str, Any]:
    """Return settings, queues and progress of a consumer."""
    client = consumer.client
    return {
        "jstack": _stacks() if with_stacks else None,
        "mqTable": {queue: _queue_info(consumer, queue) for queue in consumer.held},
        "properties": {
            "PROP_CLIENT_VERSION": "V4_9_8",
            "PROP_CONSUMEORDERLY": "true" if consumer.orderly else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": ";".join(client.servers.addresses),
            "PROP_THREADPOOL_CORE_SIZE": str(consumer.concurrency),
            "consumerGroup": consumer.group,
            "messageModel": consumer.model.value,
        },
        "statusTable": {},
        "subscriptionSet": [subscription_to_json(one) for one in consumer.subscriptions.values()],
    }


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
