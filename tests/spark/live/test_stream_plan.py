"""Streams of live topics, micro-batch by micro-batch, without Spark around them."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from flintmq import Message, Producer
from flintmq.client.instance import ClientInstance
from flintmq.format.wire.codes import RequestCode
from flintmq.spark.errors import DataLossError, OptionError
from flintmq.spark.live.errors import UnreachableError
from flintmq.spark.live.stream_plan import IDLE_PAUSE_S
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import (
    SHORT_LIVED,
    Admin,
    StreamRun,
    Ticks,
    bodies,
    offsets,
    read,
    send,
    send_until_cut,
    texts,
)


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.namesrv) as found:
        yield found


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
        assert offsets(run.reader.reportLatestOffset()) == offsets(run.at)
    size = cluster.messages("limited")[0].store_size
    with StreamRun(cluster.namesrv, maxBytesPerTrigger=str(20 * size), **options) as run:
        assert run.reader.getDefaultReadLimit() == ReadMaxBytes(20 * size)
        found = run.step()
        assert 10 <= len(found) <= 24  # It goes by the mean of a sample.
        ends = offsets(run.reader.reportLatestOffset())
        behind = sum(ends.values()) - sum(offsets(run.at).values())
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
        assert len(offsets(end)) == 8 + 3
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


@pytest.mark.parametrize("regrown", [3, 10, 25])
def test_a_topic_made_anew_is_noticed_however_far_it_has_regrown(
    cluster: EmbeddedCluster, admin: Admin, caplog: pytest.LogCaptureFixture, regrown: int
) -> None:
    topic = f"again-{regrown}"
    admin.set_topic(topic, 1)
    send(cluster, topic, range(10))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    with StreamRun(cluster.namesrv, **options) as run:
        assert len(run.everything()) == 10
        checkpoint = run.at
    admin.delete_topic(topic)
    admin.set_topic(topic, 1)
    new = range(100, 100 + regrown)
    send(cluster, topic, new)
    with (
        StreamRun(cluster.namesrv, start=checkpoint, **options) as strict,
        pytest.raises(DataLossError, match="made anew"),
    ):
        strict.plan()
    with StreamRun(cluster.namesrv, start=checkpoint, failOnDataLoss="false", **options) as lenient:
        assert bodies(lenient.everything()) == texts(new)
        assert "made anew" in caplog.text
        assert not lenient.everything()
        send(cluster, topic, range(200, 205))
        assert bodies(lenient.everything()) == texts(range(200, 205))


def test_a_topic_made_anew_is_noticed_by_tasks_of_a_batch_that_was_planned_before(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    admin.set_topic("between", 1)
    send(cluster, "between", range(10))
    options = {"subscribe": "between", "startingOffsets": "earliest"}
    with StreamRun(cluster.namesrv, **options) as run:
        start, end = run.plan()
        assert bodies(run.rows(start, end)) == texts(range(10))
        admin.delete_topic("between")
        admin.set_topic("between", 1)
        send(cluster, "between", range(100, 120))
        with pytest.raises(DataLossError, match="not the queue that this read was planned for"):
            run.rows(start, end)


def test_a_repeated_batch_gives_the_same_rows_or_fails_whatever_became_of_its_queues() -> None:
    with (
        EmbeddedCluster(manual_clock=True, **SHORT_LIVED) as cluster,
        Admin(cluster.namesrv) as admin,
    ):
        admin.set_topic("kept", 1)
        options = {"subscribePattern": "kept|late"}
        with StreamRun(cluster.namesrv, now=Ticks(), **options) as run:
            admin.set_topic("late", 1)
            send(cluster, "late", range(5))
            start, end = run.plan()
            assert bodies(run.rows(start, end)) == texts(range(5))
            send_until_cut(cluster, "late", 3)
        # The driver was killed in this batch, in which the queue was new.
        with (
            StreamRun(cluster.namesrv, start=end, **options) as run,
            # The log is cut first, then the queue: the loss may be seen at either of the two.
            pytest.raises(DataLossError, match=r"0 is deleted|between 0 and 5 are not there"),
        ):
            run.rows(start, end)


def test_the_first_batch_of_a_query_is_the_same_when_it_is_repeated(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    admin.set_topic("first", 1)
    with StreamRun(cluster.namesrv, subscribe="first") as run:
        send(cluster, "first", range(5))
        start, end = run.plan()
        assert bodies(run.rows(start, end)) == texts(range(5))
    # Spark has kept no start of a first batch: it asks for a new one, which is the latest again.
    with StreamRun(cluster.namesrv, subscribe="first") as run:
        assert bodies(run.rows(run.at, end)) == texts(range(5))


def test_a_topic_that_is_left_out_for_a_while_is_gone_on_with(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    for topic in ("one", "other"):
        admin.set_topic(topic, 2)
        send(cluster, topic, range(10))
    both = {"subscribe": "one,other", "startingOffsets": "earliest"}
    with StreamRun(cluster.namesrv, **both) as run:
        assert len(run.everything()) == 20
        checkpoint = run.at
    send(cluster, "one", range(10, 15))
    send(cluster, "other", range(20, 25))
    with StreamRun(cluster.namesrv, start=checkpoint, subscribe="one") as run:
        assert bodies(run.everything()) == texts(range(10, 15))
        checkpoint = run.at
    with StreamRun(cluster.namesrv, start=checkpoint, **both) as run:
        assert bodies(run.everything()) == texts(range(20, 25))


def test_a_batch_goes_on_from_the_place_of_a_stream_and_notices_another_queue(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    admin.set_topic("place", 1)
    send(cluster, "place", range(10))
    with StreamRun(cluster.namesrv, subscribe="place", startingOffsets="earliest") as run:
        run.everything()
        place = json.dumps(run.at)
    send(cluster, "place", range(10, 14))
    options = {"subscribe": "place", "startingOffsets": place}
    assert bodies(read(cluster.namesrv, **options)) == texts(range(10, 14))
    admin.delete_topic("place")
    admin.set_topic("place", 1)
    send(cluster, "place", range(100, 120))
    with pytest.raises(DataLossError, match="made anew"):
        read(cluster.namesrv, **options)
    found = read(cluster.namesrv, failOnDataLoss="false", **options)
    assert bodies(found) == texts(range(100, 120))


def test_a_store_that_was_emptied_is_noticed(tmp_path: Path) -> None:
    options = {"subscribe": "emptied", "startingOffsets": "earliest"}
    with EmbeddedCluster(root=tmp_path / "one") as cluster, Admin(cluster.namesrv) as admin:
        admin.set_topic("emptied", 1)
        send(cluster, "emptied", range(10))
        with StreamRun(cluster.namesrv, **options) as run:
            assert len(run.everything()) == 10
            checkpoint = run.at
    with EmbeddedCluster(root=tmp_path / "two") as cluster, Admin(cluster.namesrv) as admin:
        admin.set_topic("emptied", 1)
        send(cluster, "emptied", range(10))
        with (
            StreamRun(cluster.namesrv, start=checkpoint, **options) as run,
            pytest.raises(DataLossError, match="not the queue that was read up to 10"),
        ):
            run.plan()


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
    with (
        EmbeddedCluster(manual_clock=True, **SHORT_LIVED) as cluster,
        Admin(cluster.namesrv) as admin,
    ):
        admin.set_topic("short", 1)
        cluster.send("short", b"first")
        options = {"subscribe": "short", "startingOffsets": "earliest"}
        with StreamRun(cluster.namesrv, **options) as strict:
            start, end = strict.plan()
            send_until_cut(cluster, "short", 1)
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


def test_an_idle_stream_asks_each_broker_one_question_and_pauses(
    cluster: EmbeddedCluster, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.set_topic("idle", 64)
    send(cluster, "idle", range(100))
    asked: list[int] = []
    call = ClientInstance.call

    async def counted(self: ClientInstance, address: str, code: int, *rest: Any) -> Any:
        asked.append(code)
        return await call(self, address, code, *rest)

    with StreamRun(cluster.namesrv, subscribe="idle", now=time.monotonic) as run:
        assert not run.everything()
        monkeypatch.setattr(ClientInstance, "call", counted)
        began = time.monotonic()
        for _ in range(6):
            assert not run.everything()
        assert time.monotonic() - began >= 5 * IDLE_PAUSE_S
        assert set(asked) == {RequestCode.GET_BROKER_RUNTIME_INFO}
        assert len(asked) == 6
        send(cluster, "idle", range(100, 103))
        assert bodies(run.everything()) == texts(range(100, 103))
        assert asked.count(RequestCode.GET_TOPIC_STATS_INFO) == 1
        assert RequestCode.GET_MAX_OFFSET not in asked


def test_a_topic_made_anew_beside_a_running_stream_is_noticed_at_the_same_length(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    admin.set_topic("alike", 1)
    send(cluster, "alike", range(10))
    with StreamRun(cluster.namesrv, subscribe="alike", startingOffsets="earliest") as run:
        assert len(run.everything()) == 10
        assert not run.everything()
        admin.delete_topic("alike")
        admin.set_topic("alike", 1)
        send(cluster, "alike", range(100, 110))
        with pytest.raises(DataLossError, match="made anew"):
            run.plan()


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
                assert {queue.broker_name for queue in offsets(run.at)} == {
                    "broker-a",
                    "broker-b",
                }
                with pytest.raises(OptionError, match="name the broker"):
                    read(cluster.namesrv, subscribe="spread", endingOffsets='{"spread": {"0": 1}}')
            with pytest.raises(UnreachableError, match="broker-b"):
                run.plan()
            with EmbeddedCluster(root=tmp_path, namesrvAddr=cluster.namesrv, brokerName="broker-b"):
                assert not run.everything()
                assert len(offsets(run.at)) == 4
    assert "not read any more" not in caplog.text
