"""Live topics as a table: ranges of queues are planned on the driver and read by executors."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.errors import queue_text
from flintmq.spark.live.fetch import CoroutineRunner, RangeFetch, RecordPuller
from flintmq.spark.live.live_columns import LIVE, OutputColumns
from flintmq.spark.live.live_options import LiveOptions
from flintmq.spark.live.live_rows import RangeRows
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.live.places import ProvenRange, SeenRecord
from flintmq.spark.live.planning import batch_ranges, lose
from flintmq.spark.live.pulling import LivePuller
from flintmq.spark.live.queue_identity import check_same
from flintmq.spark.live.ranges import QueueRange, split
from flintmq.spark.live.repeats import RepeatFilter, marks_of

_REPEAT_COLUMNS: Final = ("properties", "queueOffset")


@dataclass(frozen=True, slots=True)
class LivePartition(InputPartition):
    """A range of a queue that one task reads, and what shows that the queue is the right one."""

    wanted: QueueRange
    proofs: tuple[tuple[int, SeenRecord], ...] = ()


def partitions_of(ranges: Sequence[ProvenRange], options: LiveOptions) -> list[InputPartition]:
    """Return ranges, one of each queue, as tasks."""
    parts = split(
        (one.wanted for one in ranges),
        partitions_min=options.partitions_min,
        rows_max=options.partition_rows_max,
    )
    proofs = {one.wanted.queue: one.proofs for one in ranges}
    return [LivePartition(part, proofs[part.queue]) for part in parts]


@dataclass(frozen=True, slots=True)
class LiveRead:
    """Reads ranges of queues as batches, for tables and streams alike; executors get it."""

    options: LiveOptions
    output: OutputColumns

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in the order of the queue."""
        # Where there is nothing to read, Spark hands over a partition of its own.
        if not isinstance(partition, LivePartition):
            return
        with LiveSession(self.options.connection) as session:
            puller = LivePuller(session.client, self.options)
            queue = QueueRead(session, puller, self.options, partition.wanted.queue)
            # Who stops half way has the pulls end before their connection does.
            wanted = ProvenRange(partition.wanted, partition.proofs)
            with closing(self._batches(queue, wanted)) as batches:
                for batch in batches:
                    yield self.output.make(batch)

    def _batches(
        self, queue: "QueueRead", read: ProvenRange
    ) -> Generator[pa.RecordBatch, None, None]:
        schema, wanted = self.output.messages, read.wanted
        if not self.options.drop_repeats:
            yield from queue.batches(read, schema)
            return
        extra = [name for name in _REPEAT_COLUMNS if name not in schema.names]
        wide = pa.schema([*schema, *(pa.field(name, LIVE.kinds[name][1]) for name in extra)])
        repeats = RepeatFilter(
            wanted.start,
            queue,
            queue_name=queue_text(wanted.queue),
            lookback_max=self.options.repeat_lookback,
        )
        for batch in queue.batches(read, wide):
            marks = marks_of(batch.column("properties"))
            kept = batch.filter(repeats.keep(batch.column("queueOffset"), marks))
            if kept.num_rows:
                yield kept.select(schema.names)


class QueueRead:
    """One queue, read by ranges; it is the history that `RepeatFilter` looks back into."""

    def __init__(
        self,
        runner: CoroutineRunner,
        puller: RecordPuller,
        options: LiveOptions,
        queue: MessageQueue,
    ) -> None:
        self._runner = runner
        self._options = options
        self._queue = queue
        self._puller = puller
        self._subscription = options.subscription(queue.topic)

    def batches(self, read: ProvenRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows of a range, and check then that the queue was the right one."""
        fail = self._options.fail_on_data_loss
        yield from self._rows(read.wanted, schema, fail=fail)
        self._runner.run(check_same(self._puller, read, partial(lose, fail=fail)))

    def _rows(
        self, wanted: QueueRange, schema: pa.Schema, *, fail: bool
    ) -> Iterator[pa.RecordBatch]:
        on_loss = partial(lose, fail=fail)
        fetch = RangeFetch(self._runner, self._puller, wanted, on_loss)
        rows = RangeRows(wanted, self._subscription, schema, on_loss)
        yield from rows.batches(fetch.answers())

    def first_offset(self) -> int:
        """Return the offset of the oldest message that the queue still has."""
        answer = self._runner.run(self._puller.pull(self._queue, 0, 1, everything=True))
        return answer.min_offset

    def marks(self, start: int, end: int) -> list[str | None]:
        """Return the marks of earlier messages.

        Retention may delete them meanwhile.  Nobody has asked for their rows, so that is told,
        and is no failure of the read: at worst a repeat passes.
        """
        schema = pa.schema([pa.field("properties", LIVE.kinds["properties"][1])])
        found: list[str | None] = []
        for batch in self._rows(QueueRange(self._queue, start, end), schema, fail=False):
            found += marks_of(batch.column("properties")).to_pylist()
        return found


class LiveReader(DataSourceReader):
    """Plans and reads a batch."""

    def __init__(self, options: LiveOptions, output: OutputColumns) -> None:
        self._options = options
        self._read = LiveRead(options, output)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges to read."""
        with LiveSession(self._options.connection) as session:
            cluster = Cluster(session.client, self._options)
            ranges = session.run(batch_ranges(cluster, self._options))
        return partitions_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range."""
        yield from self._read.batches(partition)
