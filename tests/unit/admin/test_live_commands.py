"""``flintmq admin tail`` and ``bench``, against our broker."""

import json
import threading
from typing import Any

import pytest

from flintmq import Message, Producer
from flintmq.admin.benchmarks import FAILURES_IN_A_ROW_MAX, BenchMeter, BenchPlan
from flintmq.cli.admin import bench_command
from flintmq.cli.admin.bench_command import progress_line
from flintmq.cli.admin.tail_command import template_line
from flintmq.client.errors import SystemBusyError, UsageError
from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli, Ran


def send(cluster: EmbeddedCluster, topic: str, *bodies: bytes, tag: str | None = None) -> None:
    with Producer(namesrv=cluster.namesrv) as producer:
        for body in bodies:
            producer.send(Message(topic=topic, body=body, tag=tag, keys=["k1", "k2"]))


def lines_of(ran: Ran) -> list[dict[str, object]]:
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def test_tail_shows_the_last_messages_of_a_topic_and_ends_by_count(
    cli: AdminCli, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("tailed", queue_count=1)
    send(cluster, "tailed", *(b"body-%d" % number for number in range(5)))
    rows = lines_of(cli.run("tail", "-t", "tailed", "--last", "2", "--count", "2", "-o", "jsonl"))
    assert [row["body"] for row in rows] == ["body-3", "body-4"]
    assert [row["queueOffset"] for row in rows] == [3, 4]
    assert rows[0]["keys"] == ["k1", "k2"]
    assert rows[0]["broker"] == "broker-a"


def test_tail_begins_at_a_time_and_filters_by_tag(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("tagged", queue_count=2)
    send(cluster, "tagged", b"no", tag="A")
    send(cluster, "tagged", b"yes", b"too", tag="B")
    ran = cli.run(
        "tail", "-t", "tagged", "--from", "1h", "-s", "B || C", "--count", "2", "-o", "json"
    )
    assert sorted(str(row["body"]) for row in lines_of(ran)) == ["too", "yes"]


def test_tail_shows_what_comes_while_it_runs(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("live", queue_count=1)
    send(cluster, "live", b"before")
    done = threading.Event()

    def send_until_seen() -> None:
        while not done.wait(0.05):
            send(cluster, "live", b"while it runs")

    sender = threading.Thread(target=send_until_seen)
    sender.start()
    try:
        ran = cli.run("tail", "-t", "live", "--count", "1", "--format", "{queueId}: {body}")
    finally:
        done.set()
        sender.join()
    assert (ran.code, ran.out) == (0, "0: while it runs\n")


def test_tail_ends_when_its_time_is_over(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("silent")
    ran = cli.run("tail", "-t", "silent", "--for", "0.2")
    assert (ran.code, ran.out) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--tags", "A", "--sql", "a = 1"), 2),
        (("--format", "{nothing}"), 2),
        (("--format", "{body"), 2),
        (("--from", "yesterday"), 2),
        (("-o", "csv"), 2),
        (("--sql", "a ="), 1),
    ],
)
def test_tail_refuses_what_it_cannot_do(
    cli: AdminCli, cluster: EmbeddedCluster, arguments: tuple[str, ...], code: int
) -> None:
    cluster.create_topic("refusing")
    ran = cli.run("tail", "-t", "refusing", "--for", "30", *arguments)
    assert ran.code == code, ran
    assert len(ran.err.strip().splitlines()) <= 4


def test_tail_of_a_topic_that_there_is_not_says_so(cli: AdminCli) -> None:
    ran = cli.run("tail", "-t", "nowhere", "--for", "30")
    assert ran.code == 3
    assert "nowhere" in ran.err


def test_a_line_names_fields_and_a_body_cannot_name_others() -> None:
    row: dict[str, Any] = {
        "body": "{keys}\x1b[2J",
        "keys": [],
        "tags": None,
        "properties": {"a": "ü"},
    }
    line = template_line("{tags}|{keys}|{body}|{properties}", row)
    assert line == '-|-|{keys}\\x1b[2J|{"a": "ü"}'


def test_bench_producer_counts_what_the_broker_has_got(
    cli: AdminCli, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("benched", queue_count=2)
    arguments = ("-t", "benched", "--seconds", "60", "--count", "200", "--size", "50")
    (figures,) = cli.rows("bench", "producer", *arguments)
    assert (figures["operation"], figures["messages"], figures["failed"]) == ("producer", 200, 0)
    assert figures["rate"] > 0
    latency = figures["latency"]
    ascending = [latency[name] for name in ("p50", "p90", "p99", "p999")]
    assert ascending == sorted(ascending)
    assert latency["p999"] <= latency["max"] * 2
    (read,) = cli.rows("bench", "consumer", "-t", "benched", "--seconds", "60")
    assert (read["messages"], read["failed"]) == (200, 0)


def test_bench_producer_sends_batches(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("batched", queue_count=1)
    arguments = ("-t", "batched", "--seconds", "60", "--count", "95", "--batch", "10")
    (figures,) = cli.rows("bench", "producer", *arguments)
    assert figures["messages"] == 90, "whole batches only"
    (read,) = cli.rows("bench", "consumer", "-t", "batched", "--seconds", "60")
    assert read["messages"] == 90


def test_bench_latency_measures_messages_from_end_to_end(
    cli: AdminCli, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("round-trip", queue_count=2)
    arguments = ("-t", "round-trip", "--seconds", "60", "--count", "50", "--rate", "500")
    (figures,) = cli.rows("bench", "latency", *arguments)
    assert (figures["messages"], figures["failed"]) == (50, 0)
    assert figures["latency"]["max"] > 0


def test_a_table_has_a_line_for_each_figure_and_progress_goes_to_stderr(
    cli: AdminCli, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_command, "PROGRESS_S", 0.01)
    cluster.create_topic("told", queue_count=1)
    ran = cli.run("bench", "producer", "-t", "told", "--seconds", "1", "--rate", "50", "--progress")
    assert ran.code == 0, ran.err
    assert "p999Ms" in ran.out
    assert any(" messages, " in line and "p99 " in line for line in ran.err.splitlines())


@pytest.mark.parametrize("kind", ["producer", "consumer", "latency"])
def test_a_bench_of_a_topic_that_there_is_not_says_so(cli: AdminCli, kind: str) -> None:
    ran = cli.run("bench", kind, "-t", "nowhere", "--seconds", "5")
    assert ran.code == 3
    assert "nowhere" in ran.err


@pytest.mark.parametrize("wrong", [{"size": 5 << 20}, {"in_flight": 0}, {"batch_count": 2000}])
def test_a_plan_has_limits(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        BenchPlan(topic="t", **wrong)


def test_a_cluster_that_only_fails_is_given_up() -> None:
    meter = BenchMeter("producer")
    busy = SystemBusyError("busy")
    for _ in range(FAILURES_IN_A_ROW_MAX - 1):
        meter.note_failure(1, busy)
    meter.note(1, 1, 0.1)
    for _ in range(FAILURES_IN_A_ROW_MAX - 1):
        meter.note_failure(1, busy)
    with pytest.raises(SystemBusyError):
        meter.note_failure(1, busy)


def test_a_line_of_progress_has_what_counts() -> None:
    now = 10.0
    meter = BenchMeter("producer", now=lambda: now)
    meter.begin()
    now = 12.0
    meter.note(2000, 1 << 20, 0.001)
    meter.failed = 1
    line = progress_line(meter.figures())
    assert line.startswith("2 s: 2,000 messages, 1,000/s, 0.5 MiB/s, p50 ")
    assert line.endswith(", 1 failed")
