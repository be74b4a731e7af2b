"""Blocking faces of the asynchronous client: one event loop in a thread behind each.

The asynchronous code is the only implementation; nothing is done twice here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from flintmq.client.errors import UsageError
from flintmq.client.lite_pull_consumer import AsyncLitePullConsumer
from flintmq.client.producer import AsyncProducer
from flintmq.client.pull_consumer import AsyncPullConsumer
from flintmq.client.push_consumer import AsyncPushConsumer
from flintmq.model.subscription import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
    from types import TracebackType

    from flintmq.client.messages import Message, ReceivedMessage, SendResult
    from flintmq.client.pulling import PullResult
    from flintmq.model.message_queue import MessageQueue

_T = TypeVar("_T")
_Member = TypeVar(
    "_Member", AsyncProducer, AsyncPushConsumer, AsyncPullConsumer, AsyncLitePullConsumer
)


class LoopThread:
    """An event loop in a thread of its own; calls may come from any other thread."""

    def __init__(self, name: str = "flintmq-client") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop and return its result."""
        if not self._thread.is_alive():
            work.close()
            raise UsageError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # An interrupted caller does not leave the work running behind its back.
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread; a second call does nothing."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()


class _Blocking(Generic[_Member]):
    """Owns an asynchronous member and the thread in which it lives."""

    def __init__(self, make: Callable[[], _Member]) -> None:
        self._make: Callable[[], _Member] = make
        self._thread: LoopThread | None = None
        self._member: _Member | None = None

    def start(self) -> Self:
        """Connect; `close` ends it."""
        if self._thread is not None:
            raise UsageError("this client is open already")
        thread = LoopThread()
        try:
            self._member = thread.run(self._open())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    async def _open(self) -> _Member:
        # The member makes its locks and events for the loop it is made in.
        member = self._make()
        await member.start()
        return member

    def close(self) -> None:
        """Leave the group, give everything back and end the thread."""
        thread, member = self._thread, self._member
        self._thread = self._member = None
        if thread is None or member is None:
            return
        try:
            thread.run(member.close())
        finally:
            thread.close()

    def _opened(self) -> tuple[LoopThread, _Member]:
        if self._thread is None or self._member is None:
            raise UsageError("not open: use it in a with statement")
        return self._thread, self._member

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Producer(_Blocking[AsyncProducer]):
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


class PushConsumer(_Blocking[AsyncPushConsumer]):
    """`AsyncPushConsumer` for code without asyncio; handlers run in threads of their own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda: AsyncPushConsumer(**options))

    def suspend(self) -> None:
        """Pull nothing more for the time being."""
        thread, consumer = self._opened()
        thread.run(_call(consumer.suspend))

    def resume(self) -> None:
        """Go on."""
        thread, consumer = self._opened()
        thread.run(_call(consumer.resume))


class PullConsumer(_Blocking[AsyncPullConsumer]):
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


class LitePullConsumer(_Blocking[AsyncLitePullConsumer]):
    """`AsyncLitePullConsumer` for code without asyncio; ``for message in consumer`` works."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda: AsyncLitePullConsumer(**options))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What was given last does not count as consumed if the user's block failed.
        thread, consumer = self._opened()
        try:
            thread.run(consumer.__aexit__(kind, error, trace))
        finally:
            self.close()

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
        return thread.run(_call(lambda: consumer.position(queue)))

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
        thread.run(_call(lambda: consumer.pause(*queues)))

    def resume(self, *queues: MessageQueue) -> None:
        """Give messages of these queues again."""
        thread, consumer = self._opened()
        thread.run(_call(lambda: consumer.resume(*queues)))

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


async def _call(function: Callable[[], _T]) -> _T:
    return function()
