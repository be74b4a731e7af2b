"""Archives of live topics: run by run, checked, restored, served and replayed."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.client.blocking import Producer
from flintmq.client.messaging.messages import Message
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import ArchiveError, OptionError
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.archive.live_archive import archive_topics
from flintmq.spark.jobs.archive.store_archive import archive, archived_messages
from flintmq.spark.jobs.archive.store_restore import restore
from flintmq.spark.jobs.replay.message_replay import ReplayRequest, replay
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.archive_kit import bounds_of, found_by_key, rows_of, serving
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.live_kit import Admin, Row, StreamRun, bodies, read, send, texts
from tests.kits.spark.pipeline_kit import light_session
from tests.kits.store.offline_stores import check, flip, make_store, problems

TOPIC = "orders"
LARGE = b"large and alike " * 1000
BROKERS = ("broker-a", "broker-b")
END_S = 60

Bounds = dict[MessageQueue, tuple[int, int]]


@dataclass(frozen=True)
class Made:
    """An archive, and what the brokers had when it was made."""

    archive: Path
    rows: dict[str, list[Row]]
    bounds: Bounds
    by_key: list[bytes]


def send_all(namesrv: str, numbers: range) -> None:
    """Send to the archived topic, and to another one in between, which leaves holes in the log."""
    with Producer(namesrv=namesrv, group="all") as producer:
        for number in numbers:
            body, keys = b"m%d" % number, [f"k{number}", "all"]
            producer.send(Message(topic=TOPIC, body=body, keys=keys, tag=f"T{number % 3}"))
            producer.send(Message(topic="others", body=b"x"))


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return an archive of two runs; in between came messages, a queue and a broker."""
    root = tmp_path_factory.mktemp("made")
    to = root / "archive"
    with EmbeddedCluster() as cluster, Admin(cluster.namesrv) as admin:
        namesrv = cluster.namesrv
        source = {"namesrv": namesrv, "subscribe": TOPIC, "maxRecordsPerPartition": "7"}
        admin.set_topic(TOPIC, 2)
        send_all(namesrv, range(20))
        cluster.send(TOPIC, LARGE)
        start = {"startingOffsets": "earliest"}
        with StreamRun(
            namesrv, subscribe=TOPIC, group="readers", commitOffsets="true", **start
        ) as run:
            run.step()
        first = archive_topics(spark, source, to)
        assert (first.run, first.record_count) == (1, 21)
        assert archive_topics(spark, source, to).run is None
        admin.set_topic(TOPIC, 3)
        with EmbeddedCluster(root=root / "b", namesrvAddr=namesrv, brokerName=BROKERS[1]):
            admin.set_topic(TOPIC, 3, broker_count=2)
            send_all(namesrv, range(20, 50))
            second = archive_topics(spark, source, to)
            assert (second.run, second.record_count) == (2, 30)
            return Made(
                to,
                {broker: rows_of(namesrv, broker, TOPIC) for broker in BROKERS},
                bounds_of(namesrv, TOPIC),
                found_by_key(namesrv, TOPIC, "all"),
            )


def test_manifests_tell_what_was_taken_of_each_queue(made: Made) -> None:
    first, second = ArchiveDirectory(made.archive).manifests()
    assert [[one.name for one in run.stores] for run in (first, second)] == [
        [BROKERS[0]],
        [*BROKERS],
    ]
    for store in second.stores:
        assert store.cluster == "DefaultCluster"
        assert store.queues is not None
        for queue in store.queues:
            place = MessageQueue(queue.topic, store.name, queue.queue_id)
            assert queue.end == made.bounds[place][1]
            assert queue.record_count == queue.end - queue.start
            assert queue.last is not None
            assert queue.last.queue_offset == queue.end - 1
    before = first.stores[0].queues
    after = second.stores[0].queues
    assert before is not None
    assert after is not None
    assert [one.end for one in before] == [one.start for one in after[:2]]
    assert after[2].start == 0  # The new queue.


def test_an_archive_is_a_table_and_is_checked(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    rows = archived_messages(spark, made.archive)
    wanted = {
        (broker, row["queueId"], row["queueOffset"], row["body"], row["keys"])
        for broker, some in made.rows.items()
        for row in some
    }
    found = [
        (row["brokerName"], row["queueId"], row["queueOffset"], bytes(row["body"]), row["keys"])
        for row in rows.collect()
    ]
    assert len(found) == len(wanted) == 51
    assert set(found) == wanted
    assert check_archive(spark, made.archive).problems == ()


def test_what_is_restored_serves_what_the_brokers_served(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    by_key: list[bytes] = []
    for broker in BROKERS:
        root = tmp_path / broker
        report = restore(spark, made.archive, root / "store", store=broker)
        # Only the first broker has messages of the other topic, and so a log with holes here.
        assert report.is_exact == (broker == BROKERS[1])
        assert report.record_count == len(made.rows[broker])
        assert report.problems == ()
        assert not problems(check(root / "store"))
        with serving(root, broker) as cluster, Admin(cluster.namesrv) as admin:
            assert rows_of(cluster.namesrv, broker, TOPIC) == made.rows[broker]
            bounds = bounds_of(cluster.namesrv, TOPIC)
            assert bounds == {
                queue: one for queue, one in made.bounds.items() if queue.broker_name == broker
            }
            by_key += found_by_key(cluster.namesrv, TOPIC, "all")
            if broker == BROKERS[0]:
                committed = admin.committed("readers", TOPIC, broker)
                assert sum(offset or 0 for offset in committed.values()) == 21
            # It goes on as a broker does.
            result = cluster.send(TOPIC, b"more")
            place = MessageQueue(TOPIC, broker, result.queue.queue_id)
            assert result.queue_offset == bounds[place][1]
    assert sorted(by_key) == made.by_key


def test_messages_of_an_archive_are_sent_again(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    with EmbeddedCluster() as cluster:
        request = ReplayRequest(sources=(str(made.archive),), part_size=8000)
        report = replay(light_session(spark), request, {"namesrv": cluster.namesrv})
        assert report.message_count == 51
        assert report.batch_count > 2
        again = read(cluster.namesrv, subscribe=TOPIC)
    wanted = [row for some in made.rows.values() for row in some]
    assert sorted(row["body"] for row in again) == sorted(row["body"] for row in wanted)


# -- without Spark around it -----------------------------------------------------------------


def test_damage_is_found(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    spark, to = inline_spark(), tmp_path / "archive"
    send(cluster, "harmed", range(20))
    archive_topics(spark, {"namesrv": cluster.namesrv, "subscribe": "harmed"}, to)
    assert check_archive(spark, to).ok
    (path,) = (to / "messages").rglob("*.parquet")
    flip(path, path.stat().st_size // 2)
    (problem,) = check_archive(spark, to).problems
    assert problem.endswith("other bytes than when it was written")
    flip(path, path.stat().st_size // 2)
    state = next((to / "_flintmq" / "state").rglob("topics.json"))
    flip(state, 5)
    (problem,) = check_archive(spark, to).problems
    assert problem.endswith("topics.json: is not the state file that was archived")
    flip(state, 5)
    manifest = to / "_flintmq" / "run-000001.json"
    told = json.loads(manifest.read_text())
    told["stores"][0]["queues"][0]["record_count"] += 1
    manifest.write_text(json.dumps(told))
    (problem,) = check_archive(spark, to).problems
    assert "the queues of broker-a" in problem


def test_queues_that_begin_later_are_restored_at_their_offsets(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    spark, to = inline_spark(), tmp_path / "archive"
    with Admin(cluster.namesrv) as admin:
        admin.set_topic("late", 2)
    send(cluster, "late", range(20))
    source = {"namesrv": cluster.namesrv, "subscribe": "late"}
    ends = '{"late": {"0": 8, "1": 9}}'
    start = '{"late": {"0": 4, "1": 7}}'
    report = archive_topics(spark, source | {"startingOffsets": start, "endingOffsets": ends}, to)
    assert report.record_count == 4 + 2
    # Where to start is said of queues that the archive does not know.
    assert archive_topics(spark, source | {"startingOffsets": start}, to).record_count == 2 + 1
    restore(spark, to, tmp_path / "root" / "store")
    assert not problems(check(tmp_path / "root" / "store"))
    wanted = [
        row
        for row in rows_of(cluster.namesrv, "broker-a", "late")
        if row["queueOffset"] >= (4, 7)[row["queueId"]]
    ]
    with serving(tmp_path / "root", "broker-a") as restored:
        bounds = bounds_of(restored.namesrv, "late")
        assert [bounds[queue] for queue in sorted(bounds)] == [(4, 10), (7, 10)]
        assert rows_of(restored.namesrv, "broker-a", "late") == wanted


def test_delayed_messages_are_delivered_by_who_restores_them(tmp_path: Path) -> None:
    spark, to = inline_spark(), tmp_path / "archive"
    with EmbeddedCluster(manual_clock=True) as cluster:
        send(cluster, "due", range(3), delay_level=1)
        cluster.advance(2000)
        cluster.wait_for("due", 3)
        send(cluster, "due", range(3, 8), delay_level=1)
        source = {"namesrv": cluster.namesrv, "subscribe": "due,SCHEDULE_TOPIC_XXXX"}
        report = archive_topics(spark, source, to)
    assert report.record_count == 3 + 3 + 5
    assert restore(spark, to, tmp_path / "root" / "store").is_exact
    with serving(tmp_path / "root", "broker-a") as restored:
        restored.wait_for("due", 8)
        assert bodies(read(restored.namesrv, subscribe="due")) == texts(range(8))


@pytest.mark.parametrize("point", ["task", "publish", "current"])
def test_a_driver_that_is_killed_leaves_nothing_that_counts(
    cluster: EmbeddedCluster, tmp_path: Path, point: str
) -> None:
    spark, to = inline_spark(), tmp_path / "archive"
    topic = f"killed-{point}"
    source = {"namesrv": cluster.namesrv, "subscribe": topic}
    send(cluster, topic, range(10))
    archive_topics(spark, source, to)
    send(cluster, topic, range(10, 25))
    module = "tests.kits.spark.archive_driver"
    with subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(source), str(to), point], stdout=subprocess.PIPE
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"here\n"
        driver.send_signal(signal.SIGKILL)
        driver.wait(END_S)
    assert len(list(to.rglob("*.parquet"))) > 1  # It has left something.
    assert len(ArchiveDirectory(to).manifests()) == 1
    send(cluster, topic, range(25, 30))
    # A run that was killed just before it counts is finished by the next one.
    is_finished = point == "current"
    assert archive_topics(spark, source, to).record_count == (5 if is_finished else 20)
    result = check_archive(spark, to)
    runs = 3 if is_finished else 2
    assert (result.problems, result.record_count, result.run_count) == ((), 30, runs)
    restore(spark, to, tmp_path / "root" / "store")
    with serving(tmp_path / "root", "broker-a") as restored:
        assert bodies(read(restored.namesrv, subscribe=topic)) == texts(range(30))


def test_stores_and_live_topics_do_not_share_an_archive(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    spark = inline_spark()
    send(cluster, "apart", range(3))
    source = {"namesrv": cluster.namesrv, "subscribe": "apart"}
    store = str(make_store(tmp_path / "store", 5))
    archive_topics(spark, source, tmp_path / "live")
    with pytest.raises(ArchiveError, match="was made of live topics; stores need another"):
        archive(spark, [store], tmp_path / "live")
    archive(spark, [store], tmp_path / "stores")
    with pytest.raises(ArchiveError, match="was made of stores; live topics need another"):
        archive_topics(spark, source, tmp_path / "stores")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subExpression": "A"}, "takes messages of all tags"),
        ({"failondataloss": "false"}, "allow_gap says"),
        ({"maxOffsetsPerTrigger": "5"}, "says nothing about a batch"),
        ({"subscribe": "there-is-none"}, "there is no topic 'there-is-none'"),
    ],
)
def test_what_makes_no_archive_is_refused(
    cluster: EmbeddedCluster, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    send(cluster, "any", range(1))
    source = {"namesrv": cluster.namesrv, "subscribe": "any"} | options
    with pytest.raises(OptionError, match=words):
        archive_topics(inline_spark(), source, tmp_path / "archive")


def test_damage_has_no_row(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    source = {"namesrv": cluster.namesrv, "subscribe": "any"}
    with pytest.raises(ArchiveError, match="damage has no row"):
        archive_topics(inline_spark(), source, tmp_path, on_corrupt=OnCorrupt.ROW)
