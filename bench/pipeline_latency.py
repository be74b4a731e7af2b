"""Benchmarks of a running stream: how long a message takes from its producer to where it goes.

A micro-batch is a thousandth of the topic's size, sent in one request.  Measured is the time from
the call of the producer until the last row is out: handed to a function on the driver, or pulled
from the topic behind the sink.  The next one is sent when the stream has nothing left to do.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.pipeline_case import Case, Done
from bench.pipeline_live import LIVE_PREFIX, LiveTopic, live_stream
from flintmq import Message, Producer, PullConsumer

SAMPLE_COUNT: Final = 20
WARM_UP_COUNT: Final = 3
"""Micro-batches before those that count: Spark plans the first one, and compiles."""

BATCH_PART: Final = 1000
ARRIVAL_SECONDS_MAX: Final = 120
_LOOK_SECONDS: Final = 0.02
_PULL_WAIT_MS: Final = 10_000


class Arrivals:
    """Counts rows that have come out, for whoever waits for them."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def take(self, rows: DataFrame, _: int) -> None:
        """Take the rows of a micro-batch, all of them as Python sees them."""
        count = len(rows.collect())
        with self._changed:
            self._count += count
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Wait until so many rows have come since the start."""
        with self._changed:
            is_there = self._changed.wait_for(lambda: self._count >= count, ARRIVAL_SECONDS_MAX)
        assert is_there, f"{self._count} rows of {count}"


class TopicEnd:
    """Waits for messages at the end of a topic of one queue."""

    def __init__(self, consumer: PullConsumer, topic: str) -> None:
        self._consumer = consumer
        (self._queue,) = consumer.queues(topic)
        self._offset = 0

    def wait(self, count: int) -> None:
        """Pull until so many messages have come since the start."""
        deadline = time.monotonic() + ARRIVAL_SECONDS_MAX
        while self._offset < count:
            assert time.monotonic() < deadline, f"{self._offset} messages of {count}"
            result = self._consumer.pull(self._queue, self._offset, wait_ms=_PULL_WAIT_MS)
            self._offset = result.next_offset


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """Run a query with a new checkpoint."""
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


def sampled(
    topic: LiveTopic, source: str, query: StreamingQuery, wait: Callable[[int], None]
) -> Done:
    """Send one micro-batch after the other, and note how long each takes."""
    size = max(1, topic.messages // BATCH_PART)
    batch = [Message(topic=source, body=b"x" * topic.body_size)] * size
    taken = []
    with Producer(namesrv=topic.server.namesrv, group="bench") as producer:
        for number in range(1, WARM_UP_COUNT + SAMPLE_COUNT + 1):
            _wait_for_rest(query)
            began = time.perf_counter()
            producer.send_batch(batch)
            wait(number * size)
            taken.append((time.perf_counter() - began) * 1000)
    return Done(len(taken) * size, latencies_ms=tuple(taken[WARM_UP_COUNT:]))


def _wait_for_rest(query: StreamingQuery) -> None:
    """Wait until a query has found nothing new: the batch before is committed then."""
    deadline = time.monotonic() + ARRIVAL_SECONDS_MAX
    while query.status["message"] != "Waiting for data to arrive":
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, query.status
        time.sleep(_LOOK_SECONDS)


def latency_to_function(spark: SparkSession, topic: LiveTopic) -> Done:
    source, arrivals = topic.new_topic(), Arrivals()
    stream = live_stream(spark, topic.server.namesrv, source).load()
    with running(stream.writeStream.foreachBatch(arrivals.take)) as query:
        return sampled(topic, source, query, arrivals.wait)


def latency_to_topic(spark: SparkSession, topic: LiveTopic) -> Done:
    source, target, namesrv = topic.new_topic(), topic.new_topic(1), topic.server.namesrv
    stream = live_stream(spark, namesrv, source).schema("body binary").load()
    writer = stream.writeStream.format("flintmq").option("topic", target)
    with (
        PullConsumer(namesrv=namesrv, group="bench-end") as consumer,
        running(writer.option("namesrv", namesrv)) as query,
    ):
        return sampled(topic, source, query, TopicEnd(consumer, target).wait)


def latency_cases() -> list[Case[LiveTopic]]:
    """Return the cases of this module."""
    return [
        Case(f"{LIVE_PREFIX}latency to foreachBatch", latency_to_function),
        Case(f"{LIVE_PREFIX}latency to a topic", latency_to_topic),
    ]
