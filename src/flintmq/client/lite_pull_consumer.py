"""Consuming messages when one asks for them: the client pulls ahead, `poll` hands over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from flintmq.client import poll_cache as defaults
from flintmq.client.assignment import Assignment
from flintmq.client.client_user import ClientUser
from flintmq.client.consume_from import ConsumeFrom, QueueBounds
from flintmq.client.errors import UsageError
from flintmq.client.namespaces import wrap
from flintmq.client.offset_store import RemoteOffsets
from flintmq.client.options import checked_group
from flintmq.client.poll_cache import PollCache, PollLimits
from flintmq.client.queue_pulling import PullRules, QueuePulling
from flintmq.client.sharing import MessageModel, SharingRules
from flintmq.client.strategies import Strategy, averagely
from flintmq.client.subscriptions import Subscriptions
from flintmq.format.bodies.heartbeat import CONSUME_FROM, CONSUME_TYPES, ConsumerData
from flintmq.format.codes import ResponseCode
from flintmq.model.subscription import EVERYTHING, TAG
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from flintmq.client.assigned_queue import AssignedQueue
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messages import ReceivedMessage
    from flintmq.client.pulling import PullResult
    from flintmq.model.message_queue import MessageQueue
    from flintmq.model.subscription import Subscription
    from flintmq.remoting import Request

POLL_TIMEOUT_MS: Final = 5000
POLL_COUNT: Final = 32
PULL_COUNT: Final = 32
SUSPEND_MS: Final = 20_000


class AsyncLitePullConsumer(ClientUser):
    """Consumes queues at the pace of its user.  Use it as an async context manager.

    With ``subscriptions`` the members of the group share the queues; without, `assign` names
    them.  `poll` returns the next messages of one queue; ``async for`` gives them one by one.

    Messages count as consumed when the next ones are asked for.  With ``auto_commit`` that is
    committed every few seconds and at the end; if the user's block ends with an exception, the
    messages given last do not count.  Without it, `commit` says that everything given so far is
    consumed.
    """

    def __init__(
        self,
        *,
        group: str,
        subscriptions: Mapping[str, str] | None = None,
        expression_type: str = TAG,
        auto_commit: bool = True,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        pull_count: int = PULL_COUNT,
        queue_count_max: int = defaults.QUEUE_COUNT_MAX,
        queue_size_max: int = defaults.QUEUE_SIZE_MAX,
        total_count_max: int = defaults.TOTAL_COUNT_MAX,
        strategy: Strategy = averagely,
        client: ClientInstance | None = None,
        **options: Any,
    ) -> None:
        super().__init__(client, options, stream=True)
        if pull_count <= 0:
            raise UsageError("pull_count must be positive")
        self.group = wrap(self.namespace, checked_group(group))
        self.rules = SharingRules(
            strategy=strategy,
            consume_from=consume_from,
            consume_timestamp_ms=consume_timestamp_ms,
            commits_start=auto_commit,
        )
        self._auto_commit = auto_commit
        self._pull_rules = PullRules(count=pull_count, suspend_ms=SUSPEND_MS, is_lite=True)
        self._limits = PollLimits(
            queue_count_max=queue_count_max,
            queue_size_max=queue_size_max,
            total_count_max=total_count_max,
        )
        self.topics = Subscriptions(self.namespace)
        for topic, expression in (subscriptions or {}).items():
            self.topics.add(topic, expression, expression_type)
        self._is_sharing = bool(subscriptions)

    # -- lifetime ----------------------------------------------------------------------------

    async def _begin(self, client: ClientInstance) -> None:
        self._is_member = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.offsets = RemoteOffsets(client, self.group)
        self._bounds = QueueBounds(client)
        self._pulling = QueuePulling(client, self.group, self, self._pull_rules)
        self._assignment = Assignment(
            client, self.group, self.rules, user=self, offsets=self.offsets
        )
        self._cache = PollCache(self._assignment.queues, self.offsets, self._limits)
        if self._is_sharing:
            await self._join(client)

    async def _join(self, client: ClientInstance) -> None:
        await self.topics.check(client, self.group)
        client.add_consumer(self)
        self._is_member = True
        await client.heartbeat()
        await self.rebalance()

    async def _end(self, client: ClientInstance, *, is_failed: bool) -> None:
        await self._assignment.stop_pulling()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._auto_commit and not is_failed:
            self._cache.note_given()
        await self._assignment.release()
        await self._pulling.close()
        if self._is_member:
            await client.remove_consumer(self.group)

    async def subscribe(
        self, topic: str, expression: str = EVERYTHING, expression_type: str = TAG
    ) -> None:
        """Share the queues of a topic with the other members of the group."""
        if not self._is_sharing and self._assignment.queues:
            raise UsageError("queues are assigned: a consumer either subscribes or assigns")
        self.topics.add(topic, expression, expression_type)
        self._is_sharing = True
        if not self._is_member:
            await self._join(self.client)
            return
        await self.topics.check(self.client, self.group)
        await self.client.heartbeat()
        await self.rebalance()

    async def assign(self, queues: Iterable[MessageQueue], expression: str = EVERYTHING) -> None:
        """Consume exactly these queues, whatever other members do."""
        if self._is_sharing:
            raise UsageError("topics are subscribed to: a consumer either subscribes or assigns")
        wanted = set(queues)
        for topic in {queue.topic for queue in wanted}:
            self.topics.add(topic, expression)
            await self.client.routes.subscribe_queues(topic)
        await self._assignment.assign(wanted)
        missing = wanted - self.assigned
        if missing:
            raise UsageError(f"queues that could not be taken up: {sorted(missing)}")

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic."""
        return await self.client.routes.subscribe_queues(wrap(self.namespace, topic))

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that this consumer has now."""
        return frozenset(self._assignment.queues)

    # -- messages ----------------------------------------------------------------------------

    async def poll(
        self, *, timeout_ms: int = POLL_TIMEOUT_MS, count_max: int = POLL_COUNT
    ) -> list[ReceivedMessage]:
        """Return the next messages of one queue; none if none come in time.

        What was returned before counts as consumed from now on.
        """
        if timeout_ms < 0 or count_max <= 0:
            raise UsageError("a poll needs a count, and a timeout that is not negative")
        if self._auto_commit:
            self._cache.note_given()
        return await self._cache.next_batch(count_max=count_max, timeout_ms=timeout_ms)

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        while True:
            for message in await self.poll(count_max=1):
                yield message

    # -- positions ---------------------------------------------------------------------------

    def _own(self, queue: MessageQueue) -> AssignedQueue:
        one = self._assignment.queues.get(queue)
        if one is None:
            raise UsageError(f"not a queue of this consumer: {queue}")
        return one

    def position(self, queue: MessageQueue) -> int:
        """Return the offset from which on messages will be given."""
        one = self._own(queue)
        first = one.held.first_untaken
        return one.next_offset if first is None else first

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset within the queue."""
        self._own(queue)
        low, high = await self._bounds.begin(queue), await self._bounds.end(queue)
        if not low <= offset <= high:
            raise UsageError(f"{queue} goes from {low} to {high}, not to {offset}")
        await self._assignment.move({queue: offset}, persist=False)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the oldest message of a queue."""
        await self.seek(queue, await self._bounds.begin(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on."""
        await self.seek(queue, await self._bounds.end(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on with what was stored at a time."""
        await self.seek(queue, await self._bounds.by_time(queue, timestamp_ms))

    def pause(self, *queues: MessageQueue) -> None:
        """Give nothing of these queues for the time being."""
        for queue in queues:
            self._own(queue)
        self._cache.pause(queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Give messages of these queues again."""
        self._cache.resume(queues)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit everything given so far, or given offsets, and wait until brokers have it.

        Raises:
            ClientError, RemotingError: a broker does not.
        """
        if offsets is None:
            self._cache.note_given()
            offsets = {
                queue: offset
                for queue in self.assigned
                if (offset := self.offsets.noted(queue)) is not None
            }
        for queue, offset in offsets.items():
            await self.offsets.commit(queue, offset)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return what the group has committed; None if nothing."""
        return await self.offsets.read(queue)

    async def lag(self) -> dict[MessageQueue, int]:
        """Return how many messages each queue has from its position on."""
        return {
            queue: max(0, await self._bounds.end(queue) - self.position(queue))
            for queue in sorted(self.assigned)
        }

    # -- ConsumerMember ----------------------------------------------------------------------

    def heartbeat_data(self) -> ConsumerData:
        """Return what brokers are told of the group."""
        return ConsumerData(
            group=self.group,
            consume_type=CONSUME_TYPES[0],
            message_model=MessageModel.CLUSTERING.value,
            consume_from=CONSUME_FROM[0],
            subscriptions=tuple(self.topics),
        )

    async def rebalance(self) -> None:
        """Take up and give up queues as the members of the group share them."""
        if await self._assignment.rebalance(self.topics.names):
            self._cache.keep_paused(self.assigned)
            self.topics.renew()
            await self.client.heartbeat()

    async def persist_offsets(self) -> None:
        """Commit how far the group has come, if that is wanted."""
        if self._auto_commit:
            await self.offsets.persist(self.assigned)

    async def serve(self, request: Request[Any]) -> Answer:
        """Refuse what brokers ask of push consumers."""
        return Answer(ResponseCode.SYSTEM_ERROR, remark="this group has a pull consumer here")

    # -- QueueUser and PullOwner -------------------------------------------------------------

    def begin(self, one: AssignedQueue) -> None:
        """Pull from a queue."""
        self._pulling.begin(one)

    async def settle(self, one: AssignedQueue) -> bool:
        """Nothing is waited for: what was given and does not count is given to the next owner."""
        return True

    def subscription(self, topic: str) -> Subscription | None:
        """Return what is wanted of a topic."""
        return self.topics.get(topic)

    def commit_offset(self, queue: MessageQueue) -> int | None:
        """Have pulls commit nothing."""
        return None

    def is_paused(self, queue: MessageQueue) -> bool:
        """Go on pulling, within the limits: only `poll` leaves paused queues out."""
        return False

    def is_full(self, one: AssignedQueue) -> bool:
        """Whether as much is held as may be."""
        return self._cache.is_full(one)

    def arrived(self, one: AssignedQueue, result: PullResult) -> None:
        """Hold what a pull has brought."""
        offset = one.held.put(result.messages, next_offset=result.next_offset)
        if offset >= 0:
            self.offsets.update(one.queue, offset, increase_only=True)
        if result.messages:
            self._cache.arrived()

    def moved(self, one: AssignedQueue, offset: int) -> None:
        """Begin a queue anew: the offset asked for was outside of it."""
        move = self._assignment.move({one.queue: offset}, only=one, persist=self._auto_commit)
        task = asyncio.create_task(move)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
