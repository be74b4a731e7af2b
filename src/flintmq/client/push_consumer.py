"""Consuming messages as they come: the client pulls, a handler is called."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.client import push_settings as defaults
from flintmq.client.assignment import Assignment
from flintmq.client.client_user import ClientUser
from flintmq.client.concurrent_consuming import ConcurrentConsuming
from flintmq.client.consume_from import ConsumeFrom
from flintmq.client.consume_statistics import ConsumeStatistics
from flintmq.client.consume_trace import ConsumeTrace
from flintmq.client.errors import UsageError
from flintmq.client.handlers import Handler, HandlerRunner, Outcome
from flintmq.client.namespaces import wrap
from flintmq.client.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from flintmq.client.options import checked_group
from flintmq.client.orderly_consuming import OrderlyConsuming
from flintmq.client.push_settings import PushSettings
from flintmq.client.queue_locks import ClientQueueLocks
from flintmq.client.queue_pulling import PullRules, QueuePulling
from flintmq.client.received import opened
from flintmq.client.running_info import serve_admin
from flintmq.client.send_back import SendBack
from flintmq.client.sharing import MessageModel, SharingRules
from flintmq.client.strategies import Strategy, averagely
from flintmq.client.subscriptions import Subscriptions
from flintmq.client.wall_clock import wall_ms
from flintmq.format.bodies.heartbeat import CONSUME_TYPES, ConsumerData
from flintmq.model.subscription import TAG
from flintmq.model.topics import RETRY_PREFIX, TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from flintmq.client.assigned_queue import AssignedQueue
    from flintmq.client.consuming import Consuming
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messages import ReceivedMessage
    from flintmq.client.process_queue import ProcessQueue
    from flintmq.client.pulling import PullResult
    from flintmq.model.message_queue import MessageQueue
    from flintmq.model.subscription import Subscription
    from flintmq.remoting import Answer, Request

logger = logging.getLogger(__name__)


class AsyncPushConsumer(ClientUser):
    """Consumes topics for a group and calls a handler for each message.

    Use it as an async context manager.  ``subscriptions`` leads from topics to expressions:
    ``*``, tags with ``||`` between them, or SQL92 with that ``expression_type``.  ``handler`` is
    a coroutine function or a plain one, which then runs in a thread; with ``batch_size`` above 1
    it gets lists.  A message counts as consumed when the handler returns None or True; otherwise
    it comes again, later.  With ``orderly`` the messages of a queue are handed over one batch
    after the other, and one that fails holds the queue up.

    The settings are those of `PushSettings`; ``options`` are those of `ClientOptions`.
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
        concurrency: int = defaults.CONCURRENCY,
        batch_size: int = 1,
        pull_count: int = defaults.PULL_COUNT,
        queue_count_max: int = defaults.QUEUE_COUNT_MAX,
        queue_size_max: int = defaults.QUEUE_SIZE_MAX,
        span_max: int = defaults.SPAN_MAX,
        topic_count_max: int | None = None,
        topic_size_max: int | None = None,
        reconsume_times_max: int | None = None,
        suspend_queue_ms: int = defaults.SUSPEND_QUEUE_MS,
        local_retry_ms: int = defaults.LOCAL_RETRY_MS,
        consume_timeout_ms: int = defaults.CONSUME_TIMEOUT_MS,
        stop_timeout_ms: int = defaults.STOP_TIMEOUT_MS,
        strategy: Strategy = averagely,
        offset_directory: Path | None = None,
        trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        client: ClientInstance | None = None,
        **options: Any,
    ) -> None:
        if model is MessageModel.BROADCASTING and client is None:
            # The offsets of a broadcasting consumer are found again by this name.
            options.setdefault("instance_name", "DEFAULT")
        super().__init__(client, options)
        if not subscriptions:
            raise UsageError("a consumer needs at least one subscription")
        self.group = wrap(self.namespace, checked_group(group))
        self.settings = PushSettings(
            orderly=orderly,
            concurrency=concurrency,
            batch_size=batch_size,
            pull_count=pull_count,
            queue_count_max=queue_count_max,
            queue_size_max=queue_size_max,
            span_max=span_max,
            topic_count_max=topic_count_max,
            topic_size_max=topic_size_max,
            reconsume_times_max=reconsume_times_max,
            suspend_queue_ms=suspend_queue_ms,
            local_retry_ms=local_retry_ms,
            consume_timeout_ms=consume_timeout_ms,
            stop_timeout_ms=stop_timeout_ms,
        )
        self.rules = SharingRules(
            model=model,
            strategy=strategy,
            consume_from=consume_from,
            consume_timestamp_ms=consume_timestamp_ms,
        )
        self.topics = Subscriptions(self.namespace)
        for topic, expression in subscriptions.items():
            self.topics.add(topic, expression, expression_type)
        if self.rules.is_clustering:
            self.topics.add(RETRY_PREFIX + self.group)
        self._handler = handler
        self._offset_directory = offset_directory
        self._trace_topic = trace_topic if trace else None
        self._is_suspended = False
        self.started_ms = 0

    # -- lifetime ----------------------------------------------------------------------------

    async def _begin(self, client: ClientInstance) -> None:
        settings, is_clustering = self.settings, self.rules.is_clustering
        self._is_member = False
        self._trace: ConsumeTrace | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.statistics = ConsumeStatistics()
        self.offsets = self._make_offsets(client)
        self._runner = HandlerRunner(
            self._handler, thread_count=settings.concurrency, takes_list=settings.batch_size > 1
        )
        locks = ClientQueueLocks(client, self.group) if settings.orderly and is_clustering else None
        self._pulling = QueuePulling(client, self.group, self, PullRules(count=settings.pull_count))
        self._consuming = self._make_consuming(client)
        self._assignment = Assignment(
            client, self.group, self.rules, user=self, offsets=self.offsets, locks=locks
        )
        await self.offsets.load()
        await self.topics.check(client, self.group)
        await self.topics.compare(client, self.group)
        if self._trace is not None:
            await self._trace.start()
        client.add_consumer(self)
        self._is_member = True
        self.started_ms = wall_ms()
        await client.heartbeat()
        if locks is not None:
            self._spawn(self._assignment.renew_locks_forever())
        self._spawn(self._give_stuck_back_forever())
        await self.rebalance()

    def _make_offsets(self, client: ClientInstance) -> OffsetStore:
        if self.rules.is_clustering:
            return RemoteOffsets(client, self.group)
        root = self._offset_directory or Path.home() / ".rocketmq_offsets"
        return LocalOffsets(root / client.client_id / self.group / "flintmq-offsets.json")

    def _make_consuming(self, client: ClientInstance) -> Consuming:
        settings = self.settings
        send_back = None
        if self.rules.is_clustering:
            send_back = SendBack(client, self.group, times_max=settings.reconsume_times_max)
        if self._trace_topic is not None:
            self._trace = ConsumeTrace(self._runner, client, self.group, topic=self._trace_topic)
        kind: type[Consuming] = OrderlyConsuming if settings.orderly else ConcurrentConsuming
        return kind(
            self._trace or self._runner,
            settings,
            offsets=self.offsets,
            send_back=send_back,
            statistics=self.statistics,
        )

    async def _end(self, client: ClientInstance, *, is_failed: bool) -> None:
        """Finish what is at work, commit, hand the queues over and leave the group.

        What was not handled is delivered again, to this group or another member of it.
        """
        await self._assignment.stop_pulling()
        busy = await self._consuming.stop(self.settings.stop_timeout_ms)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._assignment.release(busy=busy)
        await self._pulling.close()
        if self._trace is not None:
            await self._trace.close()
        if self._is_member:
            await client.remove_consumer(self.group)
        # A thread whose handler came to no end cannot be waited for.
        await asyncio.to_thread(self._runner.close, wait=self._consuming.is_idle)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def suspend(self) -> None:
        """Pull nothing more for the time being; what is held is still consumed."""
        self._is_suspended = True

    def resume(self) -> None:
        """Go on."""
        self._is_suspended = False
        self.client.wake_rebalance()

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that this member has now."""
        return frozenset(self._assignment.queues)

    # -- ConsumerMember ----------------------------------------------------------------------

    def heartbeat_data(self) -> ConsumerData:
        """Return what brokers are told of the group."""
        return ConsumerData(
            group=self.group,
            consume_type=CONSUME_TYPES[1],
            message_model=self.rules.model.value,
            consume_from=self.rules.consume_from.value,
            subscriptions=tuple(self.topics),
        )

    async def rebalance(self) -> None:
        """Take up and give up queues as the members of the group share them."""
        if self._is_suspended:
            return
        if await self._assignment.rebalance(self.topics.names):
            await self.topics.compare(self.client, self.group)
            self.topics.renew()
            await self.client.heartbeat()

    async def persist_offsets(self) -> None:
        """Commit how far the group has come."""
        await self.offsets.persist(self.assigned)

    async def serve(self, request: Request[Any]) -> Answer:
        """Serve a broker's request that concerns the group."""
        return await serve_admin(self, request)

    @property
    def held(self) -> Mapping[MessageQueue, ProcessQueue]:
        """What this member holds of its queues."""
        return {queue: one.held for queue, one in self._assignment.queues.items()}

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Consume queues from given offsets on; those of other members are left alone."""
        await self._assignment.move(offsets)

    async def hand_over(self, message: ReceivedMessage) -> Outcome:
        """Call the handler for one message that did not come by a pull."""
        return await self._runner.run([opened(message, self.group, self.namespace)])

    # -- QueueUser and PullOwner -------------------------------------------------------------

    def begin(self, one: AssignedQueue) -> None:
        """Pull from a queue and consume it."""
        self._consuming.begin(one)
        self._pulling.begin(one)

    async def settle(self, one: AssignedQueue) -> bool:
        """Wait for what has to end before a dropped queue may be handed over."""
        return await self._consuming.settle(one)

    def subscription(self, topic: str) -> Subscription | None:
        """Return what is wanted of a topic."""
        return self.topics.get(topic)

    def commit_offset(self, queue: MessageQueue) -> int | None:
        """Return the offset that a pull commits on its way."""
        return self.offsets.noted(queue) if self.rules.is_clustering else None

    def is_paused(self, queue: MessageQueue) -> bool:
        """Whether a queue is not to be pulled from for the time being."""
        return self._is_suspended

    def is_full(self, one: AssignedQueue) -> bool:
        """Whether as much is held as may be."""
        held, settings = one.held, self.settings
        if not settings.orderly and held.span > settings.span_max:
            return True
        queues = 1
        if settings.topic_count_max is not None or settings.topic_size_max is not None:
            queues = sum(queue.topic == one.queue.topic for queue in self._assignment.queues)
        return held.count > settings.count_limit(queues) or held.size > settings.size_limit(queues)

    def arrived(self, one: AssignedQueue, result: PullResult) -> None:
        """Hold and consume what a pull has brought."""
        messages = result.messages
        offset = one.held.put(messages, next_offset=result.next_offset)
        if offset >= 0:
            self.offsets.update(one.queue, offset, increase_only=True)
        if messages:
            self.statistics.pulled(messages[0].topic, len(messages), result.elapsed_ms)
            self._consuming.arrived(one, messages)

    def moved(self, one: AssignedQueue, offset: int) -> None:
        """Begin a queue anew: the offset asked for was outside of it."""
        # Not from within: this is called by the task that pulls, and that is cancelled.
        self._spawn(self._assignment.move({one.queue: offset}, only=one))

    async def _give_stuck_back_forever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.consume_timeout_ms / 1000)
            await self._consuming.give_stuck_back(list(self._assignment.queues.values()))
