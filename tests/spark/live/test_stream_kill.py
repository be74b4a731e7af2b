"""A driver that is killed in the middle of its work, and executors on a cluster of Spark."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_UNREADABLE
from flintmq.cli.main import run
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.cluster import Cluster, spark_cluster
from tests.kits.spark.live_kit import Admin, bodies, send, texts, until
from tests.kits.spark.pipeline_kit import light_session, use_session
from tests.kits.spark.process_kit import END_S, pipeline
from tests.kits.spark.sink_kit import numbered, send_rows, set_queue_count, stored

COUNT = 120
STEP = 30


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """Return a topic of three queues that holds COUNT messages."""
    name = f"landed-{len(request.node.name)}"
    with Admin(cluster.namesrv) as admin:
        admin.set_topic(name, 3)
    send(cluster, name, range(COUNT))
    return name


@contextmanager
def terminated_when(is_due: Callable[[], bool], *, step: Callable[[], None]) -> Iterator[None]:
    """Send SIGTERM to this process once something holds twice, with a step in between."""
    ended = threading.Event()

    def terminate() -> None:
        until(lambda: ended.is_set() or is_due(), timeout_s=END_S)
        step()
        until(lambda: ended.is_set() or is_due(), timeout_s=END_S)
        # Whatever ends early has no handler for the signal any more.
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(max_workers=1) as pool:
        due = pool.submit(terminate)
        try:
            yield
        finally:
            ended.set()
        due.result()


def test_a_driver_that_is_killed_goes_on_and_one_that_is_told_to_ends(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = tmp_path / "rows"
    batches = rows / "_spark_metadata"
    arguments = ["stream", cluster.namesrv, "--topic", topic, "--to", str(rows)]
    for option in ("startingOffsets=earliest", f"maxOffsetsPerTrigger={STEP}"):
        arguments += ["--option", option]
    with pipeline(*arguments, "--master", "local[1]", log=tmp_path / "stream.log") as process:
        until(lambda: (batches / "0").exists(), timeout_s=END_S)
        os.killpg(process.pid, signal.SIGKILL)
    assert len(list(batches.glob("[0-9]*"))) < COUNT // STEP  # There was something left to do.
    expected = [COUNT // STEP - 1]

    def send_more() -> None:
        send(cluster, topic, range(COUNT, COUNT + 5))
        expected[0] += 1

    # The second driver is this process, which has a session that runs.
    use_session(monkeypatch, light_session(spark))
    with terminated_when(lambda: (batches / str(expected[0])).exists(), step=send_more):
        assert run(["pipeline", *arguments]) == EXIT_FINE
    assert "stopped: " in capsys.readouterr().err
    found = spark.read.schema("body binary").parquet(str(rows)).collect()
    assert sorted(row.body.decode() for row in found) == texts(range(COUNT + 5))


def test_a_signal_to_all_processes_of_a_stream_ends_it_in_good_order(
    cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    rows, log = tmp_path / "rows", tmp_path / "stream.log"
    arguments = ["stream", cluster.namesrv, "--topic", topic, "--to", str(rows)]
    for option in ("startingOffsets=earliest", f"maxOffsetsPerTrigger={STEP}"):
        arguments += ["--option", option]
    with pipeline(*arguments, "--master", "local[1]", log=log) as process:
        until(lambda: (rows / "_spark_metadata" / "0").exists(), timeout_s=END_S)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(END_S) == EXIT_FINE, log.read_text()
    assert "stopped: " in log.read_text()


def test_a_stream_to_its_own_topic_is_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["pipeline", "stream", "nobody:1", "--topic", "a", "--topic", "b"]
    arguments += ["--to", "topic:b", "--checkpoint", str(tmp_path)]
    assert run(arguments) == EXIT_UNREADABLE
    assert "the topic b would be read and written by the same job" in capsys.readouterr().err


@pytest.fixture(scope="module")
def executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of Spark with one worker."""
    with spark_cluster(tmp_path_factory.mktemp("cluster"), worker_count=1) as there:
        yield there


def stream_on(executors: Cluster, *arguments: str, log: Path) -> None:
    """Run ``pipeline stream`` on a cluster of Spark, until all was read that is there."""
    master = ("--master", executors.url, "--conf", "spark.driver.host=127.0.0.1")
    options = ("--available-now", "--option", "startingOffsets=earliest")
    python = {"PYSPARK_PYTHON": str(executors.python)}
    with pipeline("stream", *arguments, *options, *master, log=log, **python) as process:
        assert process.wait(END_S) == 0, log.read_text()


def test_executors_of_a_cluster_read_live_topics_drop_repeats_and_send(
    cluster: EmbeddedCluster, executors: Cluster, tmp_path: Path
) -> None:
    rows = numbered(range(COUNT), keys=lambda number: f"k{number % 5}")
    set_queue_count(cluster.namesrv, 2, "sent-twice")
    send_rows(cluster.namesrv, rows[: COUNT // 2], topic="sent-twice")
    send_rows(cluster.namesrv, rows, topic="sent-twice")
    assert len(stored(cluster.namesrv, "sent-twice")) == COUNT + COUNT // 2
    arguments = [cluster.namesrv, "--topic", "sent-twice", "--to", "topic:sent-on"]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint")]
    # Short ranges, so that executors have to look back.
    for option in ("dropRepeats=true", "maxRecordsPerPartition=50"):
        arguments += ["--option", option]
    stream_on(executors, *arguments, log=tmp_path / "stream.log")
    assert bodies(stored(cluster.namesrv, "sent-on")) == texts(range(COUNT))


def test_executors_of_a_cluster_land_live_topics_in_parquet_files(
    spark: SparkSession, cluster: EmbeddedCluster, executors: Cluster, topic: str, tmp_path: Path
) -> None:
    landed = str(tmp_path / "rows")
    arguments = (cluster.namesrv, "--topic", topic, "--to", landed)
    batches = ("--option", f"maxOffsetsPerTrigger={COUNT // 2}")
    stream_on(executors, *arguments, *batches, log=tmp_path / "stream.log")
    schema = "queueId int, queueOffset bigint, body binary, properties map<string,string>"
    found = [
        (row.queueId, row.queueOffset, bytes(row.body), row.properties)
        for row in spark.read.schema(schema).parquet(landed).collect()
    ]
    assert len(found) == COUNT
    assert sorted(found, key=itemgetter(0, 1)) == [
        (row["queueId"], row["queueOffset"], row["body"], dict(row["properties"]))
        for row in stored(cluster.namesrv, topic)
    ]
