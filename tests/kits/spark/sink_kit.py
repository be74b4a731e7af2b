"""Sending rows as a task of the sink does, without Spark around it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from flintmq.client.instance import ClientInstance
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.jobs.replay.topic_cluster import put_topic
from flintmq.spark.live.cluster_options import ClusterConnection
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.sink.sink_options import parse_sink_options
from flintmq.spark.sink.task_time import MACHINE_TIME, SinkTime
from flintmq.spark.sink.writer import SinkCommit, WriteIdentity, send_partition
from tests.kits.spark.live_kit import Row, read

TOPIC = "orders"
Rows = Iterable[dict[str, Any]]


def numbered(numbers: range, **columns: Any) -> list[dict[str, Any]]:
    """Return rows with a number as body; a column may be made of the number."""
    return [
        {
            "body": f"m{number}",
            **{
                name: value(number) if callable(value) else value for name, value in columns.items()
            },
        }
        for number in numbers
    ]


def send_rows(
    namesrv: str,
    *parts: Rows | Callable[[], None],
    query: str = "q",
    batch: int = 0,
    partition: int = 0,
    time: SinkTime = MACHINE_TIME,
    **options: str,
) -> SinkCommit:
    """Send parts of one partition; what is no rows is called when their turn comes."""
    sink = parse_sink_options({"namesrv": namesrv, "topic": TOPIC, **options})
    identity = WriteIdentity(query=query, batch=batch, partition=partition, chosen={})
    return send_partition(sink, identity, _batches(parts), time=time)


def _batches(parts: Iterable[Rows | Callable[[], None]]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        if callable(part):
            part()
        else:
            yield pa.RecordBatch.from_pylist([*part])


def set_queue_count(namesrv: str, queue_count: int, topic: str = TOPIC) -> None:
    """Create a topic, or give it other queues."""
    with LiveSession(ClusterConnection(namesrv=namesrv)) as session:
        client = session.client

        async def put() -> None:
            route = await client.routes.fetch("TBW102")
            for broker in route.brokers:
                await put_topic(client, broker, topic, queue_count)

        session.run(put())


def ask(namesrv: str, work: Callable[[ClientInstance], Any]) -> Any:
    """Run a coroutine of a client."""
    with LiveSession(ClusterConnection(namesrv=namesrv)) as session:
        return session.run(work(session.client))


def stored(namesrv: str, topic: str = TOPIC) -> list[Row]:
    """Return every message of a topic, repeats too."""
    return read(namesrv, subscribe=topic)


def first_copies(namesrv: str, topic: str = TOPIC, **options: str) -> list[Row]:
    """Return the messages of a topic without what was sent twice."""
    return read(namesrv, subscribe=topic, dropRepeats="true", **options)


def queue(number: int, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)
