"""Live topics as a stream.

The offset of the stream is ``{"topic": {"broker": {"queueId": next offset}}}``; it is the only
thing that Spark keeps.  At every trigger the cluster is asked which queues there are: what is new
is read from its first message on.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import DataLossError
from flintmq.spark.live.cluster import Absence, Cluster
from flintmq.spark.live.columns import Output
from flintmq.spark.live.errors import queue_text
from flintmq.spark.live.options import LiveStreamOptions
from flintmq.spark.live.planning import lose, resolve
from flintmq.spark.live.ranges import (
    OffsetJson,
    Offsets,
    QueueRange,
    from_json,
    judge,
    share_out,
    to_json,
)
from flintmq.spark.live.reader import LiveRead, partitions_of
from flintmq.spark.live.session import LiveSession
from flintmq.spark.read_limit import read_limit

logger = logging.getLogger(__name__)

ROUTE_INTERVAL_S: Final = 1.0
"""Spark asks a hundred times a second while nothing is new; the name server is asked less."""


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; executors read them."""

    def __init__(
        self,
        options: LiveStreamOptions,
        output: Output,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._read = LiveRead(options.read, output)
        self._now = now
        self._plan: StreamPlan | None = None

    def initialOffset(self) -> OffsetJson:
        """Return where a new query begins."""
        return to_json(self._planned().first())

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Return how far the next micro-batch goes."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return to_json(self._planned().next(from_json(start), is_limited=is_limited))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options allow a micro-batch."""
        options = self._options
        return read_limit(bytes_max=options.bytes_max, rows_max=options.rows_max)

    def reportLatestOffset(self) -> OffsetJson:
        """Return where the queues ended at the last look, from which the lag can be told."""
        return to_json(self._planned().ends)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the queues end: this query reads no further."""
        self._planned().stop_at_ends()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the ranges between two offsets."""
        ranges = self._planned().ranges(from_json(start), from_json(end))
        return partitions_of(ranges, self._options.read)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range."""
        yield from self._read.batches(partition)

    def commit(self, end: OffsetJson) -> None:
        """Tell the brokers how far the group has come, if they shall know."""
        if self._options.commit_offsets:
            self._planned().commit(from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._plan is not None:
            self._plan.close()
            self._plan = None

    def _planned(self) -> "StreamPlan":
        # Not before it is needed: Spark also makes readers only to send them to executors.
        if self._plan is None:
            self._plan = StreamPlan(self._options, self._now)
        return self._plan


class StreamPlan:
    """The driver's half of a stream: it keeps a connection, and what was seen last."""

    def __init__(self, options: LiveStreamOptions, now: Callable[[], float]) -> None:
        self._options = options
        self._session = LiveSession(options.read.connection).start()
        self._cluster = Cluster(self._session.client, options.read)
        self._now = now
        self._queues: list[MessageQueue] = []
        self._looked_at = float("-inf")
        self._target: Offsets | None = None
        self._committed: Offsets = {}
        self._told: set[tuple[MessageQueue, str]] = set()
        self.ends: Offsets = {}
        """Where the queues ended at the last look."""

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def first(self) -> Offsets:
        """Return where a new query begins."""
        return self._session.run(self._first())

    def next(self, start: Offsets, *, is_limited: bool) -> Offsets:
        """Return how far to go from ``start`` on."""
        return self._session.run(self._next(start, is_limited=is_limited))

    def stop_at_ends(self) -> None:
        """Go no further than the queues reach now."""
        self._target = self._session.run(self._look())

    def ranges(self, start: Offsets, end: Offsets) -> list[QueueRange]:
        """Return what lies between two offsets; a queue that is new begins with its oldest."""
        new = [queue for queue in end if queue not in start]
        begins = self._session.run(self._cluster.begins(new))
        return [
            QueueRange(queue, start[queue] if queue in start else begins[queue], stop)
            for queue, stop in end.items()
        ]

    def commit(self, end: Offsets) -> None:
        """Commit the offsets that have moved."""
        moved = {queue: at for queue, at in end.items() if self._committed.get(queue) != at}
        self._session.run(self._cluster.commit(moved))
        self._committed = end

    async def _first(self) -> Offsets:
        queues = await self._found(at_once=True)
        self._cluster.require(queues)
        await self._cluster.check_expression({queue.topic for queue in queues})
        return await resolve(self._cluster, self._options.read.start, queues)

    async def _found(self, *, at_once: bool) -> list[MessageQueue]:
        """Return the queues, as they are known since a moment ago."""
        if at_once or self._now() - self._looked_at >= ROUTE_INTERVAL_S:
            self._queues = await self._cluster.queues()
            self._looked_at = self._now()
        return self._queues

    async def _look(self) -> Offsets:
        self.ends = await self._cluster.ends(await self._found(at_once=False))
        return self.ends

    async def _next(self, start: Offsets, *, is_limited: bool) -> Offsets:
        held = await self._absent(start)
        ends = {queue: end for queue, end in (await self._look()).items() if queue not in held}
        moved = [queue for queue, end in ends.items() if start.get(queue) != end]
        begins = await self._cluster.begins(moved)
        ranges = [
            self._range(queue, start.get(queue, begins[queue]), begins[queue], ends[queue])
            for queue in moved
        ]
        if is_limited:
            ranges = await self._limited(ranges)
        latest = {queue: end for queue, end in ends.items() if queue not in begins}
        latest |= {one.queue: one.end for one in ranges}
        return latest | held

    def _range(self, queue: MessageQueue, wanted: int, begin: int, end: int) -> QueueRange:
        loss = judge(wanted, begin, end)
        if loss is not None:
            lose(queue, loss, fail=self._options.read.fail_on_data_loss)
            wanted = loss.resume
        if self._target is not None:
            end = min(end, self._target.get(queue, wanted))
        return QueueRange(queue, wanted, max(wanted, end))

    async def _limited(self, ranges: list[QueueRange]) -> list[QueueRange]:
        options = self._options
        if options.rows_max is not None:
            ranges = share_out(ranges, options.rows_max)
        if options.bytes_max is not None:
            sizes = await self._cluster.mean_sizes(ranges)
            ranges = share_out(ranges, options.bytes_max, sizes)
        return ranges

    async def _absent(self, start: Offsets) -> Offsets:
        """Return the offsets of queues that are not there now and may come back.

        Raises:
            UnreachableError: a broker is down, and did not come back.
            DataLossError: a topic was deleted, or has fewer queues.
        """
        held: Offsets = {}
        known = frozenset(await self._found(at_once=False))
        for queue in sorted(start.keys() - known):
            if not self._options.read.selection.means(queue):
                self._say_once(queue, "it is not chosen any more")
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
