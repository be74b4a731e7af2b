"""Reading live topics for tests: straight through the readers, without Spark around them."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from flintmq.client.errors import TopicNotExistError
from flintmq.client.offset_store import RemoteOffsets
from flintmq.format.codes import RequestCode
from flintmq.format.headers.admin import CreateTopicRequest, TopicRequest
from flintmq.format.headers.codec import Header
from flintmq.format.headers.namesrv import DeleteTopicInNamesrvRequest
from flintmq.spark.live.columns import Output, live_schema
from flintmq.spark.live.connection import Connection
from flintmq.spark.live.options import parse_batch, parse_columns, parse_stream
from flintmq.spark.live.ranges import OffsetJson
from flintmq.spark.live.reader import LiveReader
from flintmq.spark.live.session import LiveSession
from flintmq.spark.live.stream import LiveStreamReader
from flintmq.testing import EmbeddedCluster

Row = dict[str, Any]


def batch_reader(namesrv: str, **options: str) -> LiveReader:
    """Return the reader that Spark would use for all columns."""
    given = {"namesrv": namesrv, **options}
    columns = parse_columns(given)
    return LiveReader(parse_batch(given), Output(live_schema(columns), columns))


def read(namesrv: str, **options: str) -> list[Row]:
    """Return the rows of a batch, queue by queue."""
    reader = batch_reader(namesrv, **options)
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


class StreamRun:
    """A streaming query as Spark runs it; a second one goes on from ``start``, a checkpoint."""

    def __init__(self, namesrv: str, *, start: Any = None, now: Any = None, **options: Any) -> None:
        given = {"namesrv": namesrv, **options}
        columns = parse_columns(given)
        extra = {} if now is None else {"now": now}
        self.reader = LiveStreamReader(
            parse_stream(given), Output(live_schema(columns), columns), **extra
        )
        self.at = self.reader.initialOffset() if start is None else start

    def plan(self, limit: ReadLimit | None = None) -> tuple[OffsetJson, OffsetJson]:
        """Return start and end of the next micro-batch."""
        limit = limit or self.reader.getDefaultReadLimit()
        return self.at, self.reader.latestOffset(self.at, limit)

    def rows(self, start: OffsetJson, end: OffsetJson) -> list[Row]:
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
        self._session = LiveSession(Connection(namesrv=namesrv))

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
        request = TopicRequest(topic=topic)
        self._session.run(self._tell_brokers(RequestCode.DELETE_TOPIC_IN_BROKER, request))
        header = DeleteTopicInNamesrvRequest(topic=topic)
        call = self._session.client.servers.call
        self._session.run(call(RequestCode.DELETE_TOPIC_IN_NAMESRV, header))

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
