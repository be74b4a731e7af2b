"""The driver's half of a stream of live topics: which queues there are, and how far to go."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import DataLossError
from flintmq.spark.live.cluster import Absence, Cluster
from flintmq.spark.live.errors import queue_text
from flintmq.spark.live.fetch import CoroutineRunner
from flintmq.spark.live.live_options import LiveStreamOptions
from flintmq.spark.live.live_session import each
from flintmq.spark.live.places import (
    Places,
    ProvenRange,
    QueuePlace,
    offsets_of,
    proven_range,
)
from flintmq.spark.live.planning import find_loss, lose, make_place, resolve
from flintmq.spark.live.queue_ends import EndsLook, QueueTail, QueueTails
from flintmq.spark.live.ranges import Offsets, QueueRange, share_out

logger = logging.getLogger(__name__)

ROUTE_INTERVAL_S: Final = 1.0
"""Spark asks a hundred times a second while nothing is new; the name server is asked less."""

IDLE_PAUSE_S: Final = 0.1
IDLE_PAUSE_MAX_S: Final = 2.0
QUESTIONS_PER_SECOND: Final = 200
"""A look that found nothing new is followed by a pause, the longer the more it had to ask."""


class StreamPlan:
    """Plans micro-batches; it keeps what was seen last."""

    def __init__(
        self,
        options: LiveStreamOptions,
        cluster: Cluster,
        runner: CoroutineRunner,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._runner = runner
        self._cluster = cluster
        self._now = now
        self._queues: list[MessageQueue] = []
        self._looked_at = float("-inf")
        self._target: Offsets | None = None
        self._committed: Offsets = {}
        self._ends_look = EndsLook(cluster)
        self._look_again_at = float("-inf")
        # Places that were made or proven here, and the store time of the last message then: a
        # restart proves each of them once.
        self._proven: dict[MessageQueue, tuple[QueuePlace, int | None]] = {}
        self._told: set[tuple[MessageQueue, str]] = set()
        self.ends: Offsets = {}
        """Where the queues ended at the last look."""

    def first(self) -> Places:
        """Return where a new query begins."""
        return self._runner.run(self._first())

    def next(self, start: Places, *, is_limited: bool) -> Places:
        """Return how far to go from ``start`` on; where nothing is new, after a pause."""
        return self._runner.run(self._paced(start, is_limited=is_limited))

    def stop_at_ends(self) -> None:
        """Go no further than the queues reach now."""
        self._runner.run(self._look())
        self._target = self.ends

    def ranges(self, start: Places, end: Places) -> list[ProvenRange]:
        """Return what lies between two places; nobody is asked, so a repeat gives the same."""
        return [proven_range(queue, start.get(queue), place) for queue, place in end.items()]

    def commit(self, end: Places) -> None:
        """Commit the offsets that have moved."""
        offsets = offsets_of(end)
        moved = {queue: at for queue, at in offsets.items() if self._committed.get(queue) != at}
        self._runner.run(self._cluster.commit(moved))
        self._committed = offsets

    async def _first(self) -> Places:
        queues = await self._found(at_once=True)
        self._cluster.require(queues)
        await self._cluster.check_expression({queue.topic for queue in queues})
        choice = self._options.read.start
        offsets = await resolve(self._cluster, choice, queues)
        begins = await self._cluster.begins(queues)

        async def place(queue: MessageQueue) -> QueuePlace:
            offset, last = offsets[queue], choice.of(queue).last
            if last is not None:
                return QueuePlace(offset, last=last)
            return await make_place(self._cluster, queue, offset, begins[queue])

        return dict(zip(queues, await each(queues, place), strict=True))

    async def _found(self, *, at_once: bool) -> list[MessageQueue]:
        """Return the queues, as they are known since a moment ago."""
        if at_once or self._now() - self._looked_at >= ROUTE_INTERVAL_S:
            self._queues = await self._cluster.queues()
            self._looked_at = self._now()
            # A topic that was made anew and is empty leaves no trace in the log.
            self._ends_look.forget()
        return self._queues

    async def _look(self) -> QueueTails:
        tails = await self._ends_look.look(await self._found(at_once=False))
        self.ends = {queue: tail.offset for queue, tail in tails.items()}
        return tails

    async def _paced(self, start: Places, *, is_limited: bool) -> Places:
        pause = self._look_again_at - self._now()
        if pause > 0:
            await asyncio.sleep(pause)
        found = await self._next(start, is_limited=is_limited)
        self._look_again_at = float("-inf")
        if found == start:
            pause = self._ends_look.question_count / QUESTIONS_PER_SECOND
            self._look_again_at = self._now() + min(IDLE_PAUSE_MAX_S, max(IDLE_PAUSE_S, pause))
        return found

    async def _next(self, start: Places, *, is_limited: bool) -> Places:
        held = await self._absent(start)
        tails = {queue: tail for queue, tail in (await self._look()).items() if queue not in held}
        moved = [queue for queue, tail in tails.items() if not self._is_at(queue, start, tail)]
        begins = await self._cluster.begins(moved)
        ranges = await each(
            moved,
            lambda queue: self._range(queue, start.get(queue), begins[queue], tails[queue].offset),
        )
        if is_limited:
            ranges = await self._limited(ranges)
        places = await each(
            ranges, lambda one: self._place(one, start.get(one.queue), begins[one.queue])
        )
        latest = {queue: start[queue] for queue in tails if queue not in begins}
        latest |= {one.queue: place for one, place in zip(ranges, places, strict=True)}
        self._proven = {
            queue: (place, tails[queue].store_time_ms) for queue, place in latest.items()
        }
        return latest | held

    def _is_at(self, queue: MessageQueue, start: Places, tail: QueueTail) -> bool:
        """Whether there is nothing to do for a queue: no message is new, and it is the same."""
        place = start.get(queue)
        if place is None or place.offset != tail.offset:
            return False
        return self._proven.get(queue) == (place, tail.store_time_ms)

    async def _range(
        self, queue: MessageQueue, place: QueuePlace | None, begin: int, end: int
    ) -> QueueRange:
        start = begin if place is None else place.offset
        if place is not None:
            loss = await find_loss(self._cluster, queue, place, begin, end)
            if loss is not None:
                lose(queue, loss, fail=self._options.read.fail_on_data_loss)
                start = loss.resume
        if self._target is not None:
            end = min(end, self._target.get(queue, start))
        return QueueRange(queue, start, max(start, end))

    async def _place(self, one: QueueRange, before: QueuePlace | None, begin: int) -> QueuePlace:
        """Return the place at the end of a range."""
        if before is not None and not one.length and one.start == before.offset:
            return before
        return await make_place(self._cluster, one.queue, one.end, begin, one.start)

    async def _limited(self, ranges: list[QueueRange]) -> list[QueueRange]:
        options = self._options
        if options.rows_max is not None:
            ranges = share_out(ranges, options.rows_max)
        if options.bytes_max is not None:
            sizes = await self._cluster.mean_sizes(ranges)
            ranges = share_out(ranges, options.bytes_max, sizes)
        return ranges

    async def _absent(self, start: Places) -> Places:
        """Return the places in queues that are not read now and may be again.

        Raises:
            UnreachableError: a broker is down, and did not come back.
            DataLossError: a topic was deleted, or has fewer queues.
        """
        held: Places = {}
        known = frozenset(await self._found(at_once=False))
        for queue in sorted(start.keys() - known):
            if not self._options.read.selection.means(queue):
                # Who chooses it again goes on here, and gets each message once.
                self._say_once(queue, "it is not chosen any more; its place is kept")
                held[queue] = start[queue]
                continue
            absence = await self._cluster.absence(queue, lambda: self._found(at_once=True))
            if absence is None:
                continue
            if self._options.read.fail_on_data_loss:
                raise DataLossError(queue_text(queue), absence.value)
            self._say_once(queue, absence.value)
            if absence is Absence.CLOSED:
                held[queue] = start[queue]
        return held

    def _say_once(self, queue: MessageQueue, reason: str) -> None:
        if (queue, reason) not in self._told:
            self._told.add((queue, reason))
            logger.warning("queue is not read any more: %s: %s", queue_text(queue), reason)
