"""``flintmq admin`` and the official mqadmin of 4.9.7 tell the same, of the same Java cluster.

One Java cluster and one process of mqadmin serve all tests of this module.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

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
from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli, wait_until
from tests.kits.admin.compared_cluster import ACCOUNTS, GROUP, SETTINGS, TOPIC, set_up
from tests.kits.processes.java_admin import JavaAdmin
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain

pytestmark = pytest.mark.interop

ERROR: Final = re.compile(r"^\s+at org\.apache|\w+Exception:|command failed", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parity:
    """A cluster that both tools look at."""

    java: JavaAdmin
    cli: AdminCli
    broker: str
    work: Path
    sent: list[SendResult]

    def told(self, *arguments: str) -> str:
        """Return what mqadmin prints."""
        said = self.java(*arguments, "-n", self.cli.namesrv)
        assert not ERROR.search(said), said
        return said


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[JavaAdmin, JavaCluster, Path]]:
    toolchain = JavaToolchain.find()
    work = tmp_path_factory.mktemp("parity")
    accounts = work / "home" / "conf" / "plain_acl.yml"
    accounts.parent.mkdir(parents=True)
    accounts.write_text(ACCOUNTS)
    with (
        JavaCluster(work / "store", SETTINGS, work_directory=work, toolchain=toolchain) as cluster,
        JavaAdmin(toolchain, work / "tools") as admin,
    ):
        yield admin, cluster, work
        # Nobody needs what it has stored: a clean stop would only take its time.
        cluster.kill_broker()


@pytest.fixture(scope="module")
def parity(java: tuple[JavaAdmin, JavaCluster, Path]) -> Iterator[Parity]:
    admin, cluster, work = java
    with ExitStack() as stack:
        namesrv = f"{HOST}:{cluster.namesrv_port}"
        sent = set_up(stack, AdminCli(namesrv))
        broker = f"{HOST}:{cluster.broker_port}"
        yield Parity(admin, AdminCli(namesrv), broker, work, sent)


def rows_of(text: str) -> list[list[str]]:
    """Return the lines of a table of mqadmin, cut at blanks, without its heading."""
    return [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]


def pairs_of(text: str) -> dict[str, str]:
    """Return lines like ``key  =  value`` or ``key  : value``."""
    found = {}
    for line in text.splitlines():
        key, separator, value = line.partition("  =  ")
        if not separator:
            key, separator, value = line.partition(":")
        if separator and "====" not in line:
            found[key.strip()] = value.strip()
    return found


def shown_time(text: str) -> str:
    """Return a time of ours as mqadmin, in UTC, shows it: to the millisecond."""
    moment = datetime.fromisoformat(text).astimezone(tz=None)
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"


# -- cluster and brokers ---------------------------------------------------------------------


def test_cluster_list(parity: Parity) -> None:
    (line,) = rows_of(parity.told("clusterList"))
    (row,) = parity.cli.rows("clusterList")
    names = ("cluster", "broker", "brokerId", "address", "version")
    assert line[:5] == [str(row[name]) for name in names]
    (line,) = rows_of(parity.told("clusterList", "-m"))
    totals = ("inYesterday", "outYesterday", "inToday", "outToday")
    assert line[2:] == [str(row[name]) for name in totals]


def test_broker_status_and_settings(parity: Parity) -> None:
    theirs = pairs_of(parity.told("brokerStatus", "-b", parity.broker))
    (ours,) = parity.cli.rows("brokerStatus", "-b", parity.broker)
    assert set(theirs) == set(ours["values"])
    same = ("brokerVersionDesc", "commitLogMaxOffset", "msgPutTotalTodayNow", "bootTimestamp")
    assert {k: theirs[k] for k in same} == {k: ours["values"][k] for k in same}
    theirs = pairs_of(parity.told("getBrokerConfig", "-b", parity.broker))
    (ours,) = parity.cli.rows("getBrokerConfig", "-b", parity.broker)
    assert {k: v.strip() for k, v in ours["values"].items()} == theirs


def test_statistics(parity: Parity) -> None:
    theirs = {(line[0], line[1]): line[2] for line in rows_of(parity.told("statsAll", "-t", TOPIC))}
    ours = parity.cli.rows("statsAll", "-t", TOPIC)
    assert {(one["topic"], one["group"]): str(one["lag"]) for one in ours} == theirs
    lines = rows_of(parity.told("brokerConsumeStats", "-b", parity.broker))
    found = parity.cli.json("brokerConsumeStats", "-b", parity.broker)
    names = ("topic", "group", "broker", "queueId", "brokerOffset", "consumerOffset", "diff")
    own = [[str(row[name]) for name in names] for row in found["rows"]]
    assert sorted(line[:7] for line in lines if len(line) > 7) == sorted(own)
    assert lines[-1] == ["Diff", "Total:", str(found["summary"]["diffTotal"])]


# -- topics ----------------------------------------------------------------------------------


def test_topics(parity: Parity) -> None:
    names = parity.told("topicList").split()
    assert [row["topic"] for row in parity.cli.rows("topicList")] == sorted(names)
    uses = sorted(rows_of(parity.told("topicList", "-c")))
    ours = [
        [row["cluster"], row["topic"], *([row["group"]] if row["group"] else [])]
        for row in parity.cli.rows("topicList", "-c")
    ]
    assert sorted(ours) == uses
    assert parity.told("topicClusterList", "-t", TOPIC).split() == [
        row["cluster"] for row in parity.cli.rows("topicClusterList", "-t", TOPIC)
    ]


def test_route_and_status_of_a_topic(parity: Parity) -> None:
    route = parity.told("topicRoute", "-t", TOPIC)
    (row,) = parity.cli.rows("topicRoute", "-t", TOPIC)
    for name, value in (("perm", "perm"), ("readQueues", "readQueueNums")):
        assert f'"{value}":{row[name]}' in route
    assert f'{{0:"{row["addresses"]["0"]}"' in route
    lines = rows_of(parity.told("topicStatus", "-t", TOPIC))
    ours = [
        [
            *(str(row[name]) for name in ("broker", "queueId", "minOffset", "maxOffset")),
            *shown_time(row["lastStoredAt"]).split(),
        ]
        for row in parity.cli.rows("topicStatus", "-t", TOPIC)
    ]
    assert ours == lines


def test_allocation_of_queues(parity: Parity) -> None:
    clients = ("-t", TOPIC, "-i", "10.0.0.1,10.0.0.2,10.0.0.3")
    theirs = json.loads(parity.told("allocateMQ", *clients))["result"]
    ours = {
        row["client"]: [
            {"brokerName": q["brokerName"], "queueId": q["queueId"], "topic": q["topic"]}
            for q in row["queues"]
        ]
        for row in parity.cli.rows("allocateMQ", *clients)
    }
    assert ours == theirs


# -- groups ----------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [GROUP, "behind"])
def test_progress_of_a_group(parity: Parity, group: str) -> None:
    lines = rows_of(parity.told("consumerProgress", "-g", group, "-s", "true"))
    found = parity.cli.json("consumerProgress", "-g", group, "-s")
    names = ("topic", "broker", "queueId", "brokerOffset", "consumerOffset")
    ours = [
        [*(str(row[name]) for name in names), row["client"] or "N/A", str(row["diff"])]
        for row in found["rows"]
    ]
    assert sorted(line[:7] for line in lines if len(line) > 7) == sorted(ours)
    assert lines[-1] == ["Diff", "Total:", str(found["summary"]["diffTotal"])]


def test_progress_of_all_groups(parity: Parity) -> None:
    theirs = {line[0]: line for line in rows_of(parity.told("consumerProgress"))}
    ours = {row["group"]: row for row in parity.cli.rows("consumerProgress")}
    assert set(ours) == set(theirs)
    line, row = theirs[GROUP], ours[GROUP]
    assert line[1:3] == [str(row["memberCount"]), row["version"]]
    assert line[-1] == str(row["diffTotal"])


def test_members_of_a_group(parity: Parity) -> None:
    said = parity.told("consumerConnection", "-g", GROUP)
    found = parity.cli.json("consumerConnection", "-g", GROUP)
    (client,) = found["rows"]
    line = [client[name] for name in ("clientId", "address", "language", "version")]
    assert line in rows_of(said)
    for topic, one in found["summary"]["subscriptions"].items():
        assert [topic, *one["expression"].split()] in rows_of(said)
    settings = pairs_of(said)
    assert settings["ConsumeType"] == found["summary"]["consumeType"]
    assert settings["MessageModel"] == found["summary"]["messageModel"]
    assert settings["ConsumeFromWhere"] == found["summary"]["consumeFrom"]
    status = parity.told("consumerStatus", "-g", GROUP)
    ours = parity.cli.json("consumerStatus", "-g", GROUP)
    assert [row["clientId"] for row in ours["rows"]] == [client["clientId"]]
    assert ("Same subscription" in status) is ours["summary"]["subscriptionsAlike"]


def test_configuration_of_a_group(parity: Parity) -> None:
    theirs = pairs_of(parity.told("getConsumerConfig", "-g", GROUP))
    (row,) = parity.cli.rows("getConsumerConfig", "-g", GROUP)
    config = row["config"]
    assert theirs == {
        "groupName": config["name"],
        "consumeEnable": shown(config["consumeEnable"]),
        "consumeFromMinEnable": shown(config["consumeFromMinEnable"]),
        "consumeBroadcastEnable": shown(config["consumeBroadcastEnable"]),
        "retryQueueNums": shown(config["retryQueueCount"]),
        "retryMaxTimes": shown(config["retryMaxTimes"]),
        "brokerId": shown(config["brokerId"]),
        "whichBrokerWhenConsumeSlowly": shown(config["slowBrokerId"]),
        "notifyConsumerIdsChangedEnable": shown(config["notifyIdsChangedEnable"]),
    }


def shown(value: Any) -> str:
    return str(value).lower()


def test_producers(parity: Parity) -> None:
    lines = rows_of(parity.told("producerConnection", "-g", "makers", "-t", TOPIC))
    ours = parity.cli.rows("producerConnection", "-g", "makers", "-t", TOPIC)
    names = ("clientId", "address", "language", "version")
    assert [line[1:] for line in lines] == [[row[name] for name in names] for row in ours]
    said = parity.told("producer", "-b", parity.broker)
    theirs = re.findall(r"producer group \((.+?)\).*clientId=(.+?),remoteIP=/(.+?),", said)
    rows = parity.cli.rows("producer", "-b", parity.broker)
    assert sorted((row["group"], row["clientId"], row["address"]) for row in rows) == sorted(theirs)


# -- messages --------------------------------------------------------------------------------


def test_a_message_by_its_ids(parity: Parity) -> None:
    sent = parity.sent[3]
    queue = ("-b", "broker-a", "-i", str(sent.queue.queue_id), "-o", str(sent.queue_offset))
    for command in (
        ("queryMsgById", "-i", sent.offset_message_id),
        ("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent.message_id),
        ("queryMsgByOffset", "-t", TOPIC, *queue),
    ):
        theirs = pairs_of(parity.told(*command))
        (row,) = parity.cli.rows(*command)
        assert theirs["Topic"] == row["topic"]
        assert theirs["Tags"] == f"[{row['tag']}]"
        assert theirs["Keys"] == f"[{' '.join(row['keys'])}]"
        assert theirs["Queue ID"] == str(row["queueId"])
        assert theirs["Queue Offset"] == str(row["queueOffset"])
        assert theirs["CommitLog Offset"] == str(row["physicalOffset"])
        assert theirs["Store Timestamp"] == shown_time(row["storedAt"])
        assert theirs["Born Host"] == row["bornHost"]
    said = parity.told("queryMsgById", "-i", sent.offset_message_id)
    tracks = re.findall(r"consumerGroup=(.+?), trackType=(.+?),", said)
    (row,) = parity.cli.rows("queryMsgById", "-i", sent.offset_message_id)
    assert [(one["group"], one["state"]) for one in row["tracks"]] == sorted(tracks)


def test_messages_by_key_and_of_queues(parity: Parity) -> None:
    theirs = rows_of(parity.told("queryMsgByKey", "-t", TOPIC, "-k", "all"))
    rows = parity.cli.rows("queryMsgByKey", "-t", TOPIC, "-k", "all")
    names = ("messageId", "queueId", "queueOffset")
    assert sorted([str(row[name]) for name in names] for row in rows) == sorted(theirs)
    for command in (
        ("printMsg", "-t", TOPIC, "-d", "true"),
        ("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "0", "-p", "true", "-d", "true"),
        ("consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "1", "-c", "3"),
    ):
        said = parity.told(*command)
        printed = re.findall(r"MSGID: (\S+) .*?queueOffset=(\d+).*BODY: (.*)", said)
        rows = parity.cli.rows(*command)
        ours = [(row["messageId"], str(row["queueOffset"]), row["body"]) for row in rows]
        assert ours == printed


def test_raw_entries_of_a_queue(parity: Parity) -> None:
    arguments = ("-t", TOPIC, "-q", "0", "-i", "0", "-c", "3", "-b", parity.broker)
    said = parity.told("queryCq", *arguments)
    units = re.findall(r"physicOffset=(\d+), physicSize=(\d+), tagsCode=(-?\d+)", said)
    found = parity.cli.json("queryCq", *arguments)
    names = ("physicalOffset", "size", "tagsCode")
    assert [tuple(str(row[name]) for name in names) for row in found["rows"]] == units
    summary = found["summary"]
    assert f"max: {summary['maxOffset']}, min: {summary['minOffset']}" in said


# -- name servers and exports ----------------------------------------------------------------


def test_settings_of_name_servers(parity: Parity) -> None:
    theirs = pairs_of(parity.told("getNamesrvConfig"))
    (row,) = parity.cli.rows("getNamesrvConfig")
    assert {key: value.strip() for key, value in row["values"].items()} == theirs


def test_exports(parity: Parity) -> None:
    where = {name: parity.work / name for name in ("theirs", "ours")}
    for command in ("exportMetadata", "exportConfigs"):
        for path in where.values():
            path.mkdir(exist_ok=True)
        parity.told(command, "-c", "DefaultCluster", "-f", str(where["theirs"]))
        parity.cli.rows(command, "-c", "DefaultCluster", "-f", str(where["ours"]))
    theirs, ours = (json.loads((one / "metadata.json").read_text()) for one in where.values())
    for table in ("topicConfigTable", "subscriptionGroupTable"):
        assert ours[table] == theirs[table]
    theirs, ours = (json.loads((one / "configs.json").read_text()) for one in where.values())
    assert ours["clusterScale"] == theirs["clusterScale"]
    for broker, settings in theirs["brokerConfigs"].items():
        for key, value in settings.items():
            assert ours["brokerConfigs"][broker].get(key) == value, key


def test_versions_of_accounts(parity: Parity) -> None:
    (line, _) = rows_of(parity.told("clusterAclConfigVersion", "-c", "DefaultCluster"))
    (row,) = parity.cli.rows("clusterAclConfigVersion", "-c", "DefaultCluster")
    names = ("cluster", "broker", "address", "file", "counter")
    assert line == [*(str(row[name]) for name in names), *shown_time(row["changedAt"])[:-4].split()]


def test_measures_of_a_cluster(parity: Parity) -> None:
    where = {name: parity.work / f"measures-{name}" for name in ("theirs", "ours")}
    for path in where.values():
        path.mkdir()
    parity.told("exportMetrics", "-c", "DefaultCluster", "-f", str(where["theirs"]))
    parity.cli.rows("exportMetrics", "-c", "DefaultCluster", "-f", str(where["ours"]))
    theirs, ours = (json.loads((one / "metrics.json").read_text()) for one in where.values())
    del ours["exportTime"]
    for report in (theirs, ours):  # Rates go on from one export to the next.
        for rates in (
            report["evaluateReport"]["broker-a"]["runtimeQuota"]["tps"],
            report["totalData"]["totalTps"],
        ):
            rates.update(dict.fromkeys(rates, 0.0))
    assert ours == theirs


def test_the_trace_of_a_message(parity: Parity) -> None:
    namesrv, got, topic = parity.cli.namesrv, list[ReceivedMessage](), "watched"
    parity.cli.change("updateTopic", "-t", topic, "-c", "DefaultCluster", "-r", "1", "-w", "1")
    wait_until(lambda: parity.cli.run("topicRoute", "-t", topic).code == 0)
    with Producer(namesrv=namesrv, group="traced", trace=True) as producer:
        sent = producer.send(Message(topic=topic, body=b"neither tag nor keys"))
    with PushConsumer(
        namesrv=namesrv,
        group="tracing",
        subscriptions={topic: "*"},
        handler=got.append,
        trace=True,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        wait_until(lambda: sent.message_id in [one.message_id for one in got])
    asked = ("queryMsgTraceById", "-i", sent.message_id)
    wait_until(lambda: len(parity.cli.run(*asked, "-o", "json").envelope["rows"]) == 2)
    ours = [
        [
            *(row["kind"], row["group"], row["client"].partition(":")[0]),
            *shown_time(row["happenedAt"])[:-4].split(),
            *(f"{row['costMs']}ms", row["status"]),
        ]
        for row in parity.cli.rows(*asked)
    ]
    assert rows_of(parity.told(*asked)) == ours


# -- what changes something, on a Java cluster ------------------------------------------------


def test_changes_on_a_java_cluster(parity: Parity) -> None:
    cli, here = parity.cli, ("-c", "DefaultCluster")
    (made,) = cli.change("updateTopic", "-t", "made", *here, "-r", "1", "-w", "1")
    assert made["old"] is None
    wait_until(lambda: cli.run("topicRoute", "-t", "made").code == 0)
    (perm,) = cli.change("updateTopicPerm", "-t", "made", "-p", "4", "-b", parity.broker)
    assert (perm["old"], perm["new"]) == ({"perm": 6}, {"perm": 4})
    cli.change("updateTopicPerm", "-t", "made", "-p", "6", "-b", "broker-a")
    wait_until(lambda: cli.rows("topicRoute", "-t", "made")[0]["perm"] == 6)
    (setting,) = cli.change(
        "updateBrokerConfig", "-b", "broker-a", "-k", "defaultTopicQueueNums", "-v", "5"
    )
    assert setting["old"] == {"defaultTopicQueueNums": "8"}
    (row,) = cli.rows("getBrokerConfig", "-b", "broker-a")
    assert row["values"]["defaultTopicQueueNums"] == "5"
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert [one["outcome"] for one in cli.change(command, *here)] == ["done"]
    cli.change("updateKvConfig", "-s", "space", "-k", "key", "-v", "one")
    cli.change("deleteKvConfig", "-s", "space", "-k", "key")
    (wiped,) = cli.rows("wipeWritePerm", "-b", "broker-a", "--yes")
    assert wiped["new"]["topics"] > 0
    found = {row["check"] for row in cli.json("doctor")["rows"]}
    assert {"drained-broker", "nobody-consumes", "flush"} <= found
    cli.rows("addWritePerm", "-b", "broker-a", "--yes")
    (changed,) = cli.change("updateSubGroup", "-g", "behind", *here, "-r", "3")
    assert changed["new"]["retryMaxTimes"] == 3


def test_a_group_is_moved_and_a_dead_letter_replayed_on_a_java_cluster(parity: Parity) -> None:
    cli, group = parity.cli, ("-g", "behind", "-t", TOPIC)
    rows = cli.change("resetOffsetByTime", *group, "-s", "1h")
    assert {row["new"]["offset"] for row in rows} == {0}
    assert cli.json("lag", *group)["summary"]["messages"] == len(parity.sent)
    cli.change("skipAccumulatedMessage", *group)
    assert cli.run("lag", *group, "--max", "0").code == 0
    cli.change("cloneGroupOffset", "-s", GROUP, "-d", "behind", "-t", TOPIC)
    with PullConsumer(namesrv=cli.namesrv, group="behind") as pulling:
        message = pulling.pull(pulling.queues(TOPIC)[0], 0, count_max=1).messages[0]
        assert pulling.send_back(message, delay_level=-1)
    wait_until(lambda: cli.run("dlq", "show", "-g", "behind").code == 0)
    letter = cli.run("dlq", "show", "-g", "behind", "-o", "json").envelope["rows"][0]
    assert letter["properties"]["ORIGIN_MESSAGE_ID"] == message.offset_message_id
    replay = ("dlq", "replay", "-g", "behind", "--to", "replayed", "--yes", "-o", "json")
    assert cli.run(*replay).envelope["summary"]["sent"] == 1
    wait_until(lambda: cli.run("topicRoute", "-t", "replayed").code == 0)
    (row,) = cli.rows("printMsg", "-t", "replayed")
    assert row["body"] == letter["body"]


# -- mqadmin against our servers -------------------------------------------------------------


def commands(broker: str, work: Path, sent: SendResult) -> list[tuple[str, ...]]:
    """Return all commands of mqadmin that end by themselves and need no accounts."""
    at, of, queue = ("-b", broker), ("-t", TOPIC), ("-b", "broker-a", "-i", "0")
    here, reset = ("-c", "DefaultCluster"), ("-g", "behind", "-t", TOPIC)
    return [
        ("clusterList",),
        ("clusterList", "-m"),
        ("brokerStatus", *at),
        ("getBrokerConfig", *at),
        ("updateBrokerConfig", *at, "-k", "fileReservedTime", "-v", "70"),
        ("brokerConsumeStats", *at),
        ("statsAll",),
        ("checkMsgSendRT", *of, "-a", "3", "-s", "16"),
        ("sendMsgStatus", "-b", "broker-a", "-s", "16", "-c", "2"),
        ("cleanExpiredCQ", *at),
        ("deleteExpiredCommitLog", *at),
        ("cleanUnusedTopic", *at),
        ("updateTopic", "-t", "made", *here),
        ("updateTopicPerm", "-t", "made", "-p", "4", *here),
        ("topicList",),
        ("topicList", "-c"),
        ("topicRoute", *of),
        ("topicRoute", *of, "-l"),
        ("topicStatus", *of),
        ("topicClusterList", *of),
        ("updateOrderConf", "-t", "made", "-m", "put", "-v", "broker-a:4"),
        ("updateOrderConf", "-t", "made", "-m", "get"),
        ("updateOrderConf", "-t", "made", "-m", "delete"),
        ("allocateMQ", *of, "-i", "10.0.0.1"),
        ("deleteTopic", "-t", "made", *here),
        ("consumerProgress",),
        ("consumerProgress", "-g", GROUP, "-s", "true"),
        ("consumerConnection", "-g", GROUP),
        ("consumerStatus", "-g", GROUP),
        ("getConsumerConfig", "-g", GROUP),
        ("updateSubGroup", "-g", "made", *here),
        ("deleteSubGroup", "-g", "made", *here),
        ("resetOffsetByTime", *reset, "-s", "now"),
        ("skipAccumulatedMessage", *reset),
        ("cloneGroupOffset", "-s", GROUP, "-d", "behind", *of, "-o", "true"),
        ("producerConnection", "-g", "makers", *of),
        ("producer", *at),
        ("queryMsgById", "-i", sent.offset_message_id),
        ("queryMsgByUniqueKey", "-i", sent.message_id, *of),
        ("queryMsgByKey", *of, "-k", "all"),
        ("queryMsgByOffset", *of, *queue, "-o", "0"),
        ("printMsg", *of),
        ("printMsgByQueue", *of, "-a", "broker-a", "-i", "0", "-p", "true", "-f", "true"),
        ("sendMessage", *of, "-p", "hello"),
        ("consumeMessage", *of, *queue, "-o", "0", "-c", "2"),
        ("queryCq", *of, "-q", "0", "-i", "0", *at),
        ("getNamesrvConfig",),
        ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false"),
        ("updateKvConfig", "-s", "space", "-k", "key", "-v", "value"),
        ("deleteKvConfig", "-s", "space", "-k", "key"),
        ("wipeWritePerm", "-b", "broker-a"),
        ("addWritePerm", "-b", "broker-a"),
        ("exportMetadata", *here, "-f", str(work)),
        ("exportConfigs", *here, "-f", str(work)),
        ("exportMetrics", *here, "-f", str(work)),
    ]


def test_mqadmin_has_no_error_with_our_servers_that_it_has_not_with_javas(
    parity: Parity, tmp_path: Path
) -> None:
    with EmbeddedCluster() as cluster, ExitStack() as stack:
        ours = AdminCli(cluster.namesrv)
        sent = set_up(stack, ours)[0]
        address = ours.rows("clusterList")[0]["address"]
        failures = {}
        at_java = commands(parity.broker, tmp_path, parity.sent[0])
        for command, same in zip(commands(address, tmp_path, sent), at_java, strict=True):
            said = parity.java(*command, "-n", cluster.namesrv)
            if ERROR.search(said) and not ERROR.search(
                parity.java(*same, "-n", parity.cli.namesrv)
            ):
                failures[command] = said
    assert failures == {}
