"""``flintmq admin`` looks at a cluster of RocketMQ 5, which speaks the remoting of 4.9 too."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from flintmq import SendResult
from tests.kits.admin.admin_kit import AdminCli
from tests.kits.admin.compared_cluster import GROUP, SETTINGS, TOPIC, set_up
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain

pytestmark = pytest.mark.interop

RELEASE: Final = "5.3.3"


@dataclass(frozen=True, slots=True)
class Five:
    """A cluster of release 5 with messages, groups and clients."""

    cli: AdminCli
    broker: str
    sent: list[SendResult]


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Five]:
    work = tmp_path_factory.mktemp("five")
    settings = {key: value for key, value in SETTINGS.items() if key != "aclEnable"}
    servers = JavaToolchain.servers(RELEASE)
    with (
        JavaCluster(work / "store", settings, work_directory=work, toolchain=servers) as cluster,
        ExitStack() as stack,
    ):
        cli = AdminCli(f"{HOST}:{cluster.namesrv_port}")
        yield Five(cli, f"{HOST}:{cluster.broker_port}", set_up(stack, cli))
        stack.close()
        cluster.kill_broker()


def test_every_command_that_only_looks_works(five: Five, tmp_path: Path) -> None:
    sent, at, here = five.sent[0], ("-b", five.broker), ("-c", "DefaultCluster")
    queue = ("-i", str(sent.queue.queue_id))
    for command in (
        ("clusterList",),
        ("brokerStatus", *at),
        ("getBrokerConfig", *at),
        ("brokerConsumeStats", *at),
        ("statsAll",),
        ("topicList",),
        ("topicList", "-c"),
        ("topicRoute", "-t", TOPIC),
        ("topicStatus", "-t", TOPIC),
        ("topicClusterList", "-t", TOPIC),
        ("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1"),
        ("consumerProgress",),
        ("consumerProgress", "-g", GROUP, "-s"),
        ("consumerConnection", "-g", GROUP),
        ("consumerStatus", "-g", GROUP),
        ("getConsumerConfig", "-g", GROUP),
        ("producerConnection", "-g", "makers", "-t", TOPIC),
        ("producer", *at),
        ("queryMsgById", "-i", sent.offset_message_id),
        ("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent.message_id),
        ("queryMsgByKey", "-t", TOPIC, "-k", "all"),
        ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", *queue, "-o", "0"),
        ("printMsg", "-t", TOPIC),
        ("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", *queue),
        ("consumeMessage", "-t", TOPIC, "-b", "broker-a", *queue, "-o", "0", "-c", "2"),
        ("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", *at),
        ("getNamesrvConfig",),
        ("exportMetadata", *here, "-f", str(tmp_path)),
        ("exportConfigs", *here, "-f", str(tmp_path)),
        ("exportMetrics", *here, "-f", str(tmp_path)),
        ("lag",),
        ("doctor",),
    ):
        assert five.cli.rows(*command), command


def test_what_is_told_of_release_five_is_true(five: Five) -> None:
    cli = five.cli
    (broker,) = cli.rows("clusterList")
    assert (broker["broker"], broker["version"]) == ("broker-a", "V5_3_3")
    status = cli.rows("topicStatus", "-t", TOPIC)
    assert sum(row["maxOffset"] for row in status) == len(five.sent)
    progress = {row["group"]: row for row in cli.rows("consumerProgress")}
    assert progress[GROUP]["diffTotal"] == 0
    assert progress["behind"]["diffTotal"] == len(five.sent) - 2 * len(status)
    (message,) = cli.rows("queryMsgById", "-i", five.sent[3].offset_message_id)
    assert (message["messageId"], message["body"]) == (five.sent[3].message_id, "body 3")


def test_accounts_of_release_five_are_others_and_that_is_said(five: Five) -> None:
    done = five.cli.run("clusterAclConfigVersion", "-c", "DefaultCluster")
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert "REQUEST_CODE_NOT_SUPPORTED" in line
    assert line.endswith("its release, which clusterList shows, has no such request")
