"""The commands that measure and export, against our broker."""

import json
from pathlib import Path

from flintmq import PullConsumer
from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli, wait_until


def test_stats_all_has_topics_with_and_without_groups(
    cli: AdminCli, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("measured", queue_count=1)
    for _ in range(5):
        cluster.send("measured", b"x")
    (alone,) = cli.rows("statsAll", "-t", "measured")
    assert (alone["topic"], alone["group"], alone["lag"]) == ("measured", None, 0)
    with PullConsumer(namesrv=cluster.namesrv, group="meters") as pulling:
        pulling.commit(pulling.queues("measured")[0], 2)
    (used,) = cli.rows("statsAll", "-t", "measured")
    assert (used["group"], used["lag"]) == ("meters", 3)
    assert "measured" in {row["topic"] for row in cli.rows("statsAll")}
    assert cli.rows("statsAll", "-a", "-t", "TBW102") == []


def test_test_messages_tell_how_long_brokers_take(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("probed", queue_count=2)
    planned = cli.rows("checkMsgSendRT", "-t", "probed", "--dry-run")
    assert planned == [{"topic": "probed", "messages": 100, "bodySize": 128, "sent": False}]
    found = cli.json("checkMsgSendRT", "-t", "probed", "-a", "6", "-s", "10")
    assert [row["queueId"] for row in found["rows"]] == [0, 1] * 3
    assert (found["summary"]["ok"], found["summary"]["failed"]) == (6, 0)
    assert {len(one.body) for one in cluster.messages("probed")} == {10}
    status = cli.json("sendMsgStatus", "-b", "broker-a", "-c", "3")
    assert {(row["broker"], row["isOk"]) for row in status["rows"]} == {("broker-a", True)}
    (row,) = cli.rows("clusterRT", "-a", "2", "-c", "DefaultCluster")
    assert (row["broker"], row["okCount"], row["failedCount"]) == ("broker-a", 2, 0)
    assert row["averageMs"] > 0


def test_sends_that_fail_are_told(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("refused", queue_count=1)
    cli.change("updateTopicPerm", "-t", "refused", "-p", "4", "-b", "broker-a")
    wait_until(lambda: cli.rows("topicRoute", "-t", "refused")[0]["perm"] == 4)
    assert cli.run("checkMsgSendRT", "-t", "refused", "-a", "1").code != 0


def test_monitoring_names_groups_that_nobody_serves(
    cli: AdminCli, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("watched", queue_count=1)
    # A group is known by its retry topic, which its first member makes.
    cluster.create_topic("%RETRY%lonely", queue_count=1)
    cluster.send("watched", b"x")
    with PullConsumer(namesrv=cluster.namesrv, group="lonely") as pulling:
        pulling.commit(pulling.queues("watched")[0], 0)
    found = cli.json("startMonitoring", code=1)
    (row,) = [one for one in found["rows"] if one["group"] == "lonely"]
    assert row["problems"] == ["nobody consumes"]


def test_exports_write_files(cli: AdminCli, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    cluster.create_topic("exported", queue_count=3)
    cli.change("updateSubGroup", "-g", "exporters", "-c", "DefaultCluster")
    where = ("-c", "DefaultCluster", "-f", str(tmp_path))
    (row,) = cli.rows("exportMetadata", *where)
    assert row["file"] == str(tmp_path / "metadata.json")
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["topicConfigTable"]["exported"]["readQueueNums"] == 3
    assert "TBW102" not in metadata["topicConfigTable"]
    assert "exporters" in metadata["subscriptionGroupTable"]
    assert "TOOLS_CONSUMER" not in metadata["subscriptionGroupTable"]
    (row,) = cli.rows("exportMetadata", "-b", "broker-a", "-f", str(tmp_path), "-t")
    assert row["file"] == str(tmp_path / "topic.json")
    assert cli.rows("exportConfigs", *where)[0]["file"] == str(tmp_path / "configs.json")
    configs = json.loads((tmp_path / "configs.json").read_text())
    assert configs["clusterScale"] == {
        "namesrvSize": 1,
        "masterBrokerSize": 1,
        "slaveBrokerSize": 0,
    }
    assert configs["brokerConfigs"]["broker-a"]["brokerRole"] == "ASYNC_MASTER"
    assert cli.rows("exportMetrics", *where)[0]["file"] == str(tmp_path / "metrics.json")
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    report = metrics["evaluateReport"]["broker-a"]
    assert report["runtimeVersion"]["rocketmqVersion"] == "V4_9_8"
    assert report["runtimeQuota"]["groupSize"] >= 1
    assert metrics["totalData"]["totalTps"].keys() == {
        *("totalNormalInTps", "totalNormalOutTps", "totalScheduleInTps", "totalTransInTps")
    }


def test_topics_and_groups_are_copied_to_another_cluster(
    cli: AdminCli, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("copied", queue_count=5)
    cli.change("updateSubGroup", "-g", "copiers", "-c", "DefaultCluster", "-r", "3")
    with EmbeddedCluster() as target:
        there = AdminCli(target.namesrv)
        arguments = ("-c", "DefaultCluster", "--to-namesrv", target.namesrv)
        planned = cli.rows("copy", *arguments, "--dry-run")
        subjects = {one["subject"] for one in planned}
        assert {"topic copied", "group copiers"} <= subjects
        assert not {one for one in subjects if "TBW102" in one or "%RETRY%" in one}
        (topic,) = cli.rows("copy", *arguments, "-t", "copied", "--yes")
        assert (topic["outcome"], topic["new"]["writeQueueNums"]) == ("done", 5)
        assert cli.run("getConsumerConfig", "-g", "copiers").code == 0
        assert there.run("getConsumerConfig", "-g", "copiers").code == 3
        assert {one["outcome"] for one in cli.rows("copy", *arguments, "--yes")} <= {
            "done",
            "unchanged",
        }
        (group,) = there.rows("getConsumerConfig", "-g", "copiers")
        assert group["config"]["retryMaxTimes"] == 3
        assert cli.run("copy", *arguments, "-t", "nothing", "--yes").code == 3
    assert cli.run("copy", "-c", "DefaultCluster", "--yes").code == 2
