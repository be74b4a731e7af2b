"""Following a topic: all messages that arrive, or that have arrived since some moment.

It is no member of a group, so it takes nothing from anybody and commits nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.admin.admin_errors import MissingError
from flintmq.client.pulling.pull_consumer import AsyncPullConsumer
from flintmq.errors import FlintError
from flintmq.model.subscription import EVERYTHING, TAG
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.model.message_queue import MessageQueue

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group of tools, which every broker has."""

WAIT_MS: Final = 5000
"""How long a broker keeps a pull that finds nothing."""
IDLE_S: Final = 0.2
"""How long to wait after a pull that was answered at once with nothing."""
RETRY_S: Final = 1.0
ROUTE_S: Final = 10.0
"""How often it is looked for queues that are new."""
HELD_COUNT_MAX: Final = 64
"""Messages that may wait for whoever reads them; then nothing more is pulled."""
QUEUE_COUNT_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TailStart:
    """Where to begin in each queue: at its end, unless something else is said."""

    from_ms: int | None = None
    """At the first message that was stored at this time or later."""
    last_count: int = 0
    """So many messages before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailFilter:
    """Which messages are wanted; the broker chooses them."""

    expression: str = EVERYTHING
    expression_type: str = TAG


async def existing_queues(consumer: AsyncPullConsumer, topic: str) -> list[MessageQueue]:
    """Return the queues of a topic; MissingError if no broker has it."""
    found = await consumer.queues(topic)
    if not found:
        raise MissingError(f"no broker has the topic {topic}")
    return found


class TopicTail:
    """The messages of a topic as they come.  Use `following`."""

    def __init__(
        self,
        consumer: AsyncPullConsumer,
        topic: str,
        *,
        start: TailStart,
        wanted: TailFilter,
        on_trouble: Callable[[str], None],
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._start = start
        self._wanted = wanted
        self._on_trouble = on_trouble
        self._arrived: asyncio.Queue[ReceivedMessage | None] = asyncio.Queue(HELD_COUNT_MAX)
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._failure: FlintError | None = None

    @classmethod
    @asynccontextmanager
    async def following(
        cls,
        client: ClientInstance,
        topic: str,
        *,
        start: TailStart | None = None,
        wanted: TailFilter | None = None,
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> AsyncIterator[TopicTail]:
        """Follow a topic while the context lasts; where to begin is settled when it is entered.

        ``on_trouble`` hears of brokers that cannot be asked; they are asked again.
        """
        async with AsyncPullConsumer(group=TOOLS_GROUP, client=client) as consumer:
            tail = cls(
                consumer,
                topic,
                start=start or TailStart(),
                wanted=wanted or TailFilter(),
                on_trouble=on_trouble,
            )
            await tail._take_up(is_first=True)
            routes = asyncio.create_task(tail._look_for_queues(), name=f"queues of {topic}")
            try:
                yield tail
            finally:
                tasks = [routes, *tail._pulls.values()]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def next(self, timeout_s: float | None = None) -> ReceivedMessage | None:
        """Return the next message; None if none has come in time.

        Raises the error of a broker that refused.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                message = await self._arrived.get()
                if message is not None:
                    return message
        if self._failure is not None:
            raise self._failure
        return None

    async def _look_for_queues(self) -> None:
        while True:
            await asyncio.sleep(ROUTE_S)
            try:
                await self._take_up(is_first=False)
            except RemotingError as error:
                self._on_trouble(f"{self._topic}: {error}")

    async def _take_up(self, *, is_first: bool) -> None:
        """Begin with queues that are new; those that come later are read from their beginning."""
        look = existing_queues if is_first else AsyncPullConsumer.queues
        found = await look(self._consumer, self._topic)
        new = [queue for queue in found if queue not in self._pulls]
        offsets = await asyncio.gather(*(self._first_offset(one, is_first) for one in new))
        for queue, offset in zip(new, offsets, strict=True):
            if len(self._pulls) < QUEUE_COUNT_MAX:
                self._pulls[queue] = asyncio.create_task(self._pull(queue, offset))

    async def _first_offset(self, queue: MessageQueue, is_first: bool) -> int:
        begin = await self._consumer.begin_offset(queue)
        if not is_first:
            return begin
        if self._start.from_ms is not None:
            return max(await self._consumer.offset_at(queue, self._start.from_ms), begin)
        return max(await self._consumer.end_offset(queue) - self._start.last_count, begin)

    async def _pull(self, queue: MessageQueue, offset: int) -> None:
        is_in_trouble = False
        while True:
            try:
                result = await self._consumer.pull(
                    queue,
                    offset,
                    expression=self._wanted.expression,
                    expression_type=self._wanted.expression_type,
                    wait_ms=WAIT_MS,
                )
            except RemotingError as error:
                if not is_in_trouble:
                    self._on_trouble(f"{queue.broker_name}: {error}")
                is_in_trouble = True
                await asyncio.sleep(RETRY_S)
                continue
            except FlintError as error:
                self._failure = self._failure or error
                await self._arrived.put(None)
                return
            is_in_trouble = False
            for message in result.messages:
                await self._arrived.put(message)
            offset = result.next_offset
            if not result.messages and result.elapsed_ms < WAIT_MS / 2:
                await asyncio.sleep(IDLE_S)
