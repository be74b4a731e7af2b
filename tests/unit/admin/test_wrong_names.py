"""What an operator is told who names what is not there: one line, the next step, exit code 3."""

import pytest

from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli

MISSING = {
    ("clusterRT", "-c", "nosuch", "-a", "1", "--watch-count", "1"): "there is no cluster 'nosuch'",
    ("brokerStatus", "-b", ""): "there is no broker ''",
    ("resetOffsetByTime", "-g", "nosuch", "-t", "orders", "-s", "now", "--yes"): "no broker has",
    ("resetOffsetByTime", "-g", "nosuch", "-t", "orders", "-s", "now", "--dry-run"): "updateSubGr",
    ("skipAccumulatedMessage", "-g", "nosuch", "-t", "orders", "--yes"): "no broker has the group",
    ("checkMsgSendRT", "-t", "nosuch", "-a", "1"): "TOPIC_NOT_EXIST",
    ("dlq", "show", "-g", "nosuch"): "the group 'nosuch' has no dead letters; dlq list",
    ("dlq", "replay", "-g", "nosuch", "--yes"): "the group 'nosuch' has no dead letters; dlq list",
    ("queryMsgTraceById", "-i", "0" * 32): "traceTopicEnable makes it",
    ("printMsgByQueue", "-t", "orders", "-a", "nosuch", "-i", "0"): "topicStatus shows those",
    ("printMsgByQueue", "-t", "orders", "-a", "broker-a", "-i", "99"): "topicStatus shows those",
}


@pytest.mark.parametrize("command", MISSING, ids=" ".join)
def test_what_is_not_there_is_said_in_one_line(
    cli: AdminCli, cluster: EmbeddedCluster, command: tuple[str, ...]
) -> None:
    cluster.create_topic("orders")
    done = cli.run(*command)
    assert done.code == 3, done.err
    (line,) = done.err.splitlines()
    assert MISSING[command] in line
    assert cli.run("topicRoute", "-t", "nosuch").code == 3, "nothing was made"


def test_no_id_at_all_is_wrong_usage(cli: AdminCli) -> None:
    assert cli.run("queryMsgById", "-i", " , ").code == 2


def test_who_asks_for_json_by_a_letter_that_is_taken_is_told_the_option(cli: AdminCli) -> None:
    done = cli.run("updateTopic", "-t", "orders", "-c", "DefaultCluster", "-o", "json")
    assert done.code == 2
    assert "The form of the output is --output here." in done.err
    done = cli.run("queryMsgByOffset", "-t", "a", "-b", "b", "-i", "0", "-o", "x")
    assert "The form of the output" not in done.err


def test_one_cause_of_many_failures_is_told_once(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    limit = ("updateBrokerConfig", "-b", "broker-a", "-k", "maxMessageSize", "-v")
    cli.change(*limit, "1000")
    try:
        done = cli.run("checkMsgSendRT", "-t", "orders", "-a", "5", "-s", "2000")
    finally:
        cli.change(*limit, str(4 << 20))
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert line.startswith("flintmq: broker-a: MESSAGE_ILLEGAL")
