"""The page on ``flintmq admin`` is true: its commands, and the rows that they give."""

import re
from collections.abc import Iterator

import pytest

from flintmq import ConsumeFrom, Message, Producer, PullConsumer, PushConsumer, ReceivedMessage
from flintmq.cli.admin.command_table import COMMANDS
from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli, wait_until
from tools.admin_table import PAGE, written

MQADMIN = """
clusterList brokerStatus getBrokerConfig updateBrokerConfig brokerConsumeStats statsAll
checkMsgSendRT clusterRT sendMsgStatus cleanExpiredCQ deleteExpiredCommitLog cleanUnusedTopic
startMonitoring updateTopic deleteTopic updateTopicPerm topicList topicRoute topicStatus
topicClusterList updateOrderConf allocateMQ consumerProgress consumerConnection consumerStatus
getConsumerConfig updateSubGroup deleteSubGroup resetOffsetByTime skipAccumulatedMessage
cloneGroupOffset producerConnection producer queryMsgById queryMsgByUniqueKey queryMsgByKey
queryMsgByOffset queryMsgTraceById printMsg printMsgByQueue sendMessage consumeMessage queryCq
getNamesrvConfig updateNamesrvConfig updateKvConfig deleteKvConfig wipeWritePerm addWritePerm
updateAclConfig deleteAclConfig clusterAclConfigVersion updateGlobalWhiteAddr exportMetadata
exportConfigs exportMetrics
"""


def handled(message: ReceivedMessage) -> None:
    """Take a message without doing anything."""


def documented() -> list[tuple[str, list[str], list[str]]]:
    """Return the rows of the table of JSON forms: command, members of a row, of the summary."""
    text = PAGE.read_text("utf-8")
    table = text[text.index("<!-- checked: rows -->") :]
    found = []
    for line in table[: table.index("<!-- end -->")].splitlines():
        cells = [one.strip() for one in line.strip("|").split("|")]
        if line.startswith("| `"):
            found.append((cells[0].strip("`"), words(cells[1]), words(cells[2])))
    return found


def words(cell: str) -> list[str]:
    return re.findall(r"\w+", cell)


@pytest.fixture(scope="module")
def used(cluster: EmbeddedCluster) -> Iterator[AdminCli]:
    """A cluster in use: a topic with a message, a producer, a group, a dead letter."""
    cluster.create_topic("orders", queue_count=1)
    with (
        Producer(namesrv=cluster.namesrv, group="makers", heartbeat_interval_ms=20) as producer,
        PushConsumer(
            namesrv=cluster.namesrv,
            group="readers",
            subscriptions={"orders": "*"},
            handler=handled,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            offset_interval_ms=20,
        ),
        PullConsumer(namesrv=cluster.namesrv, group="readers") as pulling,
    ):
        producer.send(Message(topic="orders", body=b"one"))
        wait_until(lambda: cluster.lag("readers", "orders") == 0)
        (message,) = pulling.pull(pulling.queues("orders")[0], 0).messages
        assert pulling.send_back(message, delay_level=-1)
        cli = AdminCli(cluster.namesrv)
        wait_until(lambda: bool(cli.rows("producer", "-b", "broker-a")))
        wait_until(lambda: "dlq" in cli.run("dlq", "list").out.lower())
        yield cli


@pytest.mark.parametrize(("command", "row", "summary"), documented())
def test_rows_have_the_members_that_the_page_tells(
    used: AdminCli, command: str, row: list[str], summary: list[str]
) -> None:
    done = used.run(*command.split(), "--output", "json")
    assert done.code in (0, 1), done.err
    found = done.envelope
    assert list(found["rows"][0]) == row
    assert list(found["summary"]) == summary


def test_the_table_of_commands_is_that_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert page == written(page), "python -m tools.admin_table writes it anew"


def test_all_commands_of_mqadmin_are_there() -> None:
    names = {row.name for row in COMMANDS}
    assert len(MQADMIN.split()) == 56
    assert set(MQADMIN.split()) <= names
