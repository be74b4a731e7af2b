"""The commands about messages, against our broker."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flintmq import (
    ConsumeFrom,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
)
from flintmq.admin import Admin
from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli, wait_until


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic of one queue, named after the test."""
    name = str(request.node.name)[:60]
    cluster.create_topic(name, queue_count=1)
    return name


@contextmanager
def consuming(
    cluster: EmbeddedCluster, group: str, topic: str, got: list[ReceivedMessage]
) -> Iterator[PushConsumer]:
    with PushConsumer(
        namesrv=cluster.namesrv,
        group=group,
        subscriptions={topic: "*"},
        handler=got.append,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        offset_interval_ms=20,
        trace=True,
    ) as running:
        yield running


def filled(cluster: EmbeddedCluster, topic: str, count: int) -> list[SendResult]:
    return [
        cluster.send(topic, b"body %d" % n, tag=f"tag{n % 2}", keys=[f"key{n}", "all"])
        for n in range(count)
    ]


def test_send_message_and_find_it_by_all_its_ids(cli: AdminCli, topic: str) -> None:
    (sent,) = cli.rows("sendMessage", "-t", topic, "-p", "héllo", "-k", "k1 k2", "-c", "red")
    assert (sent["broker"], sent["queueId"], sent["status"]) == ("broker-a", 0, "SEND_OK")
    (by_id,) = cli.rows("queryMsgById", "-i", sent["offsetMessageId"])
    assert (by_id["body"], by_id["bodySize"], by_id["tag"]) == ("héllo", 6, "red")
    assert (by_id["keys"], by_id["tracks"]) == (["k1", "k2"], [])
    assert by_id["properties"]["TAGS"] == "red"
    (by_unique,) = cli.rows("queryMsgByUniqueKey", "-t", topic, "-i", sent["messageId"])
    (by_offset,) = cli.rows("queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "0", "-o", "0")
    by_key = cli.json("queryMsgByKey", "-t", topic, "-k", "k2")
    assert by_key["summary"] == {"scanned": 1, "matched": 1, "complete": True}
    assert by_key["rows"][0]["messageId"] == by_unique["messageId"] == by_offset["messageId"]
    planned = cli.rows("sendMessage", "-t", topic, "-p", "no", "--dry-run")
    assert planned == [{"topic": topic, "bodySize": 2, "sent": False}]
    assert cli.json("topicStatus", "-t", topic)["summary"] == {"messages": 1}


def test_what_is_not_there_is_said_so(cli: AdminCli, topic: str) -> None:
    assert cli.run("queryMsgById", "-i", "0" * 32).code == 3
    assert cli.run("queryMsgById", "-i", "12").code == 2
    assert cli.run("queryMsgByUniqueKey", "-t", topic, "-i", "A" * 32).code == 3
    nothing = ("queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "0", "-o", "7")
    assert cli.run(*nothing).code == 3
    assert cli.run("queryMsgTraceById", "-i", "nobody", "-t", topic).code == 3
    found = cli.json("queryMsgByKey", "-t", topic, "-k", "none")
    assert found["summary"] == {"scanned": 0, "matched": 0, "complete": True}


def test_more_messages_of_a_key_than_a_broker_gives_at_once(
    cli: AdminCli, cluster: EmbeddedCluster, topic: str
) -> None:
    with Producer(namesrv=cluster.namesrv, group="many") as producer:
        # An index knows seconds: more than 64 of one second cannot be told apart.
        for _ in range(3):
            start = time.time()
            producer.send_batch(Message(topic=topic, body=b"x", keys=["same"]) for _ in range(30))
            wait_until(lambda start=start: int(time.time()) > int(start))  # type: ignore[misc]
    first = cli.json("queryMsgByKey", "-t", topic, "-k", "same")
    assert (first["summary"]["matched"], first["summary"]["complete"]) == (64, False)
    everything = cli.json("queryMsgByKey", "-t", topic, "-k", "same", "--limit", "1000")
    assert (everything["summary"]["matched"], everything["summary"]["complete"]) == (90, True)
    offsets = [row["queueOffset"] for row in everything["rows"]]
    assert sorted(offsets) == list(range(90))
    future = cli.json("queryMsgByKey", "-t", topic, "-k", "same", "--begin", "2100-01-01")
    assert future["rows"] == []


def test_print_msg_reads_pages_by_cursor(
    cli: AdminCli, cluster: EmbeddedCluster, topic: str
) -> None:
    filled(cluster, topic, 10)
    first = cli.json("printMsg", "-t", topic, "--limit", "4")
    assert first["summary"]["complete"] is False
    assert first["summary"]["queues"] == [
        {"broker": "broker-a", "queueId": 0, "begin": 0, "end": 10}
    ]
    rest = cli.json("printMsg", "-t", topic, "--cursor", first["summary"]["cursor"])
    assert (rest["summary"]["complete"], rest["summary"]["cursor"]) == (True, None)
    rows = first["rows"] + rest["rows"]
    assert [row["body"] for row in rows] == [f"body {n}" for n in range(10)]
    red = cli.json("printMsg", "-t", topic, "-s", "tag1", "-d", "false")
    assert (red["summary"]["matched"], red["summary"]["scanned"]) == (5, 10)
    assert "body" not in red["rows"][0]
    assert cli.rows("printMsg", "-t", topic, "-b", "2100-01-01T00:00:00+00:00") == []
    assert cli.run("printMsg", "-t", topic, "--cursor", "nonsense").code == 2
    assert cli.run("printMsg", "-t", "no-such-topic").code == 3


def test_print_msg_by_queue_counts_by_tag(
    cli: AdminCli, cluster: EmbeddedCluster, topic: str
) -> None:
    filled(cluster, topic, 6)
    queue = ("-t", topic, "-a", "broker-a", "-i", "0")
    found = cli.json("printMsgByQueue", *queue, "-f", "true", "-p", "false")
    assert found["rows"] == []
    assert found["summary"]["byTag"] == {"tag0": 3, "tag1": 3}
    assert len(cli.rows("printMsgByQueue", *queue)) == 6


def test_consume_message_reads_from_an_offset(
    cli: AdminCli, cluster: EmbeddedCluster, topic: str
) -> None:
    filled(cluster, topic, 6)
    rows = cli.rows(
        "consumeMessage", "-t", topic, "-b", "broker-a", "-i", "0", "-o", "2", "-c", "3"
    )
    assert [row["queueOffset"] for row in rows] == [2, 3, 4]
    assert cli.run("consumeMessage", "-t", topic, "-b", "broker-b").code == 3


def test_query_cq_shows_raw_entries(cli: AdminCli, cluster: EmbeddedCluster, topic: str) -> None:
    sent = filled(cluster, topic, 3)
    found = cli.json("queryCq", "-t", topic, "-q", "0", "-i", "1", "-b", "broker-a")
    assert [row["queueOffset"] for row in found["rows"]] == [1, 2]
    assert found["rows"][0]["physicalOffset"] == int(sent[1].offset_message_id[-16:], 16)
    assert (found["summary"]["minOffset"], found["summary"]["maxOffset"]) == (0, 3)
    judged = cli.json("queryCq", "-t", topic, "-q", "0", "-i", "0", "-g", "nobody")
    assert "is not online" in judged["summary"]["filter"]
    assert cli.run("queryCq", "-t", topic, "-q", "0", "-i", "99").code == 3


def test_a_message_is_tracked_traced_and_pushed(
    cli: AdminCli, cluster: EmbeddedCluster, topic: str
) -> None:
    with Producer(namesrv=cluster.namesrv, group="tracing", trace=True) as producer:
        sent = producer.send(Message(topic=topic, body=b"followed", keys=["k"]))
    (before,) = cli.rows("queryMsgById", "-i", sent.offset_message_id)
    assert before["tracks"] == []
    got: list[ReceivedMessage] = []
    with consuming(cluster, "trackers", topic, got):
        wait_until(lambda: cluster.lag("trackers", topic) == 0 and len(got) == 1)
        (row,) = cli.rows("queryMsgById", "-i", sent.offset_message_id)
        assert row["tracks"] == [{"group": "trackers", "state": "CONSUMED", "reason": None}]
        (client,) = cli.rows("consumerConnection", "-g", "trackers")
        push = ("-g", "trackers", "-d", client["clientId"])
        (pushed,) = cli.rows("queryMsgById", "-i", sent.offset_message_id, *push, "--yes")
        assert (pushed["outcome"], pushed["new"]["result"]) == ("done", "CR_SUCCESS")
        unique = ("-t", topic, "-i", sent.message_id)
        (again,) = cli.rows("queryMsgByUniqueKey", *unique, *push, "--yes")
        assert again["outcome"] == "done"
        wait_until(lambda: len(got) == 3)
    (offline,) = cli.rows("queryMsgById", "-i", sent.offset_message_id)
    assert offline["tracks"][0]["state"] == "NOT_ONLINE"
    steps = cli.rows("queryMsgTraceById", "-i", sent.message_id)
    assert [(step["kind"], step["group"], step["status"]) for step in steps][:2] == [
        ("Pub", "tracing", "success"),
        ("Sub", "trackers", "success"),
    ]
    (resent,) = cli.rows("queryMsgById", "-i", sent.offset_message_id, "-s", "true", "--yes")
    assert resent["outcome"] == "done"
    assert len(cluster.messages(topic)) == 2


def make_dead_letters(cluster: EmbeddedCluster, group: str, topic: str, count: int) -> None:
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        PullConsumer(namesrv=cluster.namesrv, group=group) as pulling,
    ):
        admin.put_group(group, broker="broker-a")
        for message in pulling.pull(pulling.queues(topic)[0], 0, count_max=count).messages:
            assert pulling.send_back(message, delay_level=-1)
    cluster.wait_for(f"%DLQ%{group}", count)


def test_dead_letters_are_listed_shown_and_replayed(
    cli: AdminCli, cluster: EmbeddedCluster, topic: str
) -> None:
    filled(cluster, topic, 3)
    make_dead_letters(cluster, "buriers", topic, 3)
    listed = cli.run("dlq", "list", "-o", "json").envelope
    (row,) = [one for one in listed["rows"] if one["group"] == "buriers"]
    assert (row["topic"], row["messages"]) == ("%DLQ%buriers", 3)
    shown = cli.run("dlq", "show", "-g", "buriers", "-o", "json").envelope
    assert [one["body"] for one in shown["rows"]] == ["body 0", "body 1", "body 2"]
    chosen = shown["rows"][0]["messageId"]
    replay = ("dlq", "replay", "-g", "buriers", "--id", chosen, "-o", "json")
    planned = cli.run(*replay, "--dry-run").envelope
    assert [one["outcome"] for one in planned["rows"]] == ["planned"]
    refused = cli.run(*replay)
    assert refused.code == 2
    assert cluster.messages("%RETRY%buriers") == []
    done = cli.run(*replay, "--yes").envelope
    assert done["summary"]["sent"] == 1
    assert done["rows"][0]["targetTopic"] == "%RETRY%buriers"
    got: list[ReceivedMessage] = []
    with consuming(cluster, "buriers", topic, got):
        wait_until(lambda: any(one.queue.topic == "%RETRY%buriers" for one in got))
    (retried,) = [one for one in got if one.queue.topic == "%RETRY%buriers"]
    assert (retried.topic, retried.body, retried.reconsume_times) == (topic, b"body 0", 0)


def test_dead_letters_go_to_a_topic_at_a_rate_and_failures_are_told(
    cli: AdminCli, cluster: EmbeddedCluster, topic: str
) -> None:
    filled(cluster, topic, 3)
    make_dead_letters(cluster, "movers", topic, 3)
    began = time.monotonic()
    origin = cli.run("dlq", "replay", "-g", "movers", "--to-origin", "--rate", "20", "--yes")
    assert origin.code == 0
    assert time.monotonic() - began >= 0.1
    assert len(cluster.messages(topic)) == 6
    cli.change("updateTopicPerm", "-t", topic, "-p", "4", "-b", "broker-a")
    wait_until(lambda: cli.rows("topicRoute", "-t", topic)[0]["perm"] == 4)
    failed = cli.run("dlq", "replay", "-g", "movers", "--to-origin", "--yes", "-o", "json")
    assert failed.code == 3
    assert {one["outcome"] for one in failed.envelope["rows"]} == {"failed"}
    both = cli.run("dlq", "replay", "-g", "movers", "--to-origin", "--to", "x", "--yes")
    assert both.code == 2
