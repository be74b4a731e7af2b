"""The sink behind Spark: batches, streams, and a driver that is killed."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.main import run
from flintmq.client.consume_from import QueueBounds
from flintmq.client.instance import ClientInstance
from flintmq.format.bodies.dialect import loads_body
from flintmq.format.codes import RequestCode
from flintmq.format.headers.namesrv import KvNamespaceRequest
from flintmq.spark.failures import reason_of
from flintmq.spark.kernels.cache import cache_directory
from flintmq.spark.live.sink_mark import ROW_MARK, RowMark
from flintmq.spark.live.sink_placement import NAMESPACE
from flintmq.testing import EmbeddedCluster
from tests.interop.java_cluster import HOST, JavaCluster
from tests.interop.java_toolchain import JavaToolchain
from tests.interop.line_process import LineProcess
from tests.interop.serving import Serving
from tests.spark.live import sink_driver
from tests.spark.live.live_kit import bodies, texts
from tests.spark.live.sink_kit import (
    ask,
    first_copies,
    numbered,
    send_rows,
    set_queue_count,
    stored,
)
from tests.spark.pipeline_kit import light_session, use_session

ROOT = Path(__file__).parents[3]
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


@pytest.mark.parametrize(
    ("expressions", "mode", "words"),
    [
        (["id AS body"], "append", "the column body is binary or string for the sink, not bigint"),
        (["'x' AS body", "id"], "append", "the sink has no use for the column 'id'"),
        (["'x' AS body"], "overwrite", "a topic cannot be overwritten"),
        (["string(NULL) AS body"], "append", "row 0 of partition 0: its body is null"),
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
        slow = [sys.executable, sink_driver.__file__, servers.namesrv, checkpoint, "10"]
        with LineProcess(slow, home=tmp_path / "home", environment=driver_environment()) as driver:
            # Leaving the context kills it, in the middle of a batch.
            wait_for_messages(servers.namesrv, "target", 30, driver)
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


def driver_environment() -> dict[str, str]:
    """Return what a driver with a home of its own is told."""
    kernels = cache_directory()
    # It would compile the kernels anew.
    kept = {} if kernels is None else {"NUMBA_CACHE_DIR": str(kernels.parent)}
    return {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **kept}


def wait_for_messages(namesrv: str, topic: str, count: int, process: LineProcess) -> None:
    """Wait until a topic has so many messages, while a process writes them."""
    process.wait_until(lambda: stored_count(namesrv, topic) >= count, f"{count} messages")


def stored_count(namesrv: str, topic: str) -> int:
    async def ends(client: ClientInstance) -> int:
        queues = await client.routes.subscribe_queues(topic)
        bounds = QueueBounds(client)
        return sum([await bounds.end(queue) for queue in queues])

    return int(ask(namesrv, ends))


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    work = tmp_path_factory.mktemp("java")
    (work / "store").mkdir()
    settings = {"brokerName": "java-a", "mappedFileSizeCommitLog": 8 << 20}
    toolchain = JavaToolchain.find()
    with JavaCluster(work / "store", settings, work_directory=work, toolchain=toolchain) as running:
        yield running
        running.kill_broker()


@pytest.mark.interop
def test_a_java_consumer_gets_what_the_sink_has_sent_to_a_java_broker(
    spark: SparkSession, java: JavaCluster
) -> None:
    namesrv = f"{HOST}:{java.namesrv_port}"
    rows = spark.range(0, 500, 1, 2).selectExpr(
        "encode(concat('m', id), 'UTF-8') AS body",
        "'from-spark' AS topic",
        "concat('k', id % 7) AS shardingKey",
        "concat('key', id) AS keys",
    )
    for _ in range(2):
        # A second run of a named write is a repeat as a whole.
        rows.write.format("flintmq").mode("append").option("namesrv", namesrv).option(
            "writeId", "twice"
        ).save()
    assert len(java.read_all(["from-spark"]).messages) == 1000
    assert bodies(first_copies(namesrv, "from-spark")) == texts(range(500))


@pytest.mark.interop
def test_the_stream_command_copies_a_topic_of_a_java_broker_to_another_each_row_once(
    spark: SparkSession, java: JavaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namesrv = f"{HOST}:{java.namesrv_port}"
    use_session(monkeypatch, light_session(spark))
    command = ["pipeline", "stream", namesrv, "--topic", "ordered", "--to", "topic:copied"]
    command += ["--checkpoint", str(tmp_path), "--available-now"]
    for option in ("startingOffsets=earliest", "dropRepeats=true", "maxRecordsPerPartition=50"):
        command += ["--option", option]
    set_queue_count(namesrv, 2, "ordered")
    rows = numbered(range(100), tags="A")
    send_rows(namesrv, rows[:60], topic="ordered")
    send_rows(namesrv, rows, topic="ordered")
    assert run(command) == EXIT_FINE
    copied = stored(namesrv, "copied")
    assert bodies(copied) == texts(range(100))
    assert {row["tags"] for row in copied} == {"A"}
    assert len(java.read_all(["copied"]).messages) == 100
