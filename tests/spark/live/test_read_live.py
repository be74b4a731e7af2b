"""Batches of live topics, read from a running broker straight through the reader."""

import dataclasses
import threading
from typing import Any

import pytest

from flintmq.spark.errors import DataLossError, OptionError
from flintmq.spark.live.errors import RefusedReadError, UnreachableError
from flintmq.spark.live.live_columns import LIVE
from flintmq.spark.rows.columns import MESSAGE
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import Admin, batch_reader, bodies, places, read, send, texts


def test_rows_are_what_was_sent(cluster: EmbeddedCluster) -> None:
    send(cluster, "all", range(100), tag="A", keys=["k1", "k2"], properties={"colour": "red"})
    rows = read(cluster.namesrv, subscribe="all")
    assert bodies(rows) == texts(range(100))
    stored = {(one.queue.queue_id, one.queue_offset): one for one in cluster.messages("all")}
    assert set(places(rows)) == stored.keys()
    for row in rows:
        one = stored[row["queueId"], row["queueOffset"]]
        assert row["brokerName"] == "broker-a"
        assert (row["tags"], row["keys"]) == ("A", "k1 k2")
        assert dict(row["properties"]) == dict(one.properties)
        assert row["offsetMsgId"] == one.offset_message_id
        assert (row["bornHost"], row["storeHost"]) == (one.born_host, one.store_host)
        assert row["physicalOffset"] == one.physical_offset
        assert row["storeSize"] == one.store_size
        assert round(row["storeTimestamp"].timestamp() * 1000) == one.store_timestamp
    assert set(LIVE.kinds) == set(MESSAGE.kinds) - {"crcOk", "fileName", "path"}


def test_many_messages_come_once_and_in_order_in_several_partitions(
    cluster: EmbeddedCluster,
) -> None:
    with Admin(cluster.namesrv) as admin:
        admin.set_topic("many", 1)
    send(cluster, "many", range(300))
    reader = batch_reader(cluster.namesrv, subscribe="many", minPartitions="7")
    parts = reader.partitions()
    assert len(parts) >= 7
    found = [
        row["body"].decode()
        for part in parts
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert found == [f"m{number}" for number in range(300)]
    limited = batch_reader(cluster.namesrv, subscribe="many", maxRecordsPerPartition="100")
    assert len(limited.partitions()) == 3


def test_topics_are_chosen_by_name_pattern_or_queue(cluster: EmbeddedCluster) -> None:
    for topic in ("shop-1", "shop-2", "other"):
        send(cluster, topic, range(8))
    by_name = read(cluster.namesrv, subscribe="shop-1, other")
    assert {row["topic"] for row in by_name} == {"shop-1", "other"}
    by_pattern = read(cluster.namesrv, subscribePattern="shop-.*")
    assert {row["topic"] for row in by_pattern} == {"shop-1", "shop-2"}
    by_queue = read(cluster.namesrv, assign='{"shop-1": {"broker-a": [0, 2]}, "other": [1]}')
    chosen = {(row["topic"], row["queueId"]) for row in by_queue}
    assert chosen == {("shop-1", 0), ("shop-1", 2), ("other", 1)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "nowhere"}, "there is no topic 'nowhere'"),
        ({"assign": '{"bounds": [99]}'}, "bounds has no queue 99"),
        ({"assign": '{"bounds": {"b": [0]}}'}, "bounds has no queue 0 of b"),
        ({"subscribe": "bounds", "endingOffsets": '{"bounds": {"9": 1}}'}, "has no queue 9"),
    ],
)
def test_what_is_named_and_not_there_is_an_error(
    cluster: EmbeddedCluster, options: dict[str, str], words: str
) -> None:
    send(cluster, "bounds", range(4))
    with pytest.raises(OptionError, match=words):
        batch_reader(cluster.namesrv, **options).partitions()


def test_offsets_bound_a_batch(cluster: EmbeddedCluster) -> None:
    send(cluster, "bounded", range(40))
    found = read(
        cluster.namesrv,
        subscribe="bounded",
        startingOffsets='{"bounded": {"broker-a": {"0": 2, "1": -2, "2": -1}}}',
        endingOffsets='{"bounded": {"0": 5, "1": 3}}',
    )
    expected = {(0, offset) for offset in range(2, 5)} | {(1, offset) for offset in range(3)}
    expected |= {(3, offset) for offset in range(10)}
    assert set(places(found)) == expected


def test_offsets_that_the_queue_does_not_have_are_an_error_or_a_warning(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    send(cluster, "beyond", range(8))
    options = {"subscribe": "beyond", "endingOffsets": '{"beyond": {"0": 100}}'}
    with pytest.raises(DataLossError, match="beyond queue 0 of broker-a"):
        read(cluster.namesrv, **options)
    assert bodies(read(cluster.namesrv, failOnDataLoss="false", **options)) == texts(range(8))
    assert "messages are missing: queue=beyond queue 0" in caplog.text


def test_times_bound_a_batch_exactly() -> None:
    """RocketMQ's own search gives the nearest message, and any of several of one time."""
    with EmbeddedCluster(manual_clock=True) as cluster, Admin(cluster.namesrv) as admin:
        admin.set_topic("timed", 1)
        times = []
        for number in range(30):
            send(cluster, "timed", range(number, number + 1))
            times.append(cluster.messages("timed")[-1].store_timestamp)
            cluster.advance(0 if number % 3 else 1000)
        for start, end in ((times[4], times[9]), (times[4] + 1, times[20] + 1), (0, times[0])):
            found = read(
                cluster.namesrv,
                subscribe="timed",
                startingTimestamp=str(start),
                endingTimestamp=str(end),
            )
            assert bodies(found) == texts(
                [number for number, time in enumerate(times) if start <= time < end]
            )
        late = {"subscribe": "timed", "startingTimestamp": str(times[-1] + 1)}
        with pytest.raises(OptionError, match="has no message since"):
            read(cluster.namesrv, **late)
        assert not read(cluster.namesrv, **late, startingOffsetsByTimestampStrategy="latest")


def test_tags_are_chosen_by_the_broker_and_checked_by_the_reader(cluster: EmbeddedCluster) -> None:
    for number, tag in enumerate(["Aa", "BB", "C", "Aa"] * 20):  # Two of them have one hash.
        send(cluster, "tagged", range(number, number + 1), tag=tag)
    found = read(cluster.namesrv, subscribe="tagged", subExpression="BB || C")
    assert bodies(found) == texts([number for number in range(80) if number % 4 in (1, 2)])


def test_sql_that_the_broker_cannot_serve_is_refused_at_once(cluster: EmbeddedCluster) -> None:
    send(cluster, "filtered", range(1))
    with pytest.raises(RefusedReadError, match="SQL92"):
        batch_reader(cluster.namesrv, subscribe="filtered", sqlFilter="a = 1").partitions()


def test_sql_chooses_rows_where_the_broker_can_serve_it() -> None:
    with EmbeddedCluster(enablePropertyFilter="true") as cluster:
        for number in range(60):
            properties = {"size": str(number), "colour": "red" if number % 2 else "blue"}
            send(cluster, "sized", range(number, number + 1), properties=properties)
        found = read(cluster.namesrv, subscribe="sized", sqlFilter="size >= 40 AND colour = 'red'")
        assert bodies(found) == texts(range(41, 60, 2))
        assert not read(cluster.namesrv, subscribe="sized", sqlFilter="missing = 1")
        with pytest.raises(RefusedReadError, match="line 1, column 6"):
            batch_reader(cluster.namesrv, subscribe="sized", sqlFilter="size >").partitions()


def test_who_stops_half_way_leaves_nothing_behind(cluster: EmbeddedCluster) -> None:
    send(cluster, "stopped", range(200))
    reader = batch_reader(cluster.namesrv, subscribe="stopped")
    before = threading.active_count()
    for part in reader.partitions():
        batches = reader.read(part)
        assert next(batches).num_rows
        batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert threading.active_count() == before


def test_kafka_columns_hold_the_same_messages(cluster: EmbeddedCluster) -> None:
    send(cluster, "as-kafka", range(8), keys=["k"], properties={"colour": "red"})
    plain = read(cluster.namesrv, subscribe="as-kafka")
    kafka = read(cluster.namesrv, subscribe="as-kafka", kafkaColumns="true", includeHeaders="true")
    assert list(kafka[0]) == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    for ours, theirs in zip(plain, kafka, strict=True):
        assert theirs["key"] == b"k"
        assert theirs["value"] == ours["body"]
        assert (theirs["partition"], theirs["offset"]) == (ours["queueId"], ours["queueOffset"])
        assert theirs["timestamp"] == ours["storeTimestamp"]
        headers = {one["key"]: one["value"].decode() for one in theirs["headers"]}
        assert headers == dict(ours["properties"])


def test_compressed_bodies_are_read_as_they_were_sent(cluster: EmbeddedCluster) -> None:
    body = b"0123456789" * 2000
    cluster.send("packed", body)
    (row,) = read(cluster.namesrv, subscribe="packed")
    assert row["body"] == body
    assert row["storeSize"] < len(body)


def test_a_cluster_that_is_down_is_an_error_with_its_cause(cluster: EmbeddedCluster) -> None:
    send(cluster, "lost", range(4))
    reader = batch_reader(cluster.namesrv, subscribe="lost", retries="1")
    parts = reader.partitions()
    with EmbeddedCluster() as gone:
        address = gone.namesrv
    with pytest.raises(UnreachableError, match="2 attempts: no name server can be reached"):
        batch_reader(address, subscribe="lost", retries="1").partitions()
    (first, *_) = parts
    moved: Any = dataclasses.replace(
        first,
        wanted=first.wanted._replace(  # type: ignore[attr-defined, type-var]
            queue=first.wanted.queue._replace(broker_name="broker-x")  # type: ignore[attr-defined]
        ),
    )
    with pytest.raises(UnreachableError, match="broker-x is not registered"):
        list(reader.read(moved))


def test_connections_that_break_while_reading_do_no_harm(cluster: EmbeddedCluster) -> None:
    send(cluster, "broken", range(400))
    reader = batch_reader(cluster.namesrv, subscribe="broken")
    found = []
    for part in reader.partitions():
        batches = reader.read(part)
        cluster.drop_connections()
        found += [row for batch in batches for row in batch.to_pylist()]
    assert bodies(found) == texts(range(400))
