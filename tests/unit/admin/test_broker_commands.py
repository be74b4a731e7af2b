"""The commands about brokers, against our broker."""

from tests.kits.admin.admin_kit import AdminCli


def test_cluster_list_has_each_broker(cli: AdminCli) -> None:
    (row,) = cli.rows("clusterList")
    assert (row["cluster"], row["broker"], row["brokerId"]) == ("DefaultCluster", "broker-a", 0)
    assert row["address"].startswith("127.0.0.1:")
    assert row["version"] == "V4_9_8"
    assert 0 <= row["diskRatio"] <= 1
    assert "IN YESTERDAY" in cli.run("clusterList", "-m").out


def test_broker_status_and_settings_have_all_values(cli: AdminCli) -> None:
    (status,) = cli.rows("brokerStatus", "-c", "DefaultCluster")
    assert {"putTps", "commitLogDiskRatio", "brokerVersionDesc"} <= set(status["values"])
    (by_name,) = cli.rows("brokerStatus", "-b", "broker-a")
    (by_address,) = cli.rows("brokerStatus", "-b", by_name["address"])
    assert by_address["broker"] == "broker-a"
    (settings,) = cli.rows("getBrokerConfig", "-b", "broker-a")
    assert settings["values"]["brokerName"] == "broker-a"
    lines = cli.run("getBrokerConfig", "-b", "broker-a").out
    assert "brokerClusterName" in lines


def test_a_setting_is_changed_and_shown_as_it_was(cli: AdminCli) -> None:
    arguments = ("-b", "broker-a", "-k", "fileReservedTime", "-v", "71")
    (row,) = cli.change("updateBrokerConfig", *arguments)
    assert (row["old"], row["new"]) == ({"fileReservedTime": "72"}, {"fileReservedTime": "71"})
    (settings,) = cli.rows("getBrokerConfig", "-b", "broker-a")
    assert settings["values"]["fileReservedTime"] == "71"


def test_a_setting_that_may_not_be_changed_ends_with_4(cli: AdminCli) -> None:
    arguments = ("-b", "broker-a", "-k", "brokerName", "-v", "other", "--yes")
    done = cli.run("updateBrokerConfig", *arguments, "--output", "json")
    assert done.code == 4
    (row,) = done.envelope["rows"]
    assert (row["outcome"], "brokerName" in row["error"]) == ("failed", True)


def test_brokers_clean_up_when_told(cli: AdminCli) -> None:
    for command in ("cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic"):
        for arguments in ((), ("-b", "broker-a"), ("-c", "DefaultCluster")):
            (row,) = cli.change(command, *arguments)
            assert row["outcome"] == "done"
