"""The push consumer: it pulls messages and calls a handler for them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self, Unpack

from flintmq.client.assigning.assignment import Assignment
from flintmq.client.assigning.broker_locks import BrokerLocks
from flintmq.client.assigning.group_member import GroupMember
from flintmq.client.assigning.local_offsets import group_offsets, lasting_options
from flintmq.client.assigning.sharing import SharingRules
from flintmq.client.consuming.concurrent_service import ConcurrentService
from flintmq.client.consuming.consume_hooks import (
    ConsumeHook,
    HookedRunner,
    MessageFilter,
    is_wanted,
)
from flintmq.client.consuming.consume_statistics import ConsumeStatistics
from flintmq.client.consuming.handler_stop import HandlerStop
from flintmq.client.consuming.handlers import Handler, HandlerRunner, Outcome, is_in_handler_of
from flintmq.client.consuming.orderly_service import OrderlyService
from flintmq.client.consuming.push_settings import PushArguments, PushSettings
from flintmq.client.consuming.running_info import serve_admin
from flintmq.client.consuming.threaded_service import ThreadedService
from flintmq.client.consuming.traced_runner import TracedRunner
from flintmq.client.errors import UsageError
from flintmq.client.keywords import KeywordSorter
from flintmq.client.messaging.message_decoding import with_user_topic
from flintmq.client.options import ClientOptions
from flintmq.client.own_threads import call_in_thread
from flintmq.client.pulling.consume_trace import ConsumeTrace
from flintmq.client.pulling.queue_pulling import PullRules, QueuePulling
from flintmq.client.pulling.send_back import SendBack
from flintmq.client.stop_signals import stopping_signals
from flintmq.client.wall_clock import wall_ms
from flintmq.format.wire.bodies.heartbeat import CONSUME_TYPES, ConsumerData
from flintmq.model.subscription import EVERYTHING, TAG
from flintmq.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from flintmq.client.assigning.assigned_queue import AssignedQueue
    from flintmq.client.assigning.process_queue import ProcessQueue
    from flintmq.client.closing_time import ClosingTime
    from flintmq.client.consuming.consume_service import ConsumeService
    from flintmq.client.consuming.handlers import HandlerCaller
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.client.pulling.puller import PullResult
    from flintmq.format.wire.headers.codec import Header
    from flintmq.model.message_queue import MessageQueue
    from flintmq.remoting import Answer, Request

logger = logging.getLogger(__name__)


class AsyncPushConsumer(GroupMember):
    """Consumes topics for a group and calls a handler for each message.

    Use it as an async context manager.  ``subscriptions`` leads from topics to expressions:
    ``*``, tags with ``||`` between them, or SQL92 with that ``expression_type``.  ``handler`` is
    a coroutine function or a plain one, which then runs in a thread; with ``batch_size`` above 1
    it gets lists.  A message counts as consumed when the handler returns None or True; otherwise,
    whatever the handler raises, it is delivered again, later.  With ``orderly`` the handler gets
    the messages of a queue one batch after the other, and one that fails holds the queue up.

    A handler that raises SystemExit or KeyboardInterrupt also stops the consumer.  The block in
    which it is used is cancelled, and the exception comes out at its end; `wait` and `close` raise
    it too.

    ``hooks`` see what handlers get and how that ended.  A message that one of ``filters`` does not
    want counts as handled without its handler being called.

    How it works is said by ``settings``, how the group shares its queues by ``sharing``, and how
    the cluster is found by ``options``.  The fields of all three may be given as single keywords
    too, which come before those of the objects.  ``client`` shares a client with others.
    """

    def __init__(
        self,
        *,
        group: str,
        subscriptions: Mapping[str, str],
        handler: Handler,
        expression_type: str = TAG,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[MessageFilter] = (),
        settings: PushSettings | None = None,
        sharing: SharingRules | None = None,
        options: ClientOptions | None = None,
        client: ClientInstance | None = None,
        **keywords: Unpack[PushArguments],
    ) -> None:
        sorter = KeywordSorter(
            AsyncPushConsumer, keywords, PushSettings, SharingRules, ClientOptions
        )
        if not subscriptions:
            raise UsageError("a consumer needs at least one subscription")
        rules = sorter.fill(SharingRules, sharing)
        options = sorter.fill_if_given(ClientOptions, options)
        if client is None:
            options = lasting_options(options, rules)
        super().__init__(
            group, subscriptions, expression_type, rules=rules, options=options, client=client
        )
        self.settings = sorter.fill(PushSettings, settings)
        if rules.is_clustering:
            self.topics.add(RETRY_PREFIX + self.group)
        self._handler = handler
        self._hooks = tuple(hooks)
        self._filters = tuple(filters)
        self._is_suspended = False
        self.started_ms = 0
        self._stop = HandlerStop()

    # -- lifetime ----------------------------------------------------------------------------

    async def _begin(self, client: ClientInstance) -> None:
        settings, is_clustering = self.settings, self.rules.is_clustering
        self._stop = HandlerStop()
        self._trace: ConsumeTrace | None = None
        self.statistics = ConsumeStatistics()
        self.offsets = group_offsets(client, self.group, self.rules, settings.offset_directory)
        self._runner = HandlerRunner(
            self._handler,
            thread_count=settings.concurrency,
            takes_list=settings.batch_size > 1,
            consumer=self,
        )
        locks = BrokerLocks(client, self.group) if settings.orderly and is_clustering else None
        self._pulling = QueuePulling(client, self.group, self, PullRules(count=settings.pull_count))
        self._consuming = self._make_consuming(client)
        self._assignment = Assignment(
            client,
            self.group,
            self.rules,
            user=self,
            offsets=self.offsets,
            locks=locks,
            now_ms=client.now_ms,
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

    def _make_consuming(self, client: ClientInstance) -> ConsumeService:
        settings = self.settings
        send_back = None
        if self.rules.is_clustering:
            send_back = SendBack(client, self.group, times_max=settings.reconsume_times_max)
        runner: HandlerCaller = self._runner
        if settings.trace:
            self._trace = ConsumeTrace(client, self.group, topic=settings.trace_topic)
            runner = TracedRunner(self._runner, self._trace)
        if self._hooks:
            runner = HookedRunner(runner, self._hooks)
        kind: type[ConsumeService] = OrderlyService if settings.orderly else ConcurrentService
        if kind is ConcurrentService and runner is self._runner and self._runner.is_in_threads:
            kind = ThreadedService
        return kind(
            runner,
            settings,
            offsets=self.offsets,
            send_back=send_back,
            statistics=self.statistics,
            now_ms=client.now_ms,
        )

    @property
    def _stop_timeout_ms(self) -> int:
        return self.settings.stop_timeout_ms

    async def _end(self, client: ClientInstance, closing: ClosingTime, *, is_failed: bool) -> None:
        """Wait for running handlers, commit, give the queues back and leave the group.

        What was not handled is delivered again, to this member or another one.
        """
        self._stop.ended()
        await self._assignment.stop_pulling()
        busy = await self._consuming.stop(closing.handlers_ms)
        await self._cancel_tasks()
        await self._assignment.release(closing, busy=busy)
        await self._pulling.close()
        if self._trace is not None:
            await self._trace.close(closing)
        await self._leave(client, closing)
        # A thread whose handler does not finish cannot be waited for.
        ending = call_in_thread("flintmq-close", self._end_threads)
        await closing.step("threads of handlers", ending)

    def _end_threads(self) -> None:
        for one in (self._runner, self._consuming):
            one.close(wait=self._consuming.is_idle)

    async def start(self) -> Self:
        """Connect and begin; `close` ends it."""
        await super().start()
        self._stop.started.set()
        return self

    async def __aenter__(self) -> Self:
        await self.start()
        if self._stop.has_error:
            await self.close()
        self._stop.guard_block()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_interrupted = self._stop.leave_block()
        await self._close(is_failed=kind is not None)
        if kind is None or (is_interrupted and isinstance(error, asyncio.CancelledError)):
            self._stop.raise_error()

    async def close(self) -> None:
        """Stop; a second call, also at the same time, waits for the first.

        A handler that calls this does not wait for its own end: the consumer stops as soon as
        handlers have ended.  What a handler has raised to stop the consumer is raised here.
        """
        if is_in_handler_of(self):
            self.stop_soon(None)
            return
        await super().close()
        self._stop.raise_error()

    def stop_soon(self, error: BaseException | None) -> None:
        """Start to stop: a handler has raised ``error`` or closed it, or a signal has come."""
        if self._client is not None and not self._stop.is_asked:
            logger.warning("consumer stops soon: group=%s by=%r", self.group, error)
            self._consuming.halt()
            self._stop.ask(error, asyncio.create_task(self._close_when_started(), name="stop"))

    async def _close_when_started(self) -> None:
        await self._stop.started.wait()
        await self._close(is_failed=True)

    async def wait(self) -> None:
        """Wait until the consumer is closed; raise what a handler has stopped it with."""
        await self._stop.closed.wait()
        self._stop.raise_error()

    async def run(self) -> None:
        """Open the consumer and consume until SIGTERM or SIGINT comes.

        Then finish what is being handled, within ``stop_timeout_ms``, commit, and return.  A second
        signal does what it would have done without this.  Call it in the main thread.
        """
        loop = asyncio.get_running_loop()
        with stopping_signals() as signals:
            async with self:
                signals.connect(lambda: loop.call_soon_threadsafe(self.stop_soon, None))
                await self.wait()

    async def _close_once(self, closing: ClosingTime, *, is_failed: bool) -> None:
        try:
            await super()._close_once(closing, is_failed=is_failed)
        finally:
            self._stop.closed.set()

    async def subscribe(
        self, topic: str, expression: str = EVERYTHING, expression_type: str = TAG
    ) -> None:
        """Consume one more topic, or choose other messages of one, from now on.

        All members of a group should have the same subscriptions.
        """
        client = self.client
        await self.topics.subscribe(client, self.group, topic, expression, expression_type)
        await client.heartbeat()
        await self.rebalance()

    async def unsubscribe(self, topic: str) -> None:
        """Consume nothing more of a topic; what was handled is committed."""
        client = self.client
        if self.topics.remove(topic) is None:
            raise UsageError(f"{topic} is not subscribed to")
        await self._assignment.leave_topics(self.topics.names)
        await client.heartbeat()

    def suspend(self) -> None:
        """Pull nothing more for the time being; what is held is still consumed."""
        self._is_suspended = True

    def resume(self) -> None:
        """Pull again after `suspend`."""
        self._is_suspended = False
        self.client.wake_rebalance()

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
        is_changed = await self._assignment.rebalance(self.topics.names)
        # Topics may have been left meanwhile.
        await self._assignment.leave_topics(self.topics.names)
        if is_changed:
            await self.topics.compare(self.client, self.group)
            self.topics.renew()
            await self.client.heartbeat()

    async def persist_offsets(self) -> None:
        """Commit how far the group has come."""
        await self.offsets.persist(self._assignment.committable())

    async def serve(self, request: Request[Header]) -> Answer:
        """Serve a broker's request that concerns the group."""
        return await serve_admin(self, request)

    @property
    def held(self) -> Mapping[MessageQueue, ProcessQueue]:
        """What this member holds of its queues."""
        return {queue: one.held for queue, one in self._assignment.queues.items()}

    async def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Consume queues from given offsets on; those of other members are left alone."""
        # The broker that asks may be gone before the queues are restarted: then whoever serves its
        # request is cancelled, and queues would stay dropped.
        await asyncio.shield(self._spawn(self._assignment.move(offsets)))

    async def hand_over(self, message: ReceivedMessage) -> Outcome:
        """Call the handler for one message that did not come by a pull."""
        return await self._runner.run([with_user_topic(message, self.group, self.namespace)])

    # -- QueueUser and PullOwner -------------------------------------------------------------

    def begin(self, one: AssignedQueue) -> None:
        """Pull from a queue and consume it."""
        self._consuming.begin(one)
        self._pulling.begin(one)

    async def settle(self, one: AssignedQueue) -> bool:
        """Wait for handlers that must finish before a dropped queue goes to another member."""
        return await self._consuming.settle(one)

    def commit_offset(self, queue: MessageQueue) -> int | None:
        """Return the offset that a pull commits along the way."""
        one = self._assignment.queues.get(queue)
        if one is None or not self._assignment.may_commit(one):
            return None
        return self.offsets.carried(queue)

    def is_paused(self, queue: MessageQueue) -> bool:
        """Return whether pulling from a queue is suspended."""
        return self._is_suspended

    def is_full(self, one: AssignedQueue) -> bool:
        """Return whether so much is held of a queue that pulling has to pause."""
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
        if self._filters:
            messages = [one for one in messages if is_wanted(one, self._filters)]
        self._assignment.hold(one, messages, next_offset=result.next_offset)
        if messages:
            self.statistics.pulled(messages[0].topic, len(messages), result.elapsed_ms)
            self._consuming.arrived(one, messages)

    def moved(self, one: AssignedQueue, offset: int) -> None:
        """Restart a queue that ends before the offset that was asked for."""
        # The pulling task calls this, and the restart cancels that task: it needs one of its own.
        self._spawn(self._assignment.correct(one, offset))

    async def _give_stuck_back_forever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.consume_timeout_ms / 1000)
            await self._consuming.give_stuck_back(list(self._assignment.queues.values()))
