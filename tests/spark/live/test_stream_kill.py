"""A driver that is killed in the middle of its work, and executors on a cluster of Spark."""

import os
import signal
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.testing import EmbeddedCluster
from tests.spark.cluster import Cluster, spark_cluster
from tests.spark.live.live_kit import Admin, bodies, send, texts, until
from tests.spark.live.process_kit import END_S, pipeline
from tests.spark.live.sink_kit import numbered, send_rows, set_queue_count, stored

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


def test_a_driver_that_is_killed_goes_on_and_one_that_is_told_to_ends(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows"
    batches = rows / "_spark_metadata"
    arguments = (cluster.namesrv, "--topic", topic, "--to", str(rows))
    options = ("--option", "startingOffsets=earliest", "--option", f"maxOffsetsPerTrigger={STEP}")
    log = tmp_path / "stream.log"
    with pipeline("stream", *arguments, *options, "--master", "local[1]", log=log) as process:
        until(lambda: (batches / "0").exists(), timeout_s=END_S)
        os.killpg(process.pid, signal.SIGKILL)
    assert len(list(batches.glob("[0-9]*"))) < COUNT // STEP  # There was something left to do.
    with pipeline("stream", *arguments, *options, "--master", "local[1]", log=log) as process:
        last = COUNT // STEP - 1
        until(lambda: (batches / str(last)).exists(), timeout_s=END_S)
        send(cluster, topic, range(COUNT, COUNT + 5))
        until(lambda: (batches / str(last + 1)).exists(), timeout_s=END_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0, log.read_text()
    assert "stopped: " in log.read_text()
    found = spark.read.schema("body binary").parquet(str(rows)).collect()
    assert sorted(row.body.decode() for row in found) == texts(range(COUNT + 5))


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
