"""Blocking faces of the asynchronous client: one event loop in a thread behind each.

The asynchronous code is the implementation.  Only the first attempt of a plain send is made by the
calling thread (`flintmq.client.producing.thread_sends`).  A face has every method of its
asynchronous twin, with the same parameters.  Only ``client`` is missing: a client belongs to the
event loop in which it was opened, and so cannot be shared between faces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, Unpack

from flintmq.client.blocking_finder import FinderInThread
from flintmq.client.consuming.handlers import is_in_handler_of
from flintmq.client.consuming.push_consumer import AsyncPushConsumer
from flintmq.client.loop_thread import LoopThread
from flintmq.client.producing.producer import (
    BATCH_SIZE,
    DEFAULT_GROUP,
    REQUEST_TIMEOUT_MS,
    AsyncProducer,
    thread_sends,
)
from flintmq.client.pulling.lite_pull_consumer import (
    POLL_COUNT,
    POLL_TIMEOUT_MS,
    AsyncLitePullConsumer,
)
from flintmq.client.pulling.pull_consumer import AsyncPullConsumer
from flintmq.client.pulling.puller import PULL_COUNT
from flintmq.client.stop_signals import stopping_signals
from flintmq.model.message_queue import MessageQueue
from flintmq.model.subscription import EVERYTHING, TAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flintmq.client.assigning.sharing import SharingRules
    from flintmq.client.consuming.consume_hooks import ConsumeHook, MessageFilter
    from flintmq.client.consuming.handlers import Handler
    from flintmq.client.consuming.push_settings import PushArguments, PushSettings
    from flintmq.client.messaging.messages import Message, ReceivedMessage, SendResult
    from flintmq.client.messaging.transaction_listener import (
        TransactionListener,
        TransactionResult,
    )
    from flintmq.client.options import ClientKeywords, ClientOptions
    from flintmq.client.producing.producer import SendHook
    from flintmq.client.producing.producer_settings import ProducerArguments, ProducerSettings
    from flintmq.client.producing.queue_choice import QueueSelector
    from flintmq.client.producing.thread_sends import ThreadSends
    from flintmq.client.pulling.lite_pull_consumer import QueueListener
    from flintmq.client.pulling.lite_pull_settings import LitePullArguments, LitePullSettings
    from flintmq.client.pulling.puller import PullResult

__all__ = ["LitePullConsumer", "LoopThread", "Producer", "PullConsumer", "PushConsumer"]

_T = TypeVar("_T")


def _checked(make: Callable[[], _T]) -> Callable[[], _T]:
    """Return ``make`` after a trial: a wrong argument is an error before a thread is started."""
    make()
    return make


class Producer(FinderInThread[AsyncProducer]):
    """`AsyncProducer` for code without asyncio; it may be used from several threads.

    Plain methods of a transaction listener are called in threads of their own.  Hooks are called
    in the thread of the event loop: they must not block, and cannot use the producer.

    It may be opened before a process forks (gunicorn with ``--preload``, Celery, multiprocessing):
    in the child it connects anew at its next use.
    """

    _noun = "producer"
    _reopens_after_fork = True

    def __init__(
        self,
        *,
        group: str = DEFAULT_GROUP,
        transaction_listener: TransactionListener | None = None,
        hooks: Sequence[SendHook] = (),
        settings: ProducerSettings | None = None,
        options: ClientOptions | None = None,
        **keywords: Unpack[ProducerArguments],
    ) -> None:
        super().__init__(
            _checked(
                lambda: AsyncProducer(
                    group=group,
                    transaction_listener=transaction_listener,
                    hooks=hooks,
                    settings=settings,
                    options=options,
                    **keywords,
                )
            )
        )

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message and return where it was stored."""
        if isinstance(queue, MessageQueue) or (queue is None and message.sharding_key is None):
            thread, sends = self._thread_sends()
            if sends is not None:
                return sends.send(thread, message, queue, timeout_ms)
        return self._await(AsyncProducer.send, message, queue=queue, timeout_ms=timeout_ms)

    def _thread_sends(self) -> tuple[LoopThread, ThreadSends | None]:
        """Return the thread of the loop, and what sends from this one where that may be done."""
        thread, member = self._opened()
        return thread, None if thread.is_current else thread_sends(member)

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | QueueSelector | None = None,
        batch_size: int = BATCH_SIZE,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together, cut into batches of ``batch_size`` bytes."""
        # A generator of the caller runs in the caller's thread.
        listed = list(messages)
        if isinstance(queue, MessageQueue) or (
            queue is None and all([message.sharding_key is None for message in listed])
        ):
            thread, sends = self._thread_sends()
            if sends is not None:
                return sends.send_batch(thread, listed, queue, batch_size, timeout_ms)
        return self._await(
            AsyncProducer.send_batch,
            listed,
            queue=queue,
            batch_size=batch_size,
            timeout_ms=timeout_ms,
        )

    def send_one_way(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None
    ) -> None:
        """Send a message without waiting for an answer."""
        self._await(AsyncProducer.send_one_way, message, queue=queue)

    def cancel(self, message: Message, sent: SendResult, *, timeout_ms: int | None = None) -> None:
        """Have a message not delivered that was sent with ``deliver_at_ms`` and still waits."""
        self._await(AsyncProducer.cancel, message, sent, timeout_ms=timeout_ms)

    def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message that consumers see only if the listener's local part commits."""
        return self._await(
            AsyncProducer.send_in_transaction, message, argument, timeout_ms=timeout_ms
        )

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> ReceivedMessage:
        """Send a message and return the reply of the consumer that gets it."""
        return self._await(AsyncProducer.request, message, queue=queue, timeout_ms=timeout_ms)

    def reply(self, asked: ReceivedMessage, body: bytes) -> None:
        """Reply to a message that somebody waits for."""
        self._await(AsyncProducer.reply, asked, body)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a topic can be sent to."""
        return self._await(AsyncProducer.queues, topic)


class PushConsumer(FinderInThread[AsyncPushConsumer]):
    """`AsyncPushConsumer` for code without asyncio; plain handlers run in threads of their own."""

    _noun = "consumer"

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
        **keywords: Unpack[PushArguments],
    ) -> None:
        super().__init__(
            _checked(
                lambda: AsyncPushConsumer(
                    group=group,
                    subscriptions=subscriptions,
                    handler=handler,
                    expression_type=expression_type,
                    hooks=hooks,
                    filters=filters,
                    settings=settings,
                    sharing=sharing,
                    options=options,
                    **keywords,
                )
            )
        )

    def close(self) -> None:
        """Close the consumer and end its thread; raise what a handler has stopped it with.

        A handler that calls this does not wait for its own end: the consumer stops as soon as
        handlers have ended.
        """
        if self._member is not None and is_in_handler_of(self._member):
            self._call(AsyncPushConsumer.stop_soon, None)
        else:
            self._finish(AsyncPushConsumer.close)

    def wait(self) -> None:
        """Wait until the consumer is closed; raise what a handler has stopped it with."""
        self._await(AsyncPushConsumer.wait)

    def run(self) -> None:
        """Open the consumer and consume until SIGTERM or SIGINT comes.

        Then finish what is being handled, within ``stop_timeout_ms``, commit, and return.  A second
        signal does what it would have done without this.  Call it in the main thread.
        """
        with stopping_signals() as signals, self:
            thread, member = self._opened()
            signals.connect(lambda: thread.call_soon(member.stop_soon, None))
            self.wait()

    def subscribe(
        self, topic: str, expression: str = EVERYTHING, expression_type: str = TAG
    ) -> None:
        """Consume one more topic, or choose other messages of one, from now on."""
        self._await(AsyncPushConsumer.subscribe, topic, expression, expression_type)

    def unsubscribe(self, topic: str) -> None:
        """Consume nothing more of a topic; what was handled is committed."""
        self._await(AsyncPushConsumer.unsubscribe, topic)

    def suspend(self) -> None:
        """Pull nothing more for the time being; what is held is still consumed."""
        self._call(AsyncPushConsumer.suspend)

    def resume(self) -> None:
        """Pull again after `suspend`."""
        self._call(AsyncPushConsumer.resume)

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that this member has now."""
        return self._call(lambda consumer: consumer.assigned)


class PullConsumer(FinderInThread[AsyncPullConsumer]):
    """`AsyncPullConsumer` for code without asyncio; a fork of the process connects anew."""

    _noun = "consumer"
    _reopens_after_fork = True

    def __init__(
        self,
        *,
        group: str,
        options: ClientOptions | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        super().__init__(
            _checked(lambda: AsyncPullConsumer(group=group, options=options, **keywords))
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic."""
        return self._await(AsyncPullConsumer.queues, topic)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str = EVERYTHING,
        expression_type: str = TAG,
        count_max: int = PULL_COUNT,
        wait_ms: int = 0,
    ) -> PullResult:
        """Pull from an offset on; with ``wait_ms`` the broker waits so long for a message."""
        return self._await(
            AsyncPullConsumer.pull,
            queue,
            offset,
            expression=expression,
            expression_type=expression_type,
            count_max=count_max,
            wait_ms=wait_ms,
        )

    def begin_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue."""
        return self._await(AsyncPullConsumer.begin_offset, queue)

    def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue gets."""
        return self._await(AsyncPullConsumer.end_offset, queue)

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset nearest to a store time."""
        return self._await(AsyncPullConsumer.offset_at, queue, timestamp_ms)

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit how far the group has come, and wait until the broker has it."""
        self._await(AsyncPullConsumer.commit, queue, offset)

    def committed(self, queue: MessageQueue) -> int | None:
        """Return what the group has committed; None if nothing."""
        return self._await(AsyncPullConsumer.committed, queue)

    def lag(self, queue: MessageQueue) -> int:
        """Return how many messages come after what the group has committed."""
        return self._await(AsyncPullConsumer.lag, queue)

    def send_back(self, message: ReceivedMessage, *, delay_level: int = 0) -> bool:
        """Have a message delivered to the group again, later; return whether a broker has it."""
        return self._await(AsyncPullConsumer.send_back, message, delay_level=delay_level)


class LitePullConsumer(FinderInThread[AsyncLitePullConsumer]):
    """`AsyncLitePullConsumer` for code without asyncio; ``for message in consumer`` works."""

    _noun = "consumer"

    def __init__(
        self,
        *,
        group: str,
        subscriptions: Mapping[str, str] | None = None,
        expression_type: str = TAG,
        settings: LitePullSettings | None = None,
        sharing: SharingRules | None = None,
        options: ClientOptions | None = None,
        **keywords: Unpack[LitePullArguments],
    ) -> None:
        super().__init__(
            _checked(
                lambda: AsyncLitePullConsumer(
                    group=group,
                    subscriptions=subscriptions,
                    expression_type=expression_type,
                    settings=settings,
                    sharing=sharing,
                    options=options,
                    **keywords,
                )
            )
        )

    def close(self) -> None:
        """Stop; the messages given last do not count as consumed unless they were committed."""
        self._finish(AsyncLitePullConsumer.close)

    def subscribe(
        self, topic: str, expression: str = EVERYTHING, expression_type: str = TAG
    ) -> None:
        """Share the queues of a topic with the other members of the group."""
        self._await(AsyncLitePullConsumer.subscribe, topic, expression, expression_type)

    def assign(self, queues: Iterable[MessageQueue], expression: str = EVERYTHING) -> None:
        """Consume exactly these queues, whatever other members do."""
        self._await(AsyncLitePullConsumer.assign, list(queues), expression)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic."""
        return self._await(AsyncLitePullConsumer.queues, topic)

    def watch_queues(self, topic: str, listener: QueueListener) -> list[MessageQueue]:
        """Return the queues of a topic, and have a function called whenever they change."""
        return self._await(AsyncLitePullConsumer.watch_queues, topic, listener)

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that this member has now."""
        return self._call(lambda consumer: consumer.assigned)

    def poll(
        self, *, timeout_ms: int = POLL_TIMEOUT_MS, count_max: int = POLL_COUNT
    ) -> list[ReceivedMessage]:
        """Return the next messages of one queue; none if none come in time."""
        return self._await(AsyncLitePullConsumer.poll, timeout_ms=timeout_ms, count_max=count_max)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while True:
            yield from self.poll(count_max=1)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the message that is given next."""
        return self._call(AsyncLitePullConsumer.position, queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset within the queue."""
        self._await(AsyncLitePullConsumer.seek, queue, offset)

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue with the oldest message of a queue."""
        self._await(AsyncLitePullConsumer.seek_to_begin, queue)

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue with messages that are stored from now on."""
        self._await(AsyncLitePullConsumer.seek_to_end, queue)

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue with the message that was stored nearest to a time."""
        self._await(AsyncLitePullConsumer.seek_to_time, queue, timestamp_ms)

    def pause(self, *queues: MessageQueue) -> None:
        """Give nothing of these queues for the time being."""
        self._call(AsyncLitePullConsumer.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Give messages of these queues again."""
        self._call(AsyncLitePullConsumer.resume, *queues)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit everything given so far, or given offsets, and wait until brokers have it."""
        self._await(AsyncLitePullConsumer.commit, offsets)

    def committed(self, queue: MessageQueue) -> int | None:
        """Return what the group has committed; None if nothing."""
        return self._await(AsyncLitePullConsumer.committed, queue)

    def lag(self) -> dict[MessageQueue, int]:
        """Return how many messages each queue has from its position on."""
        return self._await(AsyncLitePullConsumer.lag)
