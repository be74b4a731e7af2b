"""Live archives and the Java broker: as what is archived, and as what serves what is restored."""

from pathlib import Path
from typing import Any

import pytest

from flintmq.client.blocking import Producer
from flintmq.client.messaging.messages import Message
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.live_archive import archive_topics
from flintmq.spark.jobs.archive.store_restore import restore
from tests.kits.processes.java_cluster import HOST, JavaCluster, KeyQuery, assert_java_reads
from tests.kits.processes.java_toolchain import JavaToolchain
from tests.kits.spark.archive_kit import bounds_of, rows_of, serving, without_place
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.live_kit import Admin, Row, StreamRun
from tests.kits.spark.reading import read
from tests.kits.store.offline_stores import check, problems

pytestmark = pytest.mark.interop

TOPIC = "orders"
BROKER = "java-a"
SIZES = {
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
SETTINGS = {"brokerName": BROKER, "brokerClusterName": "JavaCluster", **SIZES}
START = '{"orders": {"0": 27, "1": 5}}'
"""The second consume-queue file of queue 0 begins at 20: blank units lie before the first."""


def send_all(namesrv: str, numbers: range) -> None:
    """Send to two queues of the topic, and to another topic in between."""
    queues = [MessageQueue(TOPIC, BROKER, queue_id) for queue_id in (0, 1)]
    with Producer(namesrv=namesrv, group="all") as producer:
        for number in numbers:
            body = b"m%d " % number * 40
            message = Message(topic=TOPIC, body=body, keys=[f"k{number}"], tag="T")
            producer.send(message, queue=queues[number % 2])
            producer.send(Message(topic="others", body=b"between" * 20))


def run_java(store: Path, work: Path) -> JavaCluster:
    """Return a cluster that runs on a store."""
    toolchain = JavaToolchain.find()
    return JavaCluster(store, SETTINGS, work_directory=work, toolchain=toolchain)


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """Return an archive of two runs of a Java broker, and the messages that it shall hold."""
    work = tmp_path_factory.mktemp("java")
    (work / "store").mkdir()
    with run_java(work / "store", work) as cluster:
        namesrv = f"{HOST}:{cluster.namesrv_port}"
        source = {"namesrv": namesrv, "subscribe": TOPIC, "startingOffsets": START}
        with Admin(namesrv) as admin:
            admin.set_topic(TOPIC, 2)
        send_all(namesrv, range(100))
        reading = {"subscribe": TOPIC, "startingOffsets": "earliest"}
        with StreamRun(namesrv, group="readers", commitOffsets="true", **reading) as run:
            assert len(run.step()) == 100
        first = archive_topics(inline_spark(), source, work / "archive")
        assert first.record_count == 23 + 45
        assert [store.cluster for store in first.stores] == ["JavaCluster"]
        send_all(namesrv, range(100, 300))
        assert archive_topics(inline_spark(), source, work / "archive").record_count == 200
        rows = rows_of(namesrv, BROKER, TOPIC)
        cluster.kill_broker()
    return work / "archive", [row for row in rows if row["queueOffset"] >= (27, 5)[row["queueId"]]]


def test_a_java_broker_is_archived_and_ours_serves_it(
    archived: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    archive, rows = archived
    assert check_archive(inline_spark(), archive).problems == ()
    report = restore(inline_spark(), archive, tmp_path / "root" / "store")
    assert (report.is_exact, report.record_count, report.problems) == (False, 268, ())
    assert report.log_file_count > 1
    assert not problems(check(tmp_path / "root" / "store"))
    with serving(tmp_path / "root", BROKER, **SIZES) as ours, Admin(ours.namesrv) as admin:
        assert rows_of(ours.namesrv, BROKER, TOPIC) == rows
        bounds = bounds_of(ours.namesrv, TOPIC)
        assert [bounds[queue] for queue in sorted(bounds)] == [(27, 150), (5, 150)]
        assert admin.committed("readers", TOPIC, BROKER) == {0: 50, 1: 50}


def test_a_java_broker_serves_what_was_restored(
    archived: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    archive, rows = archived
    restore(inline_spark(), archive, tmp_path / "store")
    there = {(row["queueId"], row["queueOffset"]): row for row in read(tmp_path / "store")}
    expected: list[dict[str, Any]] = [
        {
            "topic": TOPIC,
            "queueId": row["queueId"],
            "queueOffset": row["queueOffset"],
            "physicalOffset": there[row["queueId"], row["queueOffset"]]["physicalOffset"],
        }
        for row in rows
    ]
    last = expected[-1]["physicalOffset"]
    key = KeyQuery(TOPIC, rows[-1]["keys"])
    view = assert_java_reads(tmp_path / "store", SETTINGS, expected, queries={key: [last]})
    # A broker that took a blank unit for a message would say 20 and 0.
    assert view.queues == {(TOPIC, 0): (27, 150), (TOPIC, 1): (5, 150)}
    kept = [{name: row[name] for name in rows[0] if name in row} for row in there.values()]
    bodies = [row["body"] for row in without_place(kept)]
    assert bodies == [row["body"] for row in rows]
