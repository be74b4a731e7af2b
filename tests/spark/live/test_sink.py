"""The sink behind Spark: batches, streams, and a driver that is killed."""

import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from flintmq.client.instance import ClientInstance
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.namesrv import KvNamespaceRequest
from flintmq.spark.live.repeat_mark import ROW_MARK, RowMark
from flintmq.spark.runtime.failures import reason_of
from flintmq.spark.sink.chosen_queues import NAMESPACE
from flintmq.testing import EmbeddedCluster
from tests.kits.processes.serving import Serving
from tests.kits.spark import sink_driver
from tests.kits.spark.live_kit import Row, bodies, texts
from tests.kits.spark.process_kit import kill_when_sent, query
from tests.kits.spark.sink_kit import (
    ask,
    first_copies,
    numbered,
    send_rows,
    set_queue_count,
    stored,
)

DEADLINE_S = 120


def kept_choices(namesrv: str) -> set[str]:
    """Return the keys under which name servers keep queues that queries have chosen."""

    async def listed(client: ClientInstance) -> set[str]:
        header = KvNamespaceRequest(namespace=NAMESPACE)
        answer = await client.servers.call(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        return set(loads_body(answer.body)["table"])

    return set(ask(namesrv, listed))


def test_a_batch_goes_to_the_topics_of_its_rows(
    spark: SparkSession, cluster: EmbeddedCluster
) -> None:
    send_rows(cluster.namesrv, numbered(range(1)), query="keeps-its-choice")
    rows = spark.range(0, 600, 1, 3).selectExpr(
        "concat('m', id) AS body",
        "if(id % 2 = 0, 'even', 'odd') AS topic",
        "'A' AS tags",
        "map('number', cast(id AS string)) AS properties",
    )
    rows.write.format("flintmq").mode("append").option("namesrv", cluster.namesrv).save()
    for topic, first in (("even", 0), ("odd", 1)):
        found = stored(cluster.namesrv, topic)
        assert bodies(found) == texts(range(first, 600, 2))
        assert {row["tags"] for row in found} == {"A"}
        assert all(f"m{dict(row['properties'])['number']}" == row["body"].decode() for row in found)
    marks = [
        RowMark.parse(dict(row["properties"])[ROW_MARK])
        for topic in ("even", "odd")
        for row in stored(cluster.namesrv, topic)
    ]
    assert len({(mark.partition, mark.sequence) for mark in marks if mark is not None}) == 600
    # Nobody can repeat this write, so nothing of it stays on the name server.
    assert kept_choices(cluster.namesrv) == {"keeps-its-choice@orders"}


def test_rows_for_kafka_are_written_and_read_as_they_are(
    spark: SparkSession, cluster: EmbeddedCluster
) -> None:
    set_queue_count(cluster.namesrv, 3, "from-kafka")
    rows = spark.range(0, 30, 1, 2).selectExpr(
        "'from-kafka' AS topic",
        "encode(concat('k', id % 5), 'UTF-8') AS key",
        "encode(concat('m', id), 'UTF-8') AS value",
        "array(struct('colour' AS key, encode(concat('c', id), 'UTF-8') AS value),"
        " struct('TAGS' AS key, encode('A', 'UTF-8') AS value)) AS headers",
        # A row without one goes where its key belongs.
        "if(id < 10, int(id % 3), NULL) AS partition",
    )
    options = {"namesrv": cluster.namesrv, "kafkaColumns": "true"}
    rows.write.format("flintmq").mode("append").options(**options).save()
    found = stored(cluster.namesrv, "from-kafka")
    assert bodies(found) == texts(range(30))
    queue_of_key: defaultdict[str, set[int]] = defaultdict(set)
    for row in found:
        number = int(row["body"][1:])
        assert (row["keys"], row["tags"]) == (f"k{number % 5}", "A")
        assert dict(row["properties"])["colour"] == f"c{number}"
        if number < 10:
            assert row["queueId"] == number % 3
        else:
            queue_of_key[row["keys"]].add(row["queueId"])
    assert [len(queues) for queues in queue_of_key.values()] == [1] * 5
    # As a job that copies by way of Kafka's columns would do.
    table = spark.read.format("flintmq").options(**options, includeHeaders="true")
    again = table.option("subscribe", "from-kafka").load()
    columns = ("key", "value", "headers", "partition", "offset", "timestamp", "timestampType")
    again.select(*columns).write.format("flintmq").mode("append").options(**options).option(
        "topic", "kafka-again"
    ).save()
    copies = stored(cluster.namesrv, "kafka-again")

    def told(row: Row) -> tuple[object, ...]:
        colour = dict(row["properties"])["colour"]
        return row["body"], row["keys"], row["tags"], row["queueId"], colour

    assert sorted(map(told, copies)) == sorted(map(told, found))


@pytest.mark.parametrize(
    ("expressions", "mode", "words"),
    [
        (["id AS body"], "append", "the column body is binary or string for the sink, not bigint"),
        (["'x' AS body", "id"], "append", "the sink has no use for the column 'id'"),
        (["'x' AS body"], "overwrite", "a topic cannot be overwritten"),
        (["string(NULL) AS body"], "append", "row 0 of partition 0: the column body is null"),
    ],
)
def test_what_cannot_be_written_is_told_in_one_line(
    spark: SparkSession, cluster: EmbeddedCluster, expressions: list[str], mode: str, words: str
) -> None:
    writer = spark.range(1).coalesce(1).selectExpr(*expressions).write.format("flintmq")
    writer = writer.mode(mode).option("namesrv", cluster.namesrv).option("topic", "wrong")
    with pytest.raises(PySparkException) as caught:
        writer.save()
    assert words in reason_of(caught.value)


def test_a_stream_goes_on_where_it_was_and_its_secrets_stay_secret(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()
    rows = source.selectExpr("concat('m', value) AS body")
    for last in (1, 3):
        query = (
            rows.writeStream.format("flintmq")
            .option("namesrv", cluster.namesrv)
            .option("topic", "stream")
            .option("accessKey", "the-name")
            .option("secretKey", "the-secret")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        wait_for_batch(query, last)
        shown = str(query.lastProgress) + query._jsq.toString()
        query.stop()
        assert "the-secret" not in shown
    # A query that is stopped in a batch sends what it had sent of it again.
    found = first_copies(cluster.namesrv, "stream")
    marks = [RowMark.parse(dict(row["properties"])[ROW_MARK]) for row in found]
    assert {mark.query for mark in marks if mark is not None} == {query.id}
    counts = Counter(mark.batch for mark in marks if mark is not None)
    assert [counts[batch] for batch in range(4)] == [50] * 4


def wait_for_batch(query: StreamingQuery, number: int) -> None:
    """Wait until a query has done a batch."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert query.exception() is None
        progress = query.lastProgress
        if progress is not None and progress["batchId"] >= number:
            return
        query.awaitTermination(1)
    raise AssertionError(f"no batch {number} in {DEADLINE_S} s")


@pytest.mark.slow
def test_each_row_arrives_once_through_a_kill_of_the_driver_and_of_the_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    count = 200
    checkpoint = str(tmp_path / "checkpoint")
    with Serving(tmp_path / "data", {"flushDiskType": "SYNC_FLUSH"}) as servers:
        set_queue_count(servers.namesrv, 2, "source")
        rows = numbered(range(count), keys=lambda number: f"k{number % 11}")
        # What the stream reads was itself sent twice in part.
        send_rows(servers.namesrv, rows[:40], topic="source")
        send_rows(servers.namesrv, rows, topic="source")
        log = tmp_path / "driver.log"
        with query(servers.namesrv, checkpoint, rate=10, log=log) as driver:
            kill_when_sent(driver, servers.namesrv, "target", 30, log)
        servers.kill()
        servers.start()
        # Another driver goes on from the checkpoint.
        sink_driver.copy(spark, servers.namesrv, checkpoint, rate="100000")
        copied = stored(servers.namesrv, "target")
        assert set(bodies(copied)) == set(texts(range(count)))
        assert len(copied) > count, "nothing was sent twice: the kill came between two batches"
        for split in ({}, {"maxRecordsPerPartition": "33"}):
            once = first_copies(servers.namesrv, "target", **split)
            assert bodies(once) == texts(range(count))
