"""The commands about groups, their members and how far they have come, against our broker."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flintmq import ConsumeFrom, Producer, PullConsumer, PushConsumer, ReceivedMessage
from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli, wait_until


def handled(message: ReceivedMessage) -> None:
    """Take a message without doing anything."""


@contextmanager
def consumer(
    cluster: EmbeddedCluster, group: str, topic: str, expression: str = "*"
) -> Iterator[PushConsumer]:
    with PushConsumer(
        namesrv=cluster.namesrv,
        group=group,
        subscriptions={topic: expression},
        handler=handled,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        client_ip="127.0.0.1",
        offset_interval_ms=20,
    ) as running:
        yield running


def commit(cluster: EmbeddedCluster, group: str, topic: str, offset: int) -> None:
    """Have a group consume a topic of one queue up to an offset, and leave."""
    with PullConsumer(namesrv=cluster.namesrv, group=group) as pulling:
        (queue,) = pulling.queues(topic)
        pulling.commit(queue, offset)


@pytest.fixture
def filled(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic of one queue with ten messages, named after the test."""
    topic = str(request.node.name).replace("[", "-").replace("]", "")[:60]
    cluster.create_topic(topic, queue_count=1)
    for number in range(10):
        cluster.send(topic, b"%d" % number)
    return topic


def test_a_group_is_created_changed_shown_and_deleted(cli: AdminCli) -> None:
    name = ("-g", "made-group")
    assert cli.run("getConsumerConfig", *name).code == 3
    (made,) = cli.change("updateSubGroup", *name, "-c", "DefaultCluster", "-r", "5")
    assert made["old"] is None
    assert made["new"]["retryMaxTimes"] == 5
    assert (made["new"]["consumeEnable"], made["new"]["consumeBroadcastEnable"]) == (True, False)
    (changed,) = cli.change("updateSubGroup", *name, "-b", "broker-a", "-s", "false")
    assert (changed["old"]["consumeEnable"], changed["new"]["consumeEnable"]) == (True, False)
    assert changed["new"]["retryMaxTimes"] == 5
    (shown,) = cli.rows("getConsumerConfig", *name)
    assert (shown["broker"], shown["config"]["retryMaxTimes"]) == ("broker-a", 5)
    assert shown["config"]["consumeEnable"] is False
    (gone,) = cli.change("deleteSubGroup", *name, "-c", "DefaultCluster", "-r", "true")
    assert (gone["subject"], gone["new"]) == ("group made-group and its offsets", None)
    again = cli.run("deleteSubGroup", *name, "-c", "DefaultCluster", "--yes")
    assert again.code == 3


def test_members_of_a_group_are_shown(cli: AdminCli, cluster: EmbeddedCluster, filled: str) -> None:
    offline = cli.run("consumerConnection", "-g", "members")
    assert offline.code == 3
    with consumer(cluster, "members", filled) as running:
        wait_until(lambda: len(running.assigned) > 0)
        found = cli.json("consumerConnection", "-g", "members")
        (client,) = found["rows"]
        assert (client["language"], client["version"]) == ("PYTHON", "V4_9_8")
        assert client["clientId"].startswith("127.0.0.1@")
        subscription = {"type": "TAG", "expression": "*"}
        assert found["summary"]["subscriptions"][filled] == subscription
        assert found["summary"]["messageModel"] == "CLUSTERING"
        status = cli.json("consumerStatus", "-g", "members", "-s")
        (one,) = status["rows"]
        assert one["clientId"] == client["clientId"]
        assert one["subscriptions"][filled] == "TAG:*"
        assert {queue["topic"] for queue in one["queues"]} >= {filled}
        assert "Thread" in one["stacks"] or "thread" in one["stacks"]
        assert status["summary"] == {"subscriptionsAlike": True, "mismatches": []}
        (alone,) = cli.rows("consumerStatus", "-g", "members", "-i", client["clientId"])
        assert alone["stacks"] is None


def test_members_that_subscribe_differently_are_named(
    cli: AdminCli, cluster: EmbeddedCluster, filled: str
) -> None:
    with (
        consumer(cluster, "quarrel", filled, "red") as first,
        consumer(cluster, "quarrel", filled, "blue") as second,
    ):
        wait_until(lambda: len(first.assigned) + len(second.assigned) > 0)
        wait_until(lambda: len(cli.rows("consumerConnection", "-g", "quarrel")) == 2)
        summary = cli.json("consumerStatus", "-g", "quarrel")["summary"]
        assert summary["subscriptionsAlike"] is False
        (mismatch,) = summary["mismatches"]
        assert mismatch["topic"] == filled
        assert set(mismatch["expressions"]) == {"TAG:red", "TAG:blue"}


def test_producers_are_shown(cli: AdminCli, cluster: EmbeddedCluster, filled: str) -> None:
    with Producer(namesrv=cluster.namesrv, group="makers", heartbeat_interval_ms=20) as producer:
        producer.queues(filled)
        asked = ("producerConnection", "-g", "makers", "-t", filled)
        wait_until(lambda: cli.run(*asked).code == 0)
        (row,) = cli.rows(*asked)
        assert row["language"] == "PYTHON"
        groups = {one["group"] for one in cli.rows("producer", "-b", "broker-a")}
        assert {"makers", "CLIENT_INNER_PRODUCER"} <= groups
    assert cli.run("producerConnection", "-g", "nobody", "-t", filled).code == 3


def test_consumer_progress_of_one_group_and_of_all(
    cli: AdminCli, cluster: EmbeddedCluster, filled: str
) -> None:
    with consumer(cluster, "progress", filled):
        wait_until(lambda: cluster.lag("progress", filled) == 0)
        found = cli.json("consumerProgress", "-g", "progress", "-s")
        own = [row for row in found["rows"] if row["topic"] == filled]
        assert [(row["brokerOffset"], row["consumerOffset"], row["diff"]) for row in own] == [
            (10, 10, 0)
        ]
        assert own[0]["client"] == "127.0.0.1"
        assert found["summary"]["diffTotal"] == 0
        (group,) = [row for row in cli.rows("consumerProgress") if row["group"] == "progress"]
        assert (group["memberCount"], group["version"], group["diffTotal"]) == (1, "V4_9_8", 0)
    assert cli.run("consumerProgress", "-g", "never-heard-of").code == 3


def test_lag_in_messages_and_seconds(cli: AdminCli, cluster: EmbeddedCluster, filled: str) -> None:
    commit(cluster, "behind", filled, 4)
    found = cli.json("lag", "-g", "behind", "-t", filled)
    (row,) = found["rows"]
    assert (row["group"], row["topic"], row["messages"]) == ("behind", filled, 6)
    assert 0 <= row["seconds"] < 3600
    assert cli.run("lag", "-g", "behind", "--max", "6").code == 0
    over = cli.json("lag", "-g", "behind", "--max", "5", code=1)
    assert over["summary"]["aboveLimit"] == [f"behind in {filled}"]
    assert cli.run("lag", "-g", "behind", "--max-seconds", "0").code == 1


def test_a_broker_tells_how_far_all_groups_are(
    cli: AdminCli, cluster: EmbeddedCluster, filled: str
) -> None:
    cli.change("updateSubGroup", "-g", "seen", "-c", "DefaultCluster")
    commit(cluster, "seen", filled, 7)
    found = cli.json("brokerConsumeStats", "-b", "broker-a", "-t", "30000", "-l", "3")
    (row,) = [one for one in found["rows"] if one["group"] == "seen"]
    assert (row["topic"], row["brokerOffset"], row["diff"]) == (filled, 10, 3)
    above = cli.rows("brokerConsumeStats", "-b", "broker-a", "-l", "4")
    assert "seen" not in {one["group"] for one in above}


def test_an_offline_group_is_moved_to_a_time_and_to_the_end(
    cli: AdminCli, cluster: EmbeddedCluster, filled: str
) -> None:
    commit(cluster, "movable", filled, 5)
    name = ("-g", "movable", "-t", filled)
    (back,) = cli.change("resetOffsetByTime", *name, "-s", "2020-01-01T00:00:00+00:00")
    assert (back["old"], back["new"]) == ({"offset": 5}, {"offset": 0})
    assert cluster.lag("movable", filled) == 10
    (end,) = cli.change("skipAccumulatedMessage", *name)
    assert end["new"] == {"offset": 10}
    assert cluster.lag("movable", filled) == 0
    assert cli.run("resetOffsetByTime", *name, "-s", "yesterday", "--yes").code == 2
    (same,) = cli.change("resetOffsetByTime", *name, "-s", "now", "-f", "false")
    assert same["outcome"] == "unchanged"


def test_members_that_are_online_are_moved(
    cli: AdminCli, cluster: EmbeddedCluster, filled: str
) -> None:
    got: list[ReceivedMessage] = []
    with PushConsumer(
        namesrv=cluster.namesrv,
        group="online",
        subscriptions={filled: "*"},
        handler=got.append,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        offset_interval_ms=20,
    ):
        wait_until(lambda: len(got) == 10)
        wait_until(lambda: cluster.lag("online", filled) == 0)
        arguments = ("-g", "online", "-t", filled, "-s", "2020-01-01#00:00:00:000", "--yes")
        (row,) = cli.rows("resetOffsetByTime", *arguments)
        assert (row["old"], row["new"], row["outcome"]) == (
            {"offset": 10},
            {"offset": 0},
            "done",
        )
        wait_until(lambda: len(got) == 20)


def test_a_group_is_moved_to_where_another_is(
    cli: AdminCli, cluster: EmbeddedCluster, filled: str
) -> None:
    commit(cluster, "leader", filled, 8)
    (row,) = cli.change("cloneGroupOffset", "-s", "leader", "-d", "follower", "-t", filled)
    assert (row["target"], row["new"]) == ("broker-a", {"offset": 8})
    assert cluster.lag("follower", filled) == 2
    unknown = cli.run("cloneGroupOffset", "-s", "no", "-d", "follower", "-t", filled, "--yes")
    assert unknown.code == 3
