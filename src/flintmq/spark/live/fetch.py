"""Getting a range of a queue from its broker: several pulls under way, answers in order.

A range is cut into segments; each is pulled from its start to its end, and some of them at the
same time.  So it does not matter how few messages a broker gives at once (RocketMQ: 32), nor
where its answers end.  Segments that are fetched ahead wait in memory, bounded by their number
and by the bytes of each.

The pulls of a short range that is fetched ahead overlap by one record: it shows that an answer is
of the same queue as the one before.  So nobody has to ask again when all is read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from flintmq.client.errors import TopicNotExistError
from flintmq.client.pulling.puller import PullAnswer, PullStatus
from flintmq.format.stored.record_layout import MAGIC_AT, SIZE_AT
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live.errors import FalseAnswerError, RefusedReadError, queue_text
from flintmq.spark.live.ranges import Loss, QueueRange

IN_FLIGHT_MAX: Final = 8
SEGMENT_COUNT_FIRST: Final = 32
SEGMENT_COUNT_MAX: Final = 8192
SEGMENT_BYTES: Final = 512 << 10
"""About so many bytes a segment shall have."""

AHEAD_COUNT_MAX: Final = 256
"""A range of so many messages is fetched by one segment if it is fetched ahead."""

OVERLAP_BYTES_MAX: Final = 8 << 10
"""Answers overlap where their records are not larger than this, on average."""

SEGMENT_BYTES_MAX: Final = 4 << 20
"""A segment ends behind so many bytes; what is left of it is fetched when it is needed."""

PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 1.0
WAITS_MAX: Final = 8
"""How often a broker is asked again that has no message yet where there shall be one."""

_T = TypeVar("_T")

IsRecord = Callable[[bytes], bool]
"""Whether these bytes are the record that somebody knows."""

OnLoss = Callable[[MessageQueue, Loss], None]
"""Is told of messages that are not there; raises where that is an error."""


class Fetched(NamedTuple):
    """Records of one queue from ``start`` to before ``end``, one behind the other.

    A broker that filters may have added some from behind the end.  ``is_lost`` says that there
    are none, and that this was told.  ``begin`` is the oldest offset that the queue had when the
    broker answered, None if it did not say.  ``is_proven`` says that the answer began with the
    record before ``start``, and that this was the one that was known; it is not in ``body``.
    """

    start: int
    end: int
    body: bytes = b""
    is_lost: bool = False
    begin: int | None = None
    is_proven: bool = False


class CoroutineRunner(Protocol):
    """Runs coroutines for code that is not asynchronous."""

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result; its tasks go on meanwhile."""
        ...


class RecordPuller(Protocol):
    """Pulls records of a queue; `LivePuller` does it over the network."""

    async def pull(
        self, queue: MessageQueue, offset: int, count_max: int, *, everything: bool = False
    ) -> PullAnswer:
        """Ask for messages from an offset on."""
        ...


async def pull_patiently(
    puller: RecordPuller, wanted: QueueRange, on_loss: OnLoss, *, everything: bool = False
) -> PullAnswer | None:
    """Pull from the start of a range; a topic that does not exist is asked for several times.

    None if the topic was deleted and ``on_loss`` accepts the loss.
    """
    queue, start, end = wanted
    for waits in range(1, WAITS_MAX + 1):
        try:
            return await puller.pull(queue, start, end - start, everything=everything)
        except RefusedReadError as error:
            if not isinstance(error.__cause__, TopicNotExistError):
                raise
            if waits == WAITS_MAX:
                on_loss(queue, Loss(end, f"the topic was deleted: {error.cause}"))
        # A name server that has just started knows a topic when its broker has registered.
        await asyncio.sleep(min(PAUSE_MAX_S, PAUSE_FIRST_S * 2**waits))
    return None


class RangeFetch:
    """Fetches one range.  ``on_loss`` is told of every message that is not there any more."""

    def __init__(
        self,
        runner: CoroutineRunner,
        puller: RecordPuller,
        wanted: QueueRange,
        on_loss: OnLoss,
    ) -> None:
        self._runner = runner
        self._puller = puller
        self._queue = wanted.queue
        self._next = wanted.start
        self._end = wanted.end
        self._on_loss = on_loss
        self._segment_count = SEGMENT_COUNT_FIRST
        self._under_way: deque[tuple[int, asyncio.Task[list[Fetched]]]] = deque()
        self._ahead: list[Fetched] = []

    async def begin(self, is_before: IsRecord | None = None) -> None:
        """Fetch a short range, or its first segment, before anybody asks for it.

        It is for readers that want messages of all tags.  ``is_before`` knows the record before
        the range; the broker had that when the range was planned.
        """
        if not self._is_left:
            return
        if self._end - self._next > AHEAD_COUNT_MAX:
            self._ahead = await self._head()
            return
        start, self._next = self._next, self._end
        self._ahead = await self._segment(start, self._end, is_before, overlaps=True)
        reached = self._ahead[-1].end
        if reached < self._end:
            self._under_way.append((self._end, self._start(reached, self._end)))

    @property
    def ahead_bytes(self) -> int:
        """How many bytes were fetched before anybody asked for them."""
        return sum(len(one.body) for one in self._ahead)

    def answers(self) -> Generator[Fetched, None, None]:
        """Yield what the broker has, in the order of the queue."""
        try:
            yield from self._ahead
            while self._is_left:
                yield from self._runner.run(self._head())
        finally:
            if self._under_way:
                self._runner.run(self._stop())

    @property
    def _is_left(self) -> bool:
        return bool(self._under_way) or self._next < self._end

    async def _head(self) -> list[Fetched]:
        """Return the next segment, while others are fetched behind it."""
        self._fill()
        end, task = self._under_way.popleft()
        found = await task
        reached = found[-1].end
        if reached < end:
            self._under_way.appendleft((end, self._start(reached, end)))
        self._learn(found)
        self._fill()
        return found

    def _fill(self) -> None:
        while len(self._under_way) < IN_FLIGHT_MAX and self._next < self._end:
            end = min(self._end, self._next + self._segment_count)
            self._under_way.append((end, self._start(self._next, end)))
            self._next = end

    def _start(self, start: int, end: int) -> asyncio.Task[list[Fetched]]:
        return asyncio.create_task(self._segment(start, end), name=f"segment {start}")

    def _learn(self, found: list[Fetched]) -> None:
        """Make segments as long as their messages are small."""
        size = sum(len(one.body) for one in found)
        count = found[-1].end - found[0].start
        fitting = SEGMENT_BYTES * count // max(1, size)
        self._segment_count = max(1, min(SEGMENT_COUNT_MAX, fitting))

    async def _stop(self) -> None:
        tasks = [task for _, task in self._under_way]
        self._under_way.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one segment -------------------------------------------------------------------------

    async def _segment(
        self, start: int, end: int, is_before: IsRecord | None = None, *, overlaps: bool = False
    ) -> list[Fetched]:
        """Return the records from ``start`` on, up to ``end`` or until they are many bytes."""
        found: list[Fetched] = []
        size = waits = 0
        while start < end and size < SEGMENT_BYTES_MAX:
            proven = None if is_before is None else await self._proven(start, end, is_before)
            answer = proven or await self._pull(start, end)
            is_before = None
            if answer is None:
                found.append(Fetched(start, end, is_lost=True))
                break
            if answer.next_offset <= start:
                # A replica may be behind its master.
                waits += 1
                if waits > WAITS_MAX:
                    found.append(self._ended(start, end, answer))
                    break
                await asyncio.sleep(min(PAUSE_MAX_S, PAUSE_FIRST_S * 2**waits))
                continue
            waits = 0
            is_lost = answer.status is PullStatus.OFFSET_ILLEGAL
            if is_lost:
                self._moved(start, answer)
            reached = min(answer.next_offset, end)
            found.append(
                Fetched(
                    start,
                    reached,
                    answer.body,
                    is_lost=is_lost,
                    begin=answer.min_offset,
                    is_proven=proven is not None,
                )
            )
            size += len(answer.body)
            if overlaps and 0 < len(answer.body) <= OVERLAP_BYTES_MAX * (reached - start):
                is_before = answer.body.endswith
            start = reached
        return found

    async def _proven(self, start: int, end: int, is_before: IsRecord) -> PullAnswer | None:
        """Pull from the record before ``start`` on; None if that is not the one that is known.

        Without a proof nothing is told and nothing is taken: the answer to another pull counts.
        """
        try:
            answer = await self._puller.pull(self._queue, start - 1, end - start + 1)
        except RefusedReadError:
            return None
        if answer.next_offset <= start:
            return None
        size = int.from_bytes(answer.body[SIZE_AT:MAGIC_AT], "big")
        record = answer.body[:size]
        if not record or len(record) < size or not is_before(record):
            return None
        return answer._replace(offset=start, body=answer.body[size:])

    async def _pull(self, start: int, end: int) -> PullAnswer | None:
        """Return an answer; None if the topic was deleted and a loss is accepted."""
        return await pull_patiently(
            self._puller, QueueRange(self._queue, start, end), self._on_loss
        )

    def _moved(self, start: int, answer: PullAnswer) -> None:
        if answer.next_offset > answer.max_offset:
            raise FalseAnswerError(
                queue_text(self._queue),
                f"{start} is outside of the queue, and {answer.next_offset} behind its end",
            )
        reason = f"the queue starts at {answer.min_offset} now, {start} is deleted"
        self._on_loss(self._queue, Loss(answer.next_offset, reason))

    def _ended(self, start: int, end: int, answer: PullAnswer) -> Fetched:
        reason = (
            f"the queue ends at {answer.max_offset} while there shall be messages up to {end}: "
            "it went backwards, as a topic does that is deleted and made anew"
        )
        self._on_loss(self._queue, Loss(end, reason))
        return Fetched(start, end, is_lost=True)
