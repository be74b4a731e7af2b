"""A queue and the members that consume it, one step at a time.

The consuming code is the real one; broker, handlers and giving back are in the hands of the test.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from flintmq.client.assigning.assigned_queue import AssignedQueue
from flintmq.client.assigning.offset_store import NotedOffsets, OffsetStore
from flintmq.client.consuming.concurrent_service import ConcurrentService
from flintmq.client.consuming.consume_statistics import ConsumeStatistics
from flintmq.client.consuming.handlers import ConsumeResult, HandlerRunner, Outcome
from flintmq.client.consuming.orderly_service import OrderlyService
from flintmq.client.consuming.push_settings import PushSettings
from flintmq.client.messaging.messages import ReceivedMessage
from flintmq.client.pulling.send_back import SendBack
from flintmq.format.stored.record import Record
from flintmq.model.message_queue import MessageQueue

QUEUE: Final = MessageQueue("orders", "broker-a", 0)
NOW_MS: Final = 1_700_000_000_000


def message(offset: int) -> ReceivedMessage:
    record = Record(
        size=100,
        body_crc=0,
        queue_id=QUEUE.queue_id,
        flag=0,
        queue_offset=offset,
        physical_offset=offset * 100,
        sys_flag=0,
        born_timestamp=0,
        born_host=bytes(8),
        store_timestamp=0,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"%d" % offset,
        topic=QUEUE.topic,
        properties_text=b"",
    )
    return ReceivedMessage(record, QUEUE)


def is_wanted(offset: int) -> bool:
    """Whether a message has a tag that the group subscribes to."""
    return offset % 5 != 4


@dataclass(slots=True)
class Broker:
    """What outlives the members."""

    end: int = 0
    committed: int = 0
    handled: list[int] = field(default_factory=list)
    given_back: set[int] = field(default_factory=set)
    takes_back: bool = True

    def is_passed_safely(self, offset: int) -> bool:
        """Whether everything before an offset is handled, to be tried later, or not wanted."""
        return set(filter(is_wanted, range(offset))) <= self.safe

    @property
    def safe(self) -> set[int]:
        """Messages that cannot be lost any more."""
        return {*self.handled, *self.given_back}


class _Handlers:
    """Handlers that come to an end when the test says so."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.at_work: list[tuple[list[int], asyncio.Future[bool]]] = []

    async def run(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        offsets = [one.queue_offset for one in messages]
        future = asyncio.get_running_loop().create_future()
        entry = (offsets, future)
        self.at_work.append(entry)
        try:
            is_success = await future
        finally:
            self.at_work.remove(entry)
        if is_success:
            self._broker.handled += offsets
        return Outcome(ConsumeResult.SUCCESS if is_success else ConsumeResult.LATER)


class _GivingBack:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def give(self, one: ReceivedMessage, *, delay_level: int = 0) -> bool:
        await asyncio.sleep(0)
        if self._broker.takes_back:
            self._broker.given_back.add(one.queue_offset)
        return self._broker.takes_back

    async def bury(self, one: ReceivedMessage) -> bool:
        return await self.give(one)


class Member:
    """One member of the group; it may have the queue or not."""

    def __init__(self, broker: Broker, *, orderly: bool, batch_size: int) -> None:
        self.broker = broker
        self.offsets = NotedOffsets()
        self.handlers = _Handlers(broker)
        settings = PushSettings(
            orderly=orderly,
            concurrency=3,
            batch_size=batch_size,
            local_retry_ms=1,
            suspend_queue_ms=10,
            reconsume_times_max=1 if orderly else None,
        )
        kind = OrderlyService if orderly else ConcurrentService
        self.consuming = kind(
            cast(HandlerRunner, self.handlers),
            settings,
            offsets=cast(OffsetStore, self.offsets),
            send_back=cast(SendBack, _GivingBack(broker)),
            statistics=ConsumeStatistics(),
            now_ms=lambda: NOW_MS,
        )
        self.one: AssignedQueue | None = None

    def take_up(self) -> None:
        self.offsets.forget(QUEUE)
        self.one = AssignedQueue(QUEUE, self.broker.committed, now_ms=NOW_MS)
        self.one.held.lock(now_ms=NOW_MS)
        self.consuming.begin(self.one)

    def pull(self, count: int) -> None:
        one = self.one
        assert one is not None
        end = min(one.next_offset + count, self.broker.end)
        messages = [message(offset) for offset in range(one.next_offset, end) if is_wanted(offset)]
        one.next_offset = end
        offset = one.held.put(messages, next_offset=end)
        if offset >= 0:
            self.offsets.update(QUEUE, offset, increase_only=True)
        if messages:
            self.consuming.arrived(one, messages)

    def persist(self) -> None:
        noted = self.offsets.noted(QUEUE)
        if noted is not None:
            self.broker.committed = noted

    async def give_up(self) -> None:
        one, self.one = self.one, None
        assert one is not None
        one.drop()
        await self.consuming.settle(one)
        self.persist()
        self.offsets.forget(QUEUE)

    async def crash(self) -> None:
        """End at once: nothing more is committed."""
        if self.one is not None:
            self.one.drop()
            self.one = None
        self.offsets.forget(QUEUE)
        await self.consuming.stop(0)

    async def stop(self) -> None:
        if self.one is not None:
            self.one.leave()
        await self.consuming.stop(0)
        if self.one is not None:
            self.one.drop()
            self.persist()
            self.one = None


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still until it is skipped: what happens is repeatable."""

    skipped_s = 0.0

    def time(self) -> float:
        return self.skipped_s

    def skip(self, seconds: float) -> None:
        """Let pauses that are not longer come to their end."""
        self.skipped_s += seconds
        self.run_until_complete(settle_down())


async def settle_down() -> None:
    """Let everything run that can."""
    for _ in range(12):
        await asyncio.sleep(0)
