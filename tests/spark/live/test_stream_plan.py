"""Streams of live topics, micro-batch by micro-batch, without Spark around them."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from flintmq import Message, Producer
from flintmq.spark.errors import DataLossError, OptionError
from flintmq.spark.live.errors import UnreachableError
from flintmq.spark.live.ranges import from_json
from flintmq.spark.live.stream import ROUTE_INTERVAL_S
from flintmq.testing import EmbeddedCluster
from tests.spark.live.live_kit import Admin, StreamRun, bodies, read, send, texts, until


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.namesrv) as found:
        yield found


class Ticks:
    """A clock that is always late enough for a new look at the routes."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += ROUTE_INTERVAL_S
        return self._now


def test_a_stream_gives_what_comes_and_goes_on_where_it_was(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    admin.set_topic("going-on", 4)
    send(cluster, "going-on", range(10))
    with StreamRun(cluster.namesrv, subscribe="going-on") as run:
        assert not run.everything()  # It begins with what comes now.
        send(cluster, "going-on", range(10, 30))
        assert bodies(run.everything()) == texts(range(10, 30))
        assert not run.everything()
        checkpoint = run.at
    send(cluster, "going-on", range(30, 50))
    with StreamRun(cluster.namesrv, subscribe="going-on", start=checkpoint) as run:
        start, end = run.plan(ReadAllAvailable())
        assert bodies(run.rows(start, end)) == texts(range(30, 50))
    # The driver was killed in the middle of this batch: it is planned again from its offsets.
    send(cluster, "going-on", range(50, 60))
    with StreamRun(cluster.namesrv, subscribe="going-on", start=end) as run:
        assert bodies(run.rows(start, end)) == texts(range(30, 50))
        assert bodies(run.everything()) == texts(range(50, 60))


def test_limits_hold_and_lag_is_reported(cluster: EmbeddedCluster, admin: Admin) -> None:
    admin.set_topic("limited", 4)
    send(cluster, "limited", range(100))
    options = {"subscribe": "limited", "startingOffsets": "earliest"}
    with StreamRun(cluster.namesrv, maxOffsetsPerTrigger="30", **options) as run:
        assert run.reader.getDefaultReadLimit() == ReadMaxRows(30)
        steps = [run.step() for _ in range(5)]
        assert [len(rows) for rows in steps] == [30, 30, 30, 10, 0]
        assert bodies([row for rows in steps for row in rows]) == texts(range(100))
        assert run.reader.reportLatestOffset() == run.at
    size = cluster.messages("limited")[0].store_size
    with StreamRun(cluster.namesrv, maxBytesPerTrigger=str(20 * size), **options) as run:
        assert run.reader.getDefaultReadLimit() == ReadMaxBytes(20 * size)
        found = run.step()
        assert 10 <= len(found) <= 24  # It goes by the mean of a sample.
        ends = from_json(run.reader.reportLatestOffset())
        behind = sum(ends.values()) - sum(from_json(run.at).values())
        assert behind == 100 - len(found)
        assert len(run.everything()) == behind


def test_available_now_ends_where_the_queues_ended_at_its_start(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    admin.set_topic("now", 2)
    send(cluster, "now", range(10))
    options = {"subscribe": "now", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    with StreamRun(cluster.namesrv, now=Ticks(), **options) as run:
        run.reader.prepareForTriggerAvailableNow()
        send(cluster, "now", range(10, 20))
        admin.set_topic("now", 6)
        send(cluster, "now", range(20, 40))
        found = [row for _ in range(4) for row in run.step()]
        assert bodies(found) == texts(range(10))
        checkpoint = run.at
    with StreamRun(cluster.namesrv, start=checkpoint, **options) as run:
        assert bodies(run.everything()) == texts(range(10, 40))


def test_new_queues_and_topics_are_read_from_their_start(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    admin.set_topic("grow-1", 2)
    send(cluster, "grow-1", range(4))
    with StreamRun(cluster.namesrv, now=Ticks(), subscribePattern="grow-.*") as run:
        assert not run.everything()
        admin.set_topic("grow-1", 8)
        admin.set_topic("grow-2", 3)
        send(cluster, "grow-1", range(4, 20))
        send(cluster, "grow-2", range(20, 40))
        start, end = run.plan()
        assert len(from_json(end)) == 8 + 3
        assert bodies(run.rows(start, end)) == texts(range(4, 40))


def test_a_deleted_topic_is_an_error_or_a_warning_and_may_come_back(
    cluster: EmbeddedCluster, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.set_topic("deleted", 2)
    send(cluster, "deleted", range(10))
    options = {"subscribe": "deleted", "startingOffsets": "earliest"}
    with (
        StreamRun(cluster.namesrv, now=Ticks(), **options) as strict,
        StreamRun(cluster.namesrv, now=Ticks(), failOnDataLoss="false", **options) as lenient,
    ):
        for run in (strict, lenient):
            assert bodies(run.everything()) == texts(range(10))
        admin.delete_topic("deleted")
        with pytest.raises(DataLossError, match="deleted queue 0 of broker-a: its topic was"):
            strict.plan()
        assert not lenient.everything()
        assert lenient.at == {}
        assert "deleted queue 1 of broker-a: its topic was deleted" in caplog.text
        admin.set_topic("deleted", 2)
        send(cluster, "deleted", range(10, 16))
        assert bodies(lenient.everything()) == texts(range(10, 16))
        with pytest.raises(DataLossError, match="went backwards"):
            strict.plan()


def test_a_queue_that_went_backwards_is_gone_on_with_at_its_end(
    cluster: EmbeddedCluster, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.set_topic("again", 1)
    send(cluster, "again", range(10))
    options = {"subscribe": "again", "failOnDataLoss": "false", "startingOffsets": "earliest"}
    with StreamRun(cluster.namesrv, **options) as run:
        assert len(run.everything()) == 10
        admin.delete_topic("again")
        admin.set_topic("again", 1)
        send(cluster, "again", range(3))
        assert not run.everything()
        assert "it went backwards" in caplog.text
        send(cluster, "again", range(3, 5))
        assert bodies(run.everything()) == texts(range(3, 5))


def test_queues_that_may_not_be_read_for_a_while_keep_their_place(
    cluster: EmbeddedCluster, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.set_topic("fewer", 4)
    send(cluster, "fewer", range(8))
    options = {"subscribe": "fewer", "failOnDataLoss": "false"}
    with StreamRun(cluster.namesrv, now=Ticks(), **options) as run:
        admin.set_topic("fewer", 2)
        before = run.at
        assert not run.everything()
        assert run.at == before
        assert "fewer queue 3 of broker-a: its topic has fewer queues" in caplog.text
        admin.set_topic("fewer", 4)
        send(cluster, "fewer", range(8, 20))
        assert bodies(run.everything()) == texts(range(8, 20))


def test_what_retention_has_deleted_is_an_error_or_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hours = ";".join(f"{hour:02}" for hour in range(24))
    with (
        EmbeddedCluster(
            manual_clock=True,
            mappedFileSizeCommitLog=1 << 20,
            fileReservedTime=0,
            deleteWhen=hours,
            cleanResourceInterval=10,
            deleteCommitLogFilesInterval=1,
        ) as cluster,
        Admin(cluster.namesrv) as admin,
    ):
        admin.set_topic("short", 1)
        cluster.send("short", b"first")
        options = {"subscribe": "short", "startingOffsets": "earliest"}
        with StreamRun(cluster.namesrv, **options) as strict:
            start, end = strict.plan()
            noise = random.Random(7)  # What can be compressed would not fill a file.
            for _ in range(20):
                cluster.send("short", noise.randbytes(150_000))

            def is_cut() -> bool:
                cluster.advance(60_000)
                return cluster.messages("short")[0].queue_offset > 0

            until(is_cut)
            with pytest.raises(DataLossError, match="were deleted before they were read"):
                strict.plan()
            # The batch was planned before: now its task finds nothing.
            with pytest.raises(DataLossError, match="0 is deleted"):
                strict.rows(start, end)
        with StreamRun(cluster.namesrv, start=start, failOnDataLoss="false", **options) as lenient:
            found = lenient.everything()
        left = cluster.messages("short")
        assert [row["queueOffset"] for row in found][-len(left) :] == [
            one.queue_offset for one in left
        ]
        assert "messages are missing: queue=short queue 0 of broker-a" in caplog.text


def test_offsets_are_committed_when_spark_says_so(cluster: EmbeddedCluster, admin: Admin) -> None:
    admin.set_topic("told", 2)
    send(cluster, "told", range(10))
    options = {"subscribe": "told", "startingOffsets": "earliest", "group": "spark-told"}
    with StreamRun(cluster.namesrv, commitOffsets="true", **options) as run:
        start, end = run.plan()
        run.rows(start, end)
        assert admin.committed("spark-told", "told", "broker-a") == {0: 0, 1: 0}
        run.reader.commit(end)
        assert admin.committed("spark-told", "told", "broker-a") == {0: 5, 1: 5}
    with StreamRun(cluster.namesrv, **(options | {"group": "spark-silent"})) as run:
        assert len(run.step()) == 10
        assert admin.committed("spark-silent", "told", "broker-a") == {0: 0, 1: 0}


def test_a_broker_that_is_down_is_an_error_also_where_loss_is_allowed() -> None:
    with EmbeddedCluster() as cluster:
        send(cluster, "down", range(4))
        run = StreamRun(cluster.namesrv, subscribe="down", failOnDataLoss="false", retries="1")
    with run, pytest.raises(UnreachableError, match="given up after 2 attempts"):
        run.plan()


def test_brokers_that_join_are_read_and_one_that_leaves_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedCluster() as cluster, Admin(cluster.namesrv) as admin:
        admin.set_topic("spread", 2)
        options = {"subscribe": "spread", "failOnDataLoss": "false", "retries": "1"}
        with StreamRun(cluster.namesrv, now=Ticks(), **options) as run:
            send(cluster, "spread", range(10))
            assert bodies(run.everything()) == texts(range(10))
            with EmbeddedCluster(
                root=tmp_path, namesrvAddr=cluster.namesrv, brokerName="broker-b"
            ) as other:
                admin.set_topic("spread", 2, broker_count=2)
                with Producer(namesrv=cluster.namesrv, group="both") as producer:
                    for number in range(10, 30):
                        producer.send(Message(topic="spread", body=f"m{number}".encode()))
                assert other.messages("spread")
                assert bodies(run.everything()) == texts(range(10, 30))
                assert {queue.broker_name for queue in from_json(run.at)} == {
                    "broker-a",
                    "broker-b",
                }
                with pytest.raises(OptionError, match="name the broker"):
                    read(cluster.namesrv, subscribe="spread", endingOffsets='{"spread": {"0": 1}}')
            with pytest.raises(UnreachableError, match="broker-b"):
                run.plan()
            with EmbeddedCluster(root=tmp_path, namesrvAddr=cluster.namesrv, brokerName="broker-b"):
                assert not run.everything()
                assert len(from_json(run.at)) == 4
    assert "not read any more" not in caplog.text
