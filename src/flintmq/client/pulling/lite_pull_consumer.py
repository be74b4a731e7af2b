"""The lite pull consumer: it pulls ahead, and `poll` returns messages when they are wanted."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, Unpack

from flintmq.client.assigning.assignment import Assignment
from flintmq.client.assigning.consume_from import QueueBounds
from flintmq.client.assigning.group_member import GroupMember
from flintmq.client.assigning.local_offsets import group_offsets, lasting_options
from flintmq.client.assigning.offset_store import check_offset
from flintmq.client.assigning.sharing import SharingRules
from flintmq.client.errors import UsageError
from flintmq.client.keywords import KeywordSorter
from flintmq.client.namespaces import wrap
from flintmq.client.options import ClientOptions
from flintmq.client.own_threads import is_own_end
from flintmq.client.pulling.consume_trace import SUCCESS, ConsumeTrace
from flintmq.client.pulling.lite_pull_settings import LitePullArguments, LitePullSettings
from flintmq.client.pulling.poll_cache import PollCache
from flintmq.client.pulling.queue_pulling import PullRules, QueuePulling
from flintmq.errors import FlintError
from flintmq.format.wire.bodies.heartbeat import CONSUME_FROM, CONSUME_TYPES, ConsumerData
from flintmq.format.wire.codes import ResponseCode
from flintmq.model.subscription import EVERYTHING, TAG
from flintmq.remoting import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping

    from flintmq.client.assigning.assigned_queue import AssignedQueue
    from flintmq.client.closing_time import ClosingTime
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.client.pulling.puller import PullResult
    from flintmq.format.wire.headers.codec import Header
    from flintmq.model.message_queue import MessageQueue
    from flintmq.remoting import Request

logger = logging.getLogger(__name__)

QueueListener: TypeAlias = "Callable[[str, list[MessageQueue]], object]"
"""Is told a topic and its queues."""

POLL_TIMEOUT_MS: Final = 5000
POLL_COUNT: Final = 32
SUSPEND_MS: Final = 20_000


class AsyncLitePullConsumer(GroupMember):
    """Consumes queues at the pace of its user.  Use it as an async context manager.

    With ``subscriptions`` the members of the group share the queues; without, `assign` names
    them.  `poll` returns the next messages of one queue; ``async for`` gives them one by one.

    Messages count as consumed when the next ones are asked for.  With ``auto_commit`` that is
    committed every few seconds and at the end.  The messages given last count if the user's block
    ends without an exception; after `close` they do not, since nobody has said so.  Without
    ``auto_commit``, `commit` says that everything given so far is consumed, or up to which offset.
    With ``model=MessageModel.BROADCASTING`` each member gets all messages and keeps its progress
    in a file.

    How it works is said by ``settings``, how the group shares its queues by ``sharing``, and how
    the cluster is found by ``options``.  The fields of all three may be given as single keywords
    too, which come before those of the objects.  ``client`` shares a client with others.
    """

    def __init__(
        self,
        *,
        group: str,
        subscriptions: Mapping[str, str] | None = None,
        expression_type: str = TAG,
        settings: LitePullSettings | None = None,
        sharing: SharingRules | None = None,
        options: ClientOptions | None = None,
        client: ClientInstance | None = None,
        **keywords: Unpack[LitePullArguments],
    ) -> None:
        sorter = KeywordSorter(
            AsyncLitePullConsumer, keywords, LitePullSettings, SharingRules, ClientOptions
        )
        rules = sorter.fill(SharingRules, sharing)
        options = sorter.fill_if_given(ClientOptions, options)
        super().__init__(
            group,
            subscriptions or {},
            expression_type,
            rules=rules,
            options=lasting_options(options, rules) if client is None else options,
            client=client,
            stream=True,
        )
        self.settings = sorter.fill(LitePullSettings, settings)
        self._is_sharing = bool(subscriptions)

    # -- lifetime ----------------------------------------------------------------------------

    async def _begin(self, client: ClientInstance) -> None:
        directory = self.settings.offset_directory
        self.offsets = group_offsets(client, self.group, self.rules, directory)
        await self.offsets.load()
        self._bounds = QueueBounds(client)
        pull_rules = PullRules(count=self.settings.pull_count, suspend_ms=SUSPEND_MS, is_lite=True)
        self._pulling = QueuePulling(client, self.group, self, pull_rules)
        self._assignment = Assignment(
            client,
            self.group,
            self.rules,
            user=self,
            offsets=self.offsets,
            commits_start=self.settings.auto_commit,
            now_ms=client.now_ms,
        )
        self._cache = PollCache(self._assignment.queues, self.settings)
        self._trace: ConsumeTrace | None = None
        if self.settings.trace:
            self._trace = ConsumeTrace(client, self.group, topic=self.settings.trace_topic)
            await self._trace.start()
        if self._is_sharing:
            await self._join(client)
        else:
            self._spawn(self._persist_forever())

    async def _persist_forever(self) -> None:
        """Commit from time to time while nobody else asks for that: until this joins the group."""
        while not self._is_member:
            await asyncio.sleep(self.client.options.offset_interval_ms / 1000)
            try:
                await self.persist_offsets()
            except Exception:
                logger.exception("offsets not committed: group=%s", self.group)

    async def _join(self, client: ClientInstance) -> None:
        await self.topics.check(client, self.group)
        client.add_consumer(self)
        self._is_member = True
        await client.heartbeat()
        await self.rebalance()

    async def _end(self, client: ClientInstance, closing: ClosingTime, *, is_failed: bool) -> None:
        await self._assignment.stop_pulling()
        await self._cancel_tasks()
        if not is_failed:
            self._note_given()
        await self._assignment.release(closing)
        await self._pulling.close()
        if self._trace is not None:
            await self._trace.close(closing)
        await self._leave(client, closing)

    async def close(self) -> None:
        """Stop; the messages given last do not count as consumed unless they were committed."""
        await self._close(is_failed=True)

    async def subscribe(
        self, topic: str, expression: str = EVERYTHING, expression_type: str = TAG
    ) -> None:
        """Share the queues of a topic with the other members of the group."""
        if not self._is_sharing and self._assignment.queues:
            raise UsageError("queues are assigned: a consumer either subscribes or assigns")
        client = self.client
        await self.topics.subscribe(client, self.group, topic, expression, expression_type)
        self._is_sharing = True
        if not self._is_member:
            await self._join(client)
            return
        await client.heartbeat()
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

    async def watch_queues(self, topic: str, listener: QueueListener) -> list[MessageQueue]:
        """Return the queues of a topic, and have a function called whenever they change.

        It is asked after every ``route_interval_ms``.  The function is called in the event loop and
        must not block; a coroutine function may wait, for example for `assign`.  What it raises is
        logged.
        """
        queues = await self.queues(topic)
        self._spawn(self._watch(topic, listener, set(queues)))
        return queues

    async def _watch(self, topic: str, listener: QueueListener, known: set[MessageQueue]) -> None:
        while True:
            await asyncio.sleep(self.client.options.route_interval_ms / 1000)
            try:
                queues = await self.queues(topic)
            except FlintError as error:
                logger.info("queues not looked at: topic=%s reason=%s", topic, error)
                continue
            if set(queues) == known:
                continue
            known = set(queues)
            await self._tell(listener, topic, queues)

    @staticmethod
    async def _tell(listener: QueueListener, topic: str, queues: list[MessageQueue]) -> None:
        task = asyncio.current_task()
        try:
            answer = listener(topic, queues)
            if inspect.isawaitable(answer):
                await answer
        except BaseException as error:
            # SystemExit and KeyboardInterrupt of a task would end the loop.
            if is_own_end(error, task):
                raise
            logger.exception("a listener for queues has failed: topic=%s", topic)

    # -- messages ----------------------------------------------------------------------------

    async def poll(
        self, *, timeout_ms: int = POLL_TIMEOUT_MS, count_max: int = POLL_COUNT
    ) -> list[ReceivedMessage]:
        """Return the next messages of one queue; none if none come in time.

        What was returned before counts as consumed from now on.
        """
        if self._client is None:
            raise UsageError("the consumer is not open: there is nothing to poll")
        if timeout_ms < 0 or count_max <= 0:
            raise UsageError("a poll needs a count, and a timeout that is not negative")
        self._note_given()
        messages = await self._cache.next_batch(count_max=count_max, timeout_ms=timeout_ms)
        if self._trace is not None and messages:
            # Nobody says how the user's handling ends: what is given counts as handled, as in Java.
            self._trace.begin(messages).ended(SUCCESS)
        return messages

    def _note_given(self) -> None:
        """With ``auto_commit``, count what was given as consumed."""
        if not self.settings.auto_commit:
            return
        for queue, offset in self._cache.progress().items():
            is_sought = self._cache.is_sought(queue)
            self.offsets.update(queue, offset, increase_only=not is_sought)
            self._cache.noted(queue)

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
        """Return the offset of the message that is given next."""
        return self._own(queue).position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset within the queue.

        Progress made before stays; the new position counts as soon as messages given would.
        """
        self._own(queue)
        low, high = await self._bounds.begin(queue), await self._bounds.end(queue)
        if not low <= offset <= high:
            raise UsageError(f"{queue} goes from {low} to {high}, not to {offset}")
        await self._assignment.move({queue: offset}, persist=False)
        self._cache.sought(queue)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue with the oldest message of a queue."""
        await self.seek(queue, await self._bounds.begin(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue with messages that are stored from now on."""
        await self.seek(queue, await self._bounds.end(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue with the message that was stored nearest to a time."""
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

        With given offsets, messages of their queues that were given before count only up to them.
        Everything given so far is not committed where the group has come further.

        Raises:
            ClientError, RemotingError: a broker has refused or could not be asked.
        """
        if offsets is None:
            await self._commit_given()
            return
        for offset in offsets.values():
            check_offset(offset)
        for queue, offset in offsets.items():
            self._cache.committed(queue, offset)
        await _all(self.offsets.commit(queue, offset) for queue, offset in offsets.items())

    async def _commit_given(self) -> None:
        noted = {queue: self.offsets.noted(queue) for queue in self.assigned}
        given = (noted | self._cache.progress()).items()
        await _all(self._commit_one(queue, offset) for queue, offset in given if offset is not None)

    async def _commit_one(self, queue: MessageQueue, offset: int) -> None:
        is_sought = self._cache.is_sought(queue)
        await self.offsets.commit(queue, offset, increase_only=not is_sought)
        if self._cache.progress().get(queue) == offset:
            self._cache.noted(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return what the group has committed; None if nothing."""
        return await self.offsets.read(queue)

    async def lag(self) -> dict[MessageQueue, int]:
        """Return how many messages each queue has from its position on."""
        queues = sorted(self.assigned)
        ends = await asyncio.gather(*map(self._bounds.end, queues))
        return {
            queue: max(0, end - self.position(queue))
            for queue, end in zip(queues, ends, strict=True)
            if queue in self.assigned
        }

    # -- ConsumerMember ----------------------------------------------------------------------

    def heartbeat_data(self) -> ConsumerData:
        """Return what brokers are told of the group."""
        return ConsumerData(
            group=self.group,
            consume_type=CONSUME_TYPES[0],
            message_model=self.rules.model.value,
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
        """Commit how far the group has come, with ``auto_commit``."""
        if self.settings.auto_commit:
            await self.offsets.persist(self.assigned)

    async def serve(self, request: Request[Header]) -> Answer:
        """Refuse requests that only a push consumer can serve."""
        return Answer(ResponseCode.SYSTEM_ERROR, remark="this group has a pull consumer here")

    # -- QueueUser and PullOwner -------------------------------------------------------------

    def begin(self, one: AssignedQueue) -> None:
        """Pull from a queue."""
        self._pulling.begin(one)

    async def settle(self, one: AssignedQueue) -> bool:
        """Wait for nothing: the next owner gets what was given here and is not committed."""
        return True

    def commit_offset(self, queue: MessageQueue) -> int | None:
        """Return None: pulls of a lite pull consumer commit nothing."""
        return None

    def is_paused(self, queue: MessageQueue) -> bool:
        """Return False: a paused queue counts as full, so that it goes on at once when resumed."""
        return False

    def is_full(self, one: AssignedQueue) -> bool:
        """Return whether so much is held of a queue that pulling has to pause."""
        return self._cache.is_full(one)

    def arrived(self, one: AssignedQueue, result: PullResult) -> None:
        """Hold what a pull has brought."""
        one.held.put(result.messages, next_offset=result.next_offset)
        if self.settings.auto_commit and not one.held.count and not self._cache.is_given(one):
            # All before is consumed, or not wanted.
            self.offsets.update(one.queue, result.next_offset, increase_only=True)
        if result.messages:
            self._cache.arrived()

    def moved(self, one: AssignedQueue, offset: int) -> None:
        """Restart a queue that ends before the offset that was asked for."""
        # The pulling task calls this, and the restart cancels that task: it needs one of its own.
        self._spawn(self._correct(one, offset))

    async def _correct(self, one: AssignedQueue, offset: int) -> None:
        await self._assignment.correct(one, offset, persist=self.settings.auto_commit)
        self._cache.restarted(one)


async def _all(works: Iterable[Awaitable[None]]) -> None:
    """Wait for all, then raise what the first of those that failed has raised."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
