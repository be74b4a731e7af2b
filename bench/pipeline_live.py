"""Benchmarks of the live half: topics of a broker as tables, streams and sinks.

The broker is a process of its own.  The plain Python client reads the same topic in the same run.
"""

import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from bench.broker_servers import Server, our_server
from bench.client import OURS, run_case
from bench.pipeline_case import Case, Done
from bench.pipeline_live_client import fill
from bench.pipeline_scan import FEW
from flintmq import PullConsumer
from flintmq.spark.jobs.replay.topic_copy import CopyJob, CopyRequest
from tests.kits.spark.live_kit import Admin

LIVE_PREFIX: Final = "live: "
"""With this the names of all cases on topics begin."""

BODY_SIZE: Final = 128
QUEUE_COUNT: Final = 4
TOPIC: Final = "bench-live"
CLIENT: Final = "bench.pipeline_live_client"

_numbers = itertools.count()


class LiveTopic(NamedTuple):
    """A topic of a running broker."""

    server: Server
    messages: int
    body_size: int = BODY_SIZE
    name: str = TOPIC

    def server_seconds(self) -> float:
        """Return the processor time of the broker."""
        return self.server.cpu_seconds()

    def new_topic(self, queue_count: int = QUEUE_COUNT) -> str:
        """Make another topic, for what a run of a case sends."""
        name = f"{self.name}-{next(_numbers)}"
        with Admin(self.server.namesrv) as admin:
            admin.set_topic(name, queue_count)
        return name


@contextmanager
def live_topic(work: Path, messages: int, body_size: int) -> Iterator[LiveTopic]:
    """Start a broker with a topic that has so many messages."""
    work.mkdir()
    with our_server(work) as server:
        with Admin(server.namesrv) as admin:
            admin.set_topic(TOPIC, QUEUE_COUNT)
        fill(server.namesrv, TOPIC, count=messages, body_size=body_size)
        yield LiveTopic(server, messages, body_size)


# -- reading -----------------------------------------------------------------------------------


def _count(spark: SparkSession, topic: LiveTopic, schema: str | None) -> Done:
    reader = spark.read.format("flintmq").option("namesrv", topic.server.namesrv)
    if schema is not None:
        reader = reader.schema(schema)
    return _whole(topic, reader.option("subscribe", topic.name).load().count())


def _whole(topic: LiveTopic, count: int) -> Done:
    assert count == topic.messages, f"{count} messages of {topic.messages}"
    return Done(count)


def count_few(spark: SparkSession, topic: LiveTopic) -> Done:
    return _count(spark, topic, FEW)


def count_all(spark: SparkSession, topic: LiveTopic) -> Done:
    return _count(spark, topic, None)


def live_stream(spark: SparkSession, namesrv: str, topic: str) -> DataStreamReader:
    """Return a stream of a topic from its first message on."""
    reader = spark.readStream.format("flintmq").option("namesrv", namesrv)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest")


def _land(topic: LiveTopic, table: DataFrame, kind: str) -> Done:
    """Let a stream write what there is, with a new checkpoint."""
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as work:
        writer = table.writeStream.format(kind).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", f"{work}/checkpoint")
        query = writer.option("path", f"{work}/rows").start()
        query.awaitTermination()
        return _whole(topic, sum(one["numInputRows"] for one in query.recentProgress))


def stream_few(spark: SparkSession, topic: LiveTopic) -> Done:
    stream = live_stream(spark, topic.server.namesrv, topic.name)
    return _land(topic, stream.schema(FEW).load(), "noop")


def stream_to_parquet(spark: SparkSession, topic: LiveTopic) -> Done:
    return _land(topic, live_stream(spark, topic.server.namesrv, topic.name).load(), "parquet")


# -- writing -----------------------------------------------------------------------------------


def write_batch(spark: SparkSession, topic: LiveTopic) -> Done:
    """Write as many rows as the topic has to another one."""
    target = topic.new_topic()
    rows = spark.range(topic.messages).selectExpr(
        f"encode(rpad(cast(id AS string), {topic.body_size}, 'x'), 'UTF-8') AS body"
    )
    writer = rows.write.format("flintmq").mode("append").option("topic", target)
    began = time.perf_counter()
    writer.option("namesrv", topic.server.namesrv).save()
    seconds = time.perf_counter() - began
    with PullConsumer(namesrv=topic.server.namesrv, group="bench-count") as consumer:
        stored = sum(consumer.end_offset(queue) for queue in consumer.queues(target))
    return Done(_whole(topic, stored).messages, seconds)


def copy_topic(spark: SparkSession, topic: LiveTopic) -> Done:
    """Copy the topic to another one of its cluster."""
    cluster = {"namesrv": topic.server.namesrv}
    rows = 0
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as work:
        request = CopyRequest(
            source=cluster,
            target=cluster,
            topics={topic.name: topic.new_topic()},
            state=Path(work),
            available_now=True,
        )
        with CopyJob(spark, request) as job:
            is_done = False
            while not is_done:
                is_done = job.wait(1.0)
                rows += sum(one.row_count for one in job.progress())
        return _whole(topic, rows)


# -- the plain client --------------------------------------------------------------------------


def _by_client(module: str, work: str, topic: LiveTopic) -> Done:
    """Read the topic in a process of its own, which measures from its first request on."""
    rate = run_case(module, work, topic.server.namesrv, topic.name, topic.messages)
    count = topic.messages
    return Done(count, count / rate.per_second, count / rate.per_cpu_second)


def pull_by_client(_: SparkSession, topic: LiveTopic) -> Done:
    return _by_client(CLIENT, "pull_all", topic)


def push_by_client(_: SparkSession, topic: LiveTopic) -> Done:
    return _by_client(OURS, "consumption", topic)


def live_cases() -> list[Case[LiveTopic]]:
    """Return the cases of rates; those of latency are in `pipeline_latency`."""
    return [
        Case(f"{LIVE_PREFIX}batch, 4 columns", count_few),
        Case(f"{LIVE_PREFIX}batch, all columns", count_all),
        Case(f"{LIVE_PREFIX}stream, 4 columns", stream_few),
        Case(f"{LIVE_PREFIX}stream to Parquet, all columns", stream_to_parquet),
        Case(f"{LIVE_PREFIX}plain client, pulls", pull_by_client, is_whole_process=True),
        Case(f"{LIVE_PREFIX}plain client, push consumer", push_by_client, is_whole_process=True),
        Case(f"{LIVE_PREFIX}sink, batch", write_batch),
        Case(f"{LIVE_PREFIX}copy to another topic", copy_topic),
    ]
