"""Reading live topics for tests: straight through the readers, without Spark around them."""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from flintmq.client.assigning.offset_store import RemoteOffsets
from flintmq.client.errors import TopicNotExistError
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.admin import CreateTopicRequest, TopicRequest
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.namesrv import DeleteTopicInNamesrvRequest
from flintmq.spark.live.cluster_options import ClusterConnection
from flintmq.spark.live.live_columns import OutputColumns, live_schema
from flintmq.spark.live.live_options import parse_batch, parse_columns, parse_stream
from flintmq.spark.live.live_reader import LiveReader
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.live.live_stream import LiveStreamReader
from flintmq.spark.live.places import PlaceJson, offsets_of, places_from_json
from flintmq.spark.live.ranges import Offsets
from flintmq.spark.live.stream_plan import ROUTE_INTERVAL_S
from flintmq.testing import EmbeddedCluster

Row = dict[str, Any]


def batch_reader(namesrv: str, **options: str) -> LiveReader:
    """Return the reader that Spark would use for all columns."""
    given = {"namesrv": namesrv, **options}
    columns = parse_columns(given)
    return LiveReader(parse_batch(given), OutputColumns(live_schema(columns), columns))


def read(namesrv: str, **options: str) -> list[Row]:
    """Return the rows of a batch, queue by queue."""
    reader = batch_reader(namesrv, **options)
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


class Ticks:
    """A clock that goes on at each look: ``step_s`` seconds, or enough to ask for routes again."""

    def __init__(self, step_s: float = ROUTE_INTERVAL_S) -> None:
        self._step_s = step_s
        self._now = 0.0

    def __call__(self) -> float:
        self._now += self._step_s
        return self._now


class StreamRun:
    """A streaming query as Spark runs it; a second one goes on from ``start``, a checkpoint."""

    def __init__(self, namesrv: str, *, start: Any = None, now: Any = None, **options: Any) -> None:
        given = {"namesrv": namesrv, **options}
        columns = parse_columns(given)
        output = OutputColumns(live_schema(columns), columns)
        self.reader = LiveStreamReader(parse_stream(given), output, now=now or Ticks(0.5))
        try:
            self.at = self.reader.initialOffset() if start is None else start
        except BaseException:
            self.reader.stop()
            raise

    def plan(self, limit: ReadLimit | None = None) -> tuple[PlaceJson, PlaceJson]:
        """Return start and end of the next micro-batch."""
        limit = limit or self.reader.getDefaultReadLimit()
        return self.at, self.reader.latestOffset(self.at, limit)

    def rows(self, start: PlaceJson, end: PlaceJson) -> list[Row]:
        """Return the rows between two offsets."""
        return [
            row
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]

    def step(self, limit: ReadLimit | None = None) -> list[Row]:
        """Run one micro-batch."""
        start, end = self.plan(limit)
        found = self.rows(start, end)
        self.at = end
        self.reader.commit(end)
        return found

    def everything(self) -> list[Row]:
        """Run one micro-batch without a limit."""
        return self.step(ReadAllAvailable())

    def __enter__(self) -> "StreamRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()


def offsets(value: Any) -> Offsets:
    """Return the offsets of places as Spark keeps them."""
    return offsets_of(places_from_json(value))


def bodies(rows: list[Row]) -> list[str]:
    """Return the bodies of rows, sorted."""
    return sorted(row["body"].decode() for row in rows)


def texts(numbers: range | list[int]) -> list[str]:
    """Return the bodies that `send` has sent, sorted."""
    return sorted(f"m{number}" for number in numbers)


def send(cluster: EmbeddedCluster, topic: str, numbers: range, **fields: Any) -> None:
    """Send numbered messages."""
    for number in numbers:
        cluster.send(topic, f"m{number}".encode(), **fields)


def places(rows: list[Row]) -> Iterator[tuple[int, int]]:
    """Yield queue and offset of rows, in their order."""
    return ((row["queueId"], row["queueOffset"]) for row in rows)


class Admin:
    """Makes, changes and deletes topics of a cluster, as operators do; a context manager."""

    def __init__(self, namesrv: str) -> None:
        self._session = LiveSession(ClusterConnection(namesrv=namesrv))

    def __enter__(self) -> "Admin":
        self._session.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def set_topic(self, topic: str, queue_count: int, *, broker_count: int = 1) -> None:
        """Make a topic, or give it another number of queues; the name server knows it then."""
        header = CreateTopicRequest(
            topic=topic, read_queue_nums=queue_count, write_queue_nums=queue_count, perm=6
        )
        self._session.run(self._tell_brokers(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        until(lambda: self._has_route(topic, queue_count, broker_count))

    def _has_route(self, topic: str, queue_count: int, broker_count: int) -> bool:
        try:
            route = self._session.run(self._session.client.routes.fetch(topic))
        except TopicNotExistError:
            return False
        counts = [one.read_queue_count for one in route.queues]
        return counts == [queue_count] * broker_count

    def delete_topic(self, topic: str) -> None:
        """Delete a topic from brokers and name server."""
        self.forget_topic(topic)
        header = DeleteTopicInNamesrvRequest(topic=topic)
        call = self._session.client.servers.call
        self._session.run(call(RequestCode.DELETE_TOPIC_IN_NAMESRV, header))

    def forget_topic(self, topic: str) -> None:
        """Delete a topic from brokers only."""
        request = TopicRequest(topic=topic)
        self._session.run(self._tell_brokers(RequestCode.DELETE_TOPIC_IN_BROKER, request))

    async def _tell_brokers(self, code: int, header: Header) -> None:
        client = self._session.client
        await client.routes.fetch("TBW102")
        for address in client.routes.all_addresses(masters_only=True):
            await client.call(address, code, header)

    def committed(self, group: str, topic: str, broker: str) -> dict[int, int | None]:
        """Return what a group has committed of each queue."""
        offsets = RemoteOffsets(self._session.client, group)
        queues = self._session.run(self._session.client.routes.subscribe_queues(topic))
        return {
            queue.queue_id: self._session.run(offsets.read(queue))
            for queue in queues
            if queue.broker_name == broker
        }


def until(is_true: Callable[[], object], *, timeout_s: float = 30, pause_s: float = 0.01) -> None:
    """Wait for a condition, which is looked at after each pause."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(pause_s)


SHORT_LIVED: Final[dict[str, Any]] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "fileReservedTime": 0,
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": 10,
    "deleteCommitLogFilesInterval": 1,
}
"""Settings of a broker that deletes a file as soon as it is full; with a manual clock."""


def send_until_cut(cluster: EmbeddedCluster, topic: str, least: int) -> None:
    """Send to a topic until retention has deleted its messages below an offset."""
    noise = random.Random(7)  # What can be compressed would not fill a file.
    for _ in range(20):
        cluster.send(topic, noise.randbytes(150_000))

    def is_cut() -> bool:
        cluster.advance(60_000)
        return cluster.messages(topic)[0].queue_offset >= least

    until(is_cut)
