"""Live topics as a stream.

The offset of the stream is ``{"topic": {"broker": {"queueId": place}}}``; it is the only thing
that Spark keeps.  A place (`flintmq.spark.live.places`) says where the micro-batch ended and began,
and which record was the last: a batch that is repeated covers the same, and a queue that was made
anew is noticed.  At every trigger the cluster is asked which queues there are: what is new is read
from its first message on.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.live_columns import OutputColumns
from flintmq.spark.live.live_options import LiveStreamOptions
from flintmq.spark.live.live_reader import LiveRead, partitions_of
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.live.places import PlaceJson, places_from_json, places_to_json
from flintmq.spark.live.ranges import OffsetJson, to_json
from flintmq.spark.live.stream_plan import StreamPlan
from flintmq.spark.options.read_limit import read_limit


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; executors read them."""

    def __init__(
        self,
        options: LiveStreamOptions,
        output: OutputColumns,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._read = LiveRead(options.read, output)
        self._now = now
        self._plan: StreamPlan | None = None
        self._session: LiveSession | None = None

    def initialOffset(self) -> PlaceJson:
        """Return where a new query begins."""
        return places_to_json(self._planned().first())

    def latestOffset(self, start: PlaceJson, limit: ReadLimit) -> PlaceJson:
        """Return how far the next micro-batch goes."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        places = self._planned().next(places_from_json(start), is_limited=is_limited)
        return places_to_json(places)

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

    def partitions(self, start: PlaceJson, end: PlaceJson) -> Sequence[InputPartition]:
        """Return the ranges between two offsets."""
        ranges = self._planned().ranges(places_from_json(start), places_from_json(end))
        return partitions_of(ranges, self._options.read)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range."""
        yield from self._read.batches(partition)

    def commit(self, end: PlaceJson) -> None:
        """Tell the brokers how far the group has come, if they shall know."""
        if self._options.commit_offsets:
            self._planned().commit(places_from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        self._plan = None
        if self._session is not None:
            self._session.close()
            self._session = None

    def _planned(self) -> "StreamPlan":
        # Not before it is needed: Spark also makes readers only to send them to executors.
        if self._plan is None:
            self._session = LiveSession(self._options.read.connection).start()
            cluster = Cluster(self._session.client, self._options.read)
            self._plan = StreamPlan(self._options, cluster, self._session, now=self._now)
        return self._plan
