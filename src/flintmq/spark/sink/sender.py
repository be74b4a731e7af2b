"""Sending many messages, each to its queue: in order, bounded, and with every answer awaited.

Every queue has a line of its own.  One request of a line is on its way at a time, and it carries
as many messages as wait, so order holds also when a request is repeated.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flintmq.client.messaging.envelope import COMPRESS_FROM
from flintmq.client.messaging.messages import Message, SendResult
from flintmq.client.producing.producer import AsyncProducer
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topics import RETRY_PREFIX
from flintmq.spark.live.errors import LiveError, queue_text
from flintmq.spark.live.live_session import persist
from flintmq.spark.live.repeat_mark import ROW_MARK, RowMark
from flintmq.spark.sink.errors import SendError
from flintmq.spark.sink.sink_options import SinkOptions
from flintmq.spark.sink.task_time import MACHINE_TIME, SinkTime

BATCH_COUNT_MAX: Final = 256
BATCH_BYTES_MAX: Final = 256 << 10
_OVERHEAD: Final = 200
"""What a message takes besides body and properties, about."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    message: Message
    size: int

    @property
    def may_share(self) -> bool:
        """Whether it can be sent together with others: brokers take no delay in a batch.

        A large body goes alone, because only then it is compressed.
        """
        message = self.message
        return (
            not message.delay_level
            and len(message.body) < COMPRESS_FROM
            and not message.topic.startswith(RETRY_PREFIX)
        )


class QueueLines:
    """Sends messages by a producer.  Use it from the producer's event loop only.

    ``put`` waits while too much is under way; ``drain`` returns when everything was acknowledged.
    Both raise what went wrong first; nothing is sent after that.
    """

    def __init__(
        self,
        producer: AsyncProducer,
        options: SinkOptions,
        *,
        time: SinkTime = MACHINE_TIME,
    ) -> None:
        self._producer = producer
        self._options = options
        self._pace = None if options.rate is None else Pace(options.rate, time)
        self._lines: dict[MessageQueue, deque[_Waiting]] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._count = self._bytes = 0
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self.acknowledged = 0
        self.acknowledged_bytes = 0

    async def put(self, queue: MessageQueue, message: Message) -> None:
        """Add a message to the line of a queue."""
        waiting = _Waiting(message, _size(message))
        if self._pace is not None:
            await self._pace.step()
        # A message larger than the limit goes when nothing else is under way.
        while self._failure is None and self._count and not self._has_room(waiting.size):
            await self._wait()
        self._raise_failure()
        self._count += 1
        self._bytes += waiting.size
        self._lines.setdefault(queue, deque()).append(waiting)
        if queue not in self._tasks:
            self._tasks[queue] = asyncio.create_task(self._send_line(queue), name="sink line")

    def _has_room(self, size: int) -> bool:
        options = self._options
        return (
            self._count < options.in_flight_max
            and self._bytes + size <= options.in_flight_bytes_max
        )

    async def drain(self) -> None:
        """Wait until every message was acknowledged."""
        while self._failure is None and self._count:
            await self._wait()
        self._raise_failure()

    async def close(self) -> None:
        """Stop sending, whatever is left."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _send_line(self, queue: MessageQueue) -> None:
        line = self._lines[queue]
        try:
            while line and self._failure is None:
                part = _take(line)
                await self._send(queue, [one.message for one in part])
                size = sum(one.size for one in part)
                self._count -= len(part)
                self._bytes -= size
                self.acknowledged += len(part)
                self.acknowledged_bytes += size
                self._changed.set()
        except Exception as error:
            # Here the task of a line ends; whoever puts or drains raises it.
            self._failure = self._failure or error
        finally:
            del self._tasks[queue]
            self._changed.set()

    async def _send(self, queue: MessageQueue, messages: list[Message]) -> None:
        """Send to one queue, and to no other, until that is acknowledged or hopeless."""
        name = f"{queue_text(queue)}, {_rows_text(messages)}"
        try:
            results = await persist(
                name,
                self._options.retries,
                lambda: self._attempt(queue, messages),
                # A broker may come back at another address.
                lambda: self._producer.client.routes.fetch(queue.topic),
            )
        except LiveError as error:
            raise SendError(str(error), self.acknowledged) from error
        for result in results:
            if result.status not in self._options.accepted:
                reason = (
                    f"{name}: stored, but not as safely as promised: {result.status.value} "
                    "(the option acceptStatus lets it count)"
                )
                raise SendError(reason, self.acknowledged)

    async def _attempt(self, queue: MessageQueue, messages: list[Message]) -> list[SendResult]:
        if len(messages) == 1:
            return [await self._producer.send(messages[0], queue=queue)]
        return await self._producer.send_batch(messages, queue=queue)


def _rows_text(messages: Sequence[Message]) -> str:
    """Return which rows of their task messages were."""
    first, last = (
        RowMark.parse(one.properties.get(ROW_MARK)) for one in (messages[0], messages[-1])
    )
    if first is None or last is None:
        return f"{len(messages)} messages"
    rows = f"row {first.sequence}"
    if len(messages) > 1:
        rows = f"{len(messages)} of the rows {first.sequence} to {last.sequence}"
    return f"{rows} of partition {first.partition}"


def _take(line: deque[_Waiting]) -> list[_Waiting]:
    """Take what goes in one request from the head of a line."""
    part = [line.popleft()]
    size = part[0].size
    while (
        line
        and part[0].may_share
        and line[0].may_share
        and len(part) < BATCH_COUNT_MAX
        and size + line[0].size <= BATCH_BYTES_MAX
    ):
        size += line[0].size
        part.append(line.popleft())
    return part


def _size(message: Message) -> int:
    properties = sum(len(name) + len(value) for name, value in message.properties.items())
    return _OVERHEAD + len(message.body) + properties


class Pace:
    """Lets so many steps a second pass, evenly; what was not used is not saved up."""

    def __init__(self, rate: float, time: SinkTime) -> None:
        self._step_s = 1 / rate
        self._time = time
        self._next = time.monotonic()

    async def step(self) -> None:
        """Wait for the turn."""
        now = self._time.monotonic()
        if self._next > now + _PACE_S:
            await self._time.sleep(self._next - now)
        self._next = max(self._next, now - _PACE_S) + self._step_s


_PACE_S: Final = 0.05
"""Shorter waits than this are put together."""
