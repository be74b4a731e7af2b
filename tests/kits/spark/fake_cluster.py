"""A cluster of one broker in memory, which can lose, delete and replace what it has."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from flintmq.client.errors import TopicNotExistError
from flintmq.client.pulling.puller import PullAnswer, PullStatus
from flintmq.format.stored.record_encoding import encode_record
from flintmq.format.stored.record_layout import PHYSICAL_OFFSET_AT
from flintmq.format.wire.bodies.dialect import dumps_body
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.codec import Header
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live.cluster import Absence, Cluster
from flintmq.spark.live.errors import RefusedReadError, queue_text
from flintmq.spark.live.ranges import Offsets, QueueRange

BROKER: Final = "broker-a"
PULL_COUNT: Final = 32
_T = TypeVar("_T")


class _NoWaiting(selectors.SelectSelector):
    """Never waits, and adds up for how long it was to."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # While there is work at hand, nobody has to ask the system whether there is more.
        if timeout == 0:
            return []
        self.waited_s += timeout or 0
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _NoWaiting) -> None:
        self._waits = selector
        super().__init__(selector)

    def time(self) -> float:
        return self._waits.waited_s


class VirtualTime:
    """Runs coroutines in a loop whose time goes on when all of them wait: nobody sleeps."""

    def __init__(self) -> None:
        self._loop = _VirtualLoop(_NoWaiting())

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """End the loop."""
        self._loop.close()


@dataclass
class FakeQueue:
    """The messages of a queue from ``begin`` on: a number that tells them apart, and a record."""

    begin: int = 0
    messages: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset that the next message gets."""
        return self.begin + len(self.messages)

    def number_at(self, offset: int) -> int | None:
        """Return which message stands at an offset."""
        is_there = self.begin <= offset < self.end
        return self.messages[offset - self.begin][0] if is_there else None


class FakeCluster(Cluster):
    """Answers what readers ask; its methods without a word on asking are what happens to it."""

    def __init__(self, broker: str = BROKER) -> None:
        self.puller = self
        self._broker = broker
        self.tables: dict[str, list[FakeQueue]] = {}
        self.asked: list[int] = []
        self._log: dict[int, bytes] = {}
        self._log_end = 0
        self._boot = 1
        self._now_ms = 1_000
        self._numbers = 0
        self._times: dict[int | None, int] = {}

    # -- what happens ------------------------------------------------------------------------

    def make(self, topic: str, queue_count: int) -> None:
        """Make a topic, or give it more queues."""
        table = self.tables.setdefault(topic, [])
        table += [FakeQueue() for _ in range(queue_count - len(table))]

    def begin_numbers(self, first: int) -> None:
        """Number messages from here on, where several brokers are to have different ones."""
        self._numbers = first

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        del self.tables[topic]

    def append(self, topic: str, queue_id: int, count: int, *, body: bytes | None = None) -> None:
        """Store messages; without ``body`` they have their numbers."""
        queue = self.tables[topic][queue_id]
        for _ in range(count):
            self._numbers += 1
            self._now_ms += 1
            record = encode_record(
                topic=topic.encode(),
                queue_id=queue_id,
                flag=0,
                sys_flag=0,
                queue_offset=queue.end,
                physical_offset=self._log_end,
                born_timestamp=self._now_ms,
                born_host=bytes(8),
                store_timestamp=self._now_ms,
                store_host=bytes(8),
                reconsume_times=0,
                prepared_transaction_offset=0,
                body=b"%d" % self._numbers if body is None else body,
                properties=b"",
            )
            self._log[self._log_end] = record
            self._log_end += len(record)
            self._times[self._numbers] = self._now_ms
            queue.messages.append((self._numbers, record))

    def expire(self, topic: str, queue_id: int, count: int) -> None:
        """Delete the oldest messages of a queue."""
        queue = self.tables[topic][queue_id]
        count = min(count, len(queue.messages))
        del queue.messages[:count]
        queue.begin += count

    def empty_store(self) -> None:
        """Start again with an empty store, and the topics made anew."""
        self._restart(0)
        self.tables = {topic: [FakeQueue() for _ in it] for topic, it in self.tables.items()}

    def cut_back(self, topic: str, queue_id: int, count: int) -> None:
        """Start again after a power failure that has taken the newest messages of a queue.

        With them goes all that was stored since, whatever queue it is in.
        """
        queue = self.tables[topic][queue_id]
        lost = queue.messages[len(queue.messages) - min(count, len(queue.messages)) :]
        self._restart(min((_place(record) for _, record in lost), default=self._log_end))
        for table in self.tables.values():
            for one in table:
                one.messages = [
                    (number, record)
                    for number, record in one.messages
                    if _place(record) < self._log_end
                ]

    def _restart(self, log_end: int) -> None:
        self._boot += 1
        self._log_end = log_end
        self._log = {at: record for at, record in self._log.items() if at < log_end}

    # -- what is asked -----------------------------------------------------------------------

    async def queues(self) -> list[MessageQueue]:
        return [
            MessageQueue(topic, self._broker, queue_id)
            for topic, table in sorted(self.tables.items())
            for queue_id in range(len(table))
        ]

    def require(self, queues: Collection[MessageQueue]) -> None:
        pass

    async def check_expression(self, topics: Iterable[str]) -> None:
        pass

    async def absence(
        self, queue: MessageQueue, look: Callable[[], Awaitable[Collection[MessageQueue]]]
    ) -> Absence | None:
        return None if queue in await look() else Absence.DELETED

    async def begins(self, queues: Iterable[MessageQueue]) -> Offsets:
        return {queue: self.found(queue).begin for queue in self._counted(queues)}

    async def ends(self, queues: Iterable[MessageQueue]) -> Offsets:
        return {queue: self.found(queue).end for queue in self._counted(queues)}

    def _counted(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        found = list(queues)
        self.asked += [RequestCode.GET_MAX_OFFSET] * len(found)
        return found

    async def mean_sizes(self, ranges: Iterable[QueueRange]) -> dict[MessageQueue, int]:
        return {one.queue: 100 for one in ranges}

    async def ask_home(self, queue: MessageQueue, code: int, header: Header | None = None) -> bytes:
        self.asked.append(code)
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = {
                "bootTimestamp": str(self._boot),
                "commitLogMaxOffset": str(self._log_end),
                "dispatchBehindBytes": "0",
            }
            return dumps_body({"table": table})
        assert code == RequestCode.GET_TOPIC_STATS_INFO
        bounds = {
            MessageQueue(queue.topic, self._broker, number): {
                "minOffset": one.begin,
                "maxOffset": one.end,
                "lastUpdateTimestamp": self._times.get(one.number_at(one.end - 1), 0),
            }
            for number, one in enumerate(self.tables[queue.topic])
        }
        return dumps_body({"offsetTable": bounds})

    async def log_bounds(self, queue: MessageQueue) -> tuple[int, int] | None:
        return 0, self._log_end

    async def record_in_log(self, queue: MessageQueue, physical_offset: int) -> bytes | None:
        return self._log.get(physical_offset, b"")

    async def pull(
        self, queue: MessageQueue, offset: int, count_max: int, *, everything: bool = False
    ) -> PullAnswer:
        await asyncio.sleep(0)
        self.asked.append(RequestCode.PULL_MESSAGE)
        if queue.topic not in self.tables or queue.queue_id >= len(self.tables[queue.topic]):
            cause = TopicNotExistError("no topic")
            raise RefusedReadError(queue_text(queue), str(cause)) from cause
        found = self.found(queue)
        status, body, following = PullStatus.OFFSET_ILLEGAL, b"", found.begin
        if offset > found.end:
            following = found.end
        elif offset == found.end:
            status, following = PullStatus.NO_NEW_MESSAGE, offset
        elif offset >= found.begin:
            some = found.messages[offset - found.begin :][: min(PULL_COUNT, count_max)]
            status, following = PullStatus.FOUND, offset + len(some)
            body = b"".join(record for _, record in some)
        return PullAnswer(status, offset, body, following, found.begin, found.end)

    def found(self, queue: MessageQueue) -> FakeQueue:
        """Return a queue as it is now."""
        return self.tables[queue.topic][queue.queue_id]


def _place(record: bytes) -> int:
    """Return where a record stands in the log."""
    return int.from_bytes(record[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big")
