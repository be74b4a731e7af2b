"""The sink and the source together on a cluster of Java: batches, the command, a query."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.main import run
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain
from tests.kits.spark import sink_driver
from tests.kits.spark.live_kit import bodies, texts, until
from tests.kits.spark.pipeline_kit import light_session, use_session
from tests.kits.spark.process_kit import END_S, LOOK_S, kill_when_sent, query, stored_count
from tests.kits.spark.sink_kit import (
    first_copies,
    numbered,
    send_rows,
    set_queue_count,
    stored,
)

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    work = tmp_path_factory.mktemp("java")
    (work / "store").mkdir()
    settings = {"brokerName": "java-a", "mappedFileSizeCommitLog": 8 << 20}
    toolchain = JavaToolchain.find()
    with JavaCluster(work / "store", settings, work_directory=work, toolchain=toolchain) as running:
        yield running
        running.kill_broker()


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


def restart_broker(java: JavaCluster, topic: str, count: int) -> None:
    """Kill a broker when a topic has so many messages, and start it again."""
    namesrv = f"{HOST}:{java.namesrv_port}"
    until(lambda: stored_count(namesrv, topic) >= count, timeout_s=END_S, pause_s=LOOK_S)
    java.kill_broker()
    java.start_broker()


@pytest.mark.slow
def test_each_row_arrives_once_through_a_kill_of_the_driver_and_of_the_java_broker(
    spark: SparkSession, java: JavaCluster, tmp_path: Path
) -> None:
    count = 200
    namesrv = f"{HOST}:{java.namesrv_port}"
    checkpoint = str(tmp_path / "checkpoint")
    for topic in ("source", "target"):
        set_queue_count(namesrv, 2, topic)
    rows = numbered(range(count), keys=lambda number: f"k{number % 11}")
    # What the query reads was itself sent twice in part.
    send_rows(namesrv, rows[:40], topic="source")
    send_rows(namesrv, rows, topic="source")
    log = tmp_path / "driver.log"
    with query(namesrv, checkpoint, rate=10, log=log) as driver:
        kill_when_sent(driver, namesrv, "target", 15, log)
    before = stored_count(namesrv, "target")
    assert before < count  # There was something left to do.
    with ThreadPoolExecutor(max_workers=1) as pool:
        restart = pool.submit(restart_broker, java, "target", before + 10)
        # Another driver goes on from the checkpoint, and loses the broker on its way.
        sink_driver.copy(spark, namesrv, checkpoint, rate="40")
        assert restart.done(), "the query has ended before the broker was killed"
        restart.result()
    copied = stored(namesrv, "target")
    assert set(bodies(copied)) == set(texts(range(count)))
    assert len(copied) > count, "nothing was sent twice: the kill came between two batches"
    for split in ({}, {"maxRecordsPerPartition": "33"}):
        assert bodies(first_copies(namesrv, "target", **split)) == texts(range(count))
