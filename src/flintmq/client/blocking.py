"""Blocking faces of the asynchronous client: one event loop in a thread behind each.

The asynchronous code is the only implementation; nothing is done twice here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.client.lite_pull_consumer import AsyncLitePullConsumer
from flintmq.client.loop_thread import InThread, LoopThread, now
from flintmq.client.producer import AsyncProducer
from flintmq.client.pull_consumer import AsyncPullConsumer
from flintmq.client.push_consumer import AsyncPushConsumer
from flintmq.model.subscription import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from flintmq.client.messages import Message, ReceivedMessage, SendResult
    from flintmq.client.pulling import PullResult
    from flintmq.model.message_queue import MessageQueue

__all__ = ["LitePullConsumer", "LoopThread", "Producer", "PullConsumer", "PushConsumer"]


class Producer(InThread[AsyncProducer]):
    """`AsyncProducer` for code without asyncio; it may be used from several threads."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda: AsyncProducer(**options))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message and return where it was stored."""
        thread, producer = self._opened()
        return thread.run(producer.send(message, queue=queue, timeout_ms=timeout_ms))

    def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None
    ) -> list[SendResult]:
        """Send messages of one topic together."""
        thread, producer = self._opened()
        return thread.run(producer.send_batch(list(messages), queue=queue))

    def send_one_way(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send a message without waiting for an answer."""
        thread, producer = self._opened()
        thread.run(producer.send_one_way(message, queue=queue))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a topic can be sent to."""
        thread, producer = self._opened()
        return thread.run(producer.queues(topic))


class PushConsumer(InThread[AsyncPushConsumer]):
    """`AsyncPushConsumer` for code without asyncio; handlers run in threads of their own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda: AsyncPushConsumer(**options))

    def suspend(self) -> None:
        """Pull nothing more for the time being."""
        thread, consumer = self._opened()
        thread.run(now(consumer.suspend))

    def resume(self) -> None:
        """Go on."""
        thread, consumer = self._opened()
        thread.run(now(consumer.resume))


class PullConsumer(InThread[AsyncPullConsumer]):
    """`AsyncPullConsumer` for code without asyncio."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda: AsyncPullConsumer(**options))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic."""
        thread, consumer = self._opened()
        return thread.run(consumer.queues(topic))

    def pull(self, queue: MessageQueue, offset: int, **options: Any) -> PullResult:
        """Pull from an offset on; the options are those of `AsyncPullConsumer.pull`."""
        thread, consumer = self._opened()
        return thread.run(consumer.pull(queue, offset, **options))

    def begin_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue."""
        thread, consumer = self._opened()
        return thread.run(consumer.begin_offset(queue))

    def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue gets."""
        thread, consumer = self._opened()
        return thread.run(consumer.end_offset(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset nearest to a store time."""
        thread, consumer = self._opened()
        return thread.run(consumer.offset_at(queue, timestamp_ms))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit how far the group has come."""
        thread, consumer = self._opened()
        thread.run(consumer.commit(queue, offset))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return what the group has committed; None if nothing."""
        thread, consumer = self._opened()
        return thread.run(consumer.committed(queue))

    def lag(self, queue: MessageQueue) -> int:
        """Return how many messages come after what the group has committed."""
        thread, consumer = self._opened()
        return thread.run(consumer.lag(queue))


class LitePullConsumer(InThread[AsyncLitePullConsumer]):
    """`AsyncLitePullConsumer` for code without asyncio; ``for message in consumer`` works."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda: AsyncLitePullConsumer(**options))

    def subscribe(self, topic: str, expression: str = EVERYTHING) -> None:
        """Share the queues of a topic with the other members of the group."""
        thread, consumer = self._opened()
        thread.run(consumer.subscribe(topic, expression))

    def assign(self, queues: Iterable[MessageQueue], expression: str = EVERYTHING) -> None:
        """Consume exactly these queues."""
        thread, consumer = self._opened()
        thread.run(consumer.assign(list(queues), expression))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic."""
        thread, consumer = self._opened()
        return thread.run(consumer.queues(topic))

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that this consumer has now."""
        return self._opened()[1].assigned

    def poll(self, **options: int) -> list[ReceivedMessage]:
        """Return the next messages; the options are those of `AsyncLitePullConsumer.poll`."""
        thread, consumer = self._opened()
        return thread.run(consumer.poll(**options))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while True:
            yield from self.poll(count_max=1)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset from which on messages will be given."""
        thread, consumer = self._opened()
        return thread.run(now(lambda: consumer.position(queue)))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset within the queue."""
        thread, consumer = self._opened()
        thread.run(consumer.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the oldest message of a queue."""
        thread, consumer = self._opened()
        thread.run(consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on."""
        thread, consumer = self._opened()
        thread.run(consumer.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on with what was stored at a time."""
        thread, consumer = self._opened()
        thread.run(consumer.seek_to_time(queue, timestamp_ms))

    def pause(self, *queues: MessageQueue) -> None:
        """Give nothing of these queues for the time being."""
        thread, consumer = self._opened()
        thread.run(now(lambda: consumer.pause(*queues)))

    def resume(self, *queues: MessageQueue) -> None:
        """Give messages of these queues again."""
        thread, consumer = self._opened()
        thread.run(now(lambda: consumer.resume(*queues)))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit everything given so far, or given offsets."""
        thread, consumer = self._opened()
        thread.run(consumer.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return what the group has committed; None if nothing."""
        thread, consumer = self._opened()
        return thread.run(consumer.committed(queue))

    def lag(self) -> dict[MessageQueue, int]:
        """Return how many messages each queue has from its position on."""
        thread, consumer = self._opened()
        return thread.run(consumer.lag())
