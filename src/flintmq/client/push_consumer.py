"""Consuming messages as they come: the client pulls, a handler is called."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from flintmq.client.consume_from import ConsumeFrom, QueueBounds
from flintmq.client.errors import ClientError, FlowControlError, UsageError
from flintmq.client.handlers import ConsumeResult, Handler, HandlerRunner
from flintmq.client.instance import ClientInstance
from flintmq.client.namespaces import unwrap, wrap
from flintmq.client.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from flintmq.client.options import ClientOptions, checked_group
from flintmq.client.process_queue import NOTHING, ProcessQueue
from flintmq.client.pulling import PULL_COUNT, Puller, PullResult, PullStatus
from flintmq.client.queue_locks import RENEW_INTERVAL_MS, ClientQueueLocks
from flintmq.client.rebalance import decide
from flintmq.client.running_info import serve_admin
from flintmq.client.send_back import SendBack
from flintmq.client.strategies import Strategy, allocate, averagely
from flintmq.format.bodies.dialect import Members, loads_body
from flintmq.format.bodies.heartbeat import CONSUME_TYPES, ConsumerData
from flintmq.format.codes import RequestCode
from flintmq.format.headers.clients import ConsumerGroupRequest
from flintmq.format.subscription import ExpressionError, build_subscription
from flintmq.model import property_names as names
from flintmq.model.subscription import TAG
from flintmq.model.topics import RETRY_PREFIX
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from flintmq.client.messages import ReceivedMessage
    from flintmq.model.message_queue import MessageQueue
    from flintmq.model.subscription import Subscription
    from flintmq.remoting import Answer, Request

logger = logging.getLogger(__name__)

CONCURRENCY: Final = 20
QUEUE_COUNT_MAX: Final = 1000
QUEUE_SIZE_MAX: Final = 100 << 20
SPAN_MAX: Final = 2000
ERROR_PAUSE_MS: Final = 1000
FLOW_PAUSE_MS: Final = 50
BUSY_PAUSE_MS: Final = 20
LOCAL_RETRY_MS: Final = 5000
STOP_TIMEOUT_MS: Final = 30_000
SUSPEND_QUEUE_MS: Final = 1000
LOCK_RETRY_MS: Final = 100


class MessageModel(Enum):
    """Who gets a message: one member of the group, or every one."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(slots=True)
class _Assigned:
    """A queue that this member consumes."""

    queue: MessageQueue
    held: ProcessQueue
    next_offset: int
    pulling: asyncio.Task[None] | None = None
    consuming: asyncio.Task[None] | None = None
    arrived: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class AsyncPushConsumer:
    """Consumes topics for a group and calls a handler for each message.

    Use it as an async context manager.  ``handler`` is a coroutine function or a plain one, which
    then runs in a thread; with ``batch_size`` above 1 it gets lists.  A message counts as
    consumed when the handler returns None or True; otherwise it comes again, later.  With
    ``orderly`` the messages of a queue are handed over one batch after the other, and one that
    fails holds the queue up.
    """

    def __init__(
        self,
        *,
        group: str,
        subscriptions: Mapping[str, str],
        handler: Handler,
        expression_type: str = TAG,
        orderly: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        concurrency: int = CONCURRENCY,
        batch_size: int = 1,
        pull_count: int = PULL_COUNT,
        queue_count_max: int = QUEUE_COUNT_MAX,
        queue_size_max: int = QUEUE_SIZE_MAX,
        span_max: int = SPAN_MAX,
        reconsume_times_max: int | None = None,
        strategy: Strategy = averagely,
        offset_directory: Path | None = None,
        client: ClientInstance | None = None,
        **options: Any,
    ) -> None:
        if client is not None and options:
            raise UsageError("options belong to the client that is shared")
        for name, value in (
            ("concurrency", concurrency),
            ("batch_size", batch_size),
            ("pull_count", pull_count),
            ("queue_count_max", queue_count_max),
            ("queue_size_max", queue_size_max),
            ("span_max", span_max),
        ):
            if value <= 0:
                raise UsageError(f"{name} must be positive")
        if not subscriptions:
            raise UsageError("a consumer needs at least one subscription")
        if model is MessageModel.BROADCASTING and "instance_name" not in options and client is None:
            # The offsets of a broadcasting consumer are found again by this name.
            options["instance_name"] = "DEFAULT"
        self._options = client.options if client is not None else ClientOptions(**options)
        self.namespace = self._options.namespace
        self.group = wrap(self.namespace, checked_group(group))
        self.orderly = orderly
        self.model = model
        self.consume_from = consume_from
        self._timestamp_ms = consume_timestamp_ms
        self.concurrency = concurrency
        self._batch_size = batch_size
        self._pull_count = pull_count
        self._queue_count_max = queue_count_max
        self._queue_size_max = queue_size_max
        self._span_max = span_max
        self._times_max = reconsume_times_max
        self._strategy = strategy
        self._offset_directory = offset_directory
        self._handler = handler
        self._shared = client
        self._expression_type = expression_type
        self.subscriptions: dict[str, Subscription] = {}
        for topic, expression in subscriptions.items():
            self._subscribe(topic, expression)
        self.assigned: dict[MessageQueue, _Assigned] = {}
        self.is_paused = False
        self.started_ms = 0
        self._is_stopping = False
        self._sharing = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._work: set[asyncio.Task[None]] = set()
        self._client: ClientInstance | None = None

    def _subscribe(self, topic: str, expression: str) -> None:
        wrapped = wrap(self.namespace, topic)
        try:
            self.subscriptions[wrapped] = build_subscription(
                wrapped, expression, self._expression_type, version=_now_ms()
            )
        except ExpressionError as error:
            raise UsageError(f"{topic}: {error}") from error

    # -- lifetime ----------------------------------------------------------------------------

    @property
    def client(self) -> ClientInstance:
        """The client this consumer is a member of."""
        if self._client is None:
            raise UsageError("the consumer is not open: use it in an async with statement")
        return self._client

    async def start(self) -> Self:
        """Join the group and begin; `close` ends it."""
        if self._client is not None:
            raise UsageError("the consumer is open already")
        client = self._shared
        if client is None:
            client = await self._stack.enter_async_context(ClientInstance(self._options))
        self._client = client
        is_cluster = self.model is MessageModel.CLUSTERING
        if is_cluster:
            retry = RETRY_PREFIX + self.group
            self.subscriptions[retry] = build_subscription(retry, "*", version=_now_ms())
        self.offsets = self._make_offsets(client)
        await self.offsets.load()
        self._runner = HandlerRunner(
            self._handler, concurrency=self.concurrency, takes_list=self._batch_size > 1
        )
        self._puller = Puller(client, self.group)
        self._bounds = QueueBounds(client)
        self._send_back = SendBack(client, self.group, times_max=self._times_max)
        self._locks = ClientQueueLocks(client, self.group)
        for topic in self.subscriptions:
            await client.routes.subscribe_queues(topic)
        client.add_consumer(self)
        self.started_ms = _now_ms()
        await client.heartbeat()
        if self.orderly and is_cluster:
            self._spawn(self._renew_locks())
        await self.rebalance()
        return self

    def _make_offsets(self, client: ClientInstance) -> OffsetStore:
        if self.model is MessageModel.CLUSTERING:
            return RemoteOffsets(client, self.group)
        root = self._offset_directory or Path.home() / ".rocketmq_offsets"
        return LocalOffsets(root / client.client_id / self.group / "flintmq-offsets.json")

    async def close(self) -> None:
        """Finish what is at work, commit, hand the queues over and leave the group.

        What was not handled is delivered again, to this group or another member of it.
        """
        if self._client is None:
            return
        self._is_stopping = True
        client = self._client
        queues = list(self.assigned)
        for one in list(self.assigned.values()):
            if one.pulling is not None:
                one.pulling.cancel()
        consuming = [one.consuming for one in self.assigned.values() if one.consuming is not None]
        busy = [*self._work, *consuming]
        for one in self.assigned.values():
            one.arrived.set()
        if busy:
            await asyncio.wait(busy, timeout=STOP_TIMEOUT_MS / 1000)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
        async with self._sharing:
            for one in self.assigned.values():
                one.held.is_dropped = True
            await self.offsets.persist(queues)
        if self.orderly and self.model is MessageModel.CLUSTERING:
            await self._locks.unlock(queues)
        self.assigned.clear()
        await client.remove_consumer(self.group)
        self._client = None
        await asyncio.to_thread(self._runner.close)
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A cancelled user must not keep the queues from being handed over.
        await asyncio.shield(self.close())

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def suspend(self) -> None:
        """Pull nothing more for the time being; what is held is still consumed."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on."""
        self.is_paused = False
        self.client.wake_rebalance()

    @property
    def held(self) -> Mapping[MessageQueue, ProcessQueue]:
        """What this member holds of its queues."""
        return {queue: one.held for queue, one in self.assigned.items()}

    # -- ConsumerMember ----------------------------------------------------------------------

    def heartbeat_data(self) -> ConsumerData:
        """Return what brokers are told of the group."""
        return ConsumerData(
            group=self.group,
            consume_type=CONSUME_TYPES[1],
            message_model=self.model.value,
            consume_from=self.consume_from.value,
            subscriptions=tuple(self.subscriptions.values()),
        )

    async def persist_offsets(self) -> None:
        """Commit how far the group has come."""
        await self.offsets.persist(list(self.assigned))

    async def serve(self, request: Request[Any]) -> Answer:
        """Serve a broker's request that concerns the group."""
        return await serve_admin(self, request)

    async def hand_over(self, message: ReceivedMessage) -> ConsumeResult:
        """Call the handler for one message that did not come by a pull."""
        return await self._runner.run([message])

    # -- sharing queues ----------------------------------------------------------------------

    async def rebalance(self) -> None:
        """Take up and give up queues as the members of the group share them."""
        # A notice of the broker may come while the queues are being shared out already.
        async with self._sharing:
            await self._rebalance()

    async def _rebalance(self) -> None:
        if self.is_paused or self._is_stopping:
            return
        changed = False
        for topic in list(self.subscriptions):
            try:
                assigned = await self._share(topic)
            except (ClientError, RemotingError) as error:
                logger.debug("queues not shared out: topic=%s reason=%s", topic, error)
                continue
            if assigned is not None and not self._is_stopping:
                changed |= await self._apply(topic, assigned)
        if changed:
            version = _now_ms()
            self.subscriptions = {
                topic: dataclasses.replace(one, version=version)
                for topic, one in self.subscriptions.items()
            }
            await self.client.heartbeat()

    async def _share(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of this member; None if that cannot be told now."""
        client = self.client
        queues = await client.routes.subscribe_queues(topic)
        if self.model is MessageModel.BROADCASTING:
            return queues
        address = client.routes.any_broker(topic)
        if not queues or address is None:
            return None
        header = ConsumerGroupRequest(consumer_group=self.group)
        answer = await client.call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        ids = Members(loads_body(answer.body), "members of a group").items("consumerIdList")
        return allocate(self._strategy, client.client_id, queues, list(map(str, ids)))

    async def _apply(self, topic: str, assigned: Sequence[MessageQueue]) -> bool:
        change = decide(topic, self.held, assigned, now_ms=_now_ms())
        for queue in change.dropped:
            await self.drop(queue)
        added = list(change.added)
        if self.orderly and self.model is MessageModel.CLUSTERING and added:
            granted = await self._locks.lock(added)
            added = [queue for queue in added if queue in granted]
        for queue in added:
            await self._take_up(queue)
        return bool(change.dropped or added)

    async def drop(self, queue: MessageQueue) -> None:
        """Give a queue up: finish the batch at work in it, commit and unlock it."""
        one = self.assigned.pop(queue, None)
        if one is None:
            return
        one.held.is_dropped = True
        if one.pulling is not None:
            one.pulling.cancel()
        one.arrived.set()
        if one.consuming is not None:
            # Order is only kept if the next owner starts behind what is at work here.
            await asyncio.wait([one.consuming], timeout=STOP_TIMEOUT_MS / 1000)
        await self.offsets.persist([queue])
        self.offsets.forget(queue)
        if self.orderly and self.model is MessageModel.CLUSTERING:
            await self._locks.unlock([queue])

    async def _take_up(self, queue: MessageQueue) -> None:
        self.offsets.forget(queue)
        try:
            committed = await self.offsets.read(queue)
            start = await self._bounds.start(
                queue, committed, self.consume_from, self._timestamp_ms
            )
        except (ClientError, RemotingError) as error:
            logger.warning("queue not taken up: queue=%s reason=%s", queue, error)
            return
        held = ProcessQueue(now_ms=_now_ms())
        held.is_locked, held.locked_ms = self.orderly, _now_ms()
        one = _Assigned(queue, held, start)
        self.assigned[queue] = one
        one.pulling = asyncio.create_task(self._pull_forever(one), name=f"pull {queue}")
        if self.orderly:
            one.consuming = asyncio.create_task(self._consume_in_order(one), name=f"use {queue}")

    async def _renew_locks(self) -> None:
        while not self._is_stopping:
            await asyncio.sleep(RENEW_INTERVAL_MS / 1000)
            granted = await self._locks.lock(list(self.assigned))
            for queue, one in self.assigned.items():
                one.held.is_locked = queue in granted
                if one.held.is_locked:
                    one.held.locked_ms = _now_ms()
                    one.arrived.set()

    # -- pulling -----------------------------------------------------------------------------

    def _is_full(self, held: ProcessQueue) -> bool:
        return (
            held.count > self._queue_count_max
            or held.size > self._queue_size_max
            or (not self.orderly and held.span > self._span_max)
        )

    async def _pull_forever(self, one: _Assigned) -> None:
        while not one.held.is_dropped:
            one.held.last_pull_ms = _now_ms()
            pause_ms = 0
            if self.is_paused:
                pause_ms = ERROR_PAUSE_MS
            elif self._is_full(one.held):
                pause_ms = FLOW_PAUSE_MS
            else:
                pause_ms = await self._pull(one)
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)

    async def _pull(self, one: _Assigned) -> int:
        """Pull once; return how long to wait before the next time."""
        commit = None
        if self.model is MessageModel.CLUSTERING:
            commit = self.offsets.noted(one.queue)
        try:
            result = await self._puller.pull(
                one.queue,
                one.next_offset,
                self.subscriptions[one.queue.topic],
                count_max=self._pull_count,
                commit_offset=commit,
            )
        except FlowControlError:
            return BUSY_PAUSE_MS
        except (ClientError, RemotingError) as error:
            logger.debug("pull failed: queue=%s reason=%s", one.queue, error)
            return ERROR_PAUSE_MS
        if not one.held.is_dropped:
            await self._take(one, result)
        return 0

    async def _take(self, one: _Assigned, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._correct(one, result.next_offset)
            return
        one.next_offset = result.next_offset
        if not result.messages:
            if not one.held.count:
                self.offsets.update(one.queue, result.next_offset, increase_only=True)
            return
        messages = [self._opened(message, result) for message in result.messages]
        one.held.put(messages)
        if self.orderly:
            one.arrived.set()
            return
        for at in range(0, len(messages), self._batch_size):
            self._spawn(self._consume(one, messages[at : at + self._batch_size]))

    def _opened(self, message: ReceivedMessage, result: PullResult) -> ReceivedMessage:
        """Return a message as the user sees it: its own topic, without a namespace."""
        topic = message.topic
        if topic == RETRY_PREFIX + self.group:
            topic = message.properties.get(names.RETRY_TOPIC, topic)
        properties = {
            **message.properties,
            names.MIN_OFFSET: str(result.min_offset),
            names.MAX_OFFSET: str(result.max_offset),
        }
        return dataclasses.replace(
            message, topic=unwrap(self.namespace, topic), properties=properties
        )

    async def _correct(self, one: _Assigned, offset: int) -> None:
        """Go on where the broker says: the offset was outside of the queue."""
        logger.warning(
            "offset corrected: queue=%s from=%d to=%d", one.queue, one.next_offset, offset
        )
        one.next_offset = offset
        one.held.clear()
        self.offsets.update(one.queue, offset, increase_only=False)
        await self.offsets.persist([one.queue])

    # -- concurrent consumption --------------------------------------------------------------

    async def _consume(self, one: _Assigned, messages: Sequence[ReceivedMessage]) -> None:
        waiting = list(messages)
        while waiting and not one.held.is_dropped and not self._is_stopping:
            result = await self._runner.run(waiting)
            one.held.last_consume_ms = _now_ms()
            if one.held.is_dropped:
                return  # Another member has the queue now, and gets the messages again.
            failed = [] if result is ConsumeResult.SUCCESS else waiting
            kept = await self._give_back(failed)
            done = [message for message in waiting if message not in kept]
            if done:
                offset = one.held.remove(done)
                if offset != NOTHING and not one.held.is_dropped:
                    self.offsets.update(one.queue, offset, increase_only=True)
            waiting = [
                dataclasses.replace(message, reconsume_times=message.reconsume_times + 1)
                for message in kept
            ]
            if waiting:
                await asyncio.sleep(LOCAL_RETRY_MS / 1000)

    async def _give_back(self, failed: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Give failed messages back; return those that have to be tried here again."""
        if self.model is MessageModel.BROADCASTING:
            for message in failed:
                logger.warning("message dropped after a failure: id=%s", message.message_id)
            return []
        return [message for message in failed if not await self._send_back.give(message)]

    # -- orderly consumption -----------------------------------------------------------------

    def _may_consume(self, one: _Assigned) -> bool:
        return self.model is MessageModel.BROADCASTING or one.held.is_lock_valid(_now_ms())

    async def _consume_in_order(self, one: _Assigned) -> None:
        while not one.held.is_dropped and not self._is_stopping:
            if not self._may_consume(one):
                granted = await self._locks.lock([one.queue])
                one.held.is_locked = one.queue in granted
                one.held.locked_ms = _now_ms()
                if not one.held.is_locked:
                    await asyncio.sleep(LOCK_RETRY_MS / 1000)
                continue
            messages = one.held.take(self._batch_size)
            if not messages:
                one.arrived.clear()
                await one.arrived.wait()
                continue
            await self._consume_taken(one, messages)

    async def _consume_taken(self, one: _Assigned, messages: Sequence[ReceivedMessage]) -> None:
        result = await self._runner.run(messages)
        one.held.last_consume_ms = _now_ms()
        if result is ConsumeResult.SUCCESS or await self._all_buried(messages):
            offset = one.held.commit()
            # What is handled is committed, also when the queue is being given up meanwhile.
            if offset != NOTHING:
                self.offsets.update(one.queue, offset, increase_only=False)
            return
        one.held.put_back(
            [
                dataclasses.replace(message, reconsume_times=message.reconsume_times + 1)
                for message in messages
            ]
        )
        await asyncio.sleep(SUSPEND_QUEUE_MS / 1000)

    async def _all_buried(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Whether all messages have failed too often and are with the dead letters now."""
        if self._times_max is None or self.model is MessageModel.BROADCASTING:
            return False
        if any(message.reconsume_times < self._times_max for message in messages):
            return False
        return all([await self._send_back.bury(message) for message in messages])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
