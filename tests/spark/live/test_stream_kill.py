"""A driver that is killed in the middle of its work, and executors on a cluster of Spark."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.testing import EmbeddedCluster
from tests.spark.cluster import LIGHT_JAVA, spark_cluster
from tests.spark.live.live_kit import Admin, bodies, send, texts, until
from tests.spark.live.sink_kit import numbered, send_rows, set_queue_count, stored

COUNT = 120
STEP = 30
END_S = 180


@contextmanager
def started(*arguments: str, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a process group of its own; whatever is left of it is killed."""
    java = ("--conf", f"spark.driver.extraJavaOptions={LIGHT_JAVA}")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "flintmq", "pipeline", "stream", *arguments, *java],
            env=os.environ | environment,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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
    with started(*arguments, *options, "--master", "local[1]", log=log) as process:
        until(lambda: (batches / "0").exists(), timeout_s=END_S)
        os.killpg(process.pid, signal.SIGKILL)
    assert len(list(batches.glob("[0-9]*"))) < COUNT // STEP  # There was something left to do.
    with started(*arguments, *options, "--master", "local[1]", log=log) as process:
        last = COUNT // STEP - 1
        until(lambda: (batches / str(last)).exists(), timeout_s=END_S)
        send(cluster, topic, range(COUNT, COUNT + 5))
        until(lambda: (batches / str(last + 1)).exists(), timeout_s=END_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0, log.read_text()
    assert "stopped: " in log.read_text()
    found = spark.read.schema("body binary").parquet(str(rows)).collect()
    assert sorted(row.body.decode() for row in found) == texts(range(COUNT + 5))


def test_executors_of_a_cluster_read_live_topics_drop_repeats_and_send(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    rows = numbered(range(COUNT), keys=lambda number: f"k{number % 5}")
    set_queue_count(cluster.namesrv, 2, "sent-twice")
    send_rows(cluster.namesrv, rows[: COUNT // 2], topic="sent-twice")
    send_rows(cluster.namesrv, rows, topic="sent-twice")
    assert len(stored(cluster.namesrv, "sent-twice")) == COUNT + COUNT // 2
    arguments = [cluster.namesrv, "--topic", "sent-twice", "--to", "topic:sent-on"]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--available-now"]
    # Short ranges, so that executors have to look back.
    for option in ("startingOffsets=earliest", "dropRepeats=true", "maxRecordsPerPartition=50"):
        arguments += ["--option", option]
    with spark_cluster(tmp_path, worker_count=1) as there:
        master = ("--master", there.url, "--conf", "spark.driver.host=127.0.0.1")
        log = tmp_path / "stream.log"
        python = {"PYSPARK_PYTHON": str(there.python)}
        with started(*arguments, *master, log=log, **python) as process:
            assert process.wait(END_S) == 0, log.read_text()
    assert bodies(stored(cluster.namesrv, "sent-on")) == texts(range(COUNT))
