"""The commands about name servers, against ours."""

from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli


def test_settings_of_name_servers_are_shown_and_changed(cli: AdminCli) -> None:
    (row,) = cli.rows("getNamesrvConfig")
    assert row["address"] == cli.namesrv
    assert row["values"]["orderMessageEnable"] == "false"
    (changed,) = cli.change("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert (changed["old"], changed["new"]) == (
        {"orderMessageEnable": "false"},
        {"orderMessageEnable": "true"},
    )
    denied = cli.run("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "/x", "--yes")
    assert denied.code == 4


def test_a_pair_is_put_and_deleted(cli: AdminCli) -> None:
    pair = ("-s", "SOME_SPACE", "-k", "some-key")
    (put,) = cli.change("updateKvConfig", *pair, "-v", "one")
    assert (put["subject"], put["old"], put["new"]) == (
        "SOME_SPACE/some-key",
        None,
        {"value": "one"},
    )
    (again,) = cli.change("updateKvConfig", *pair, "-v", "two")
    assert again["old"] == {"value": "one"}
    (gone,) = cli.change("deleteKvConfig", *pair)
    assert (gone["old"], gone["new"]) == ({"value": "two"}, None)
    assert cli.run("deleteKvConfig", *pair, "--yes").code == 3


def test_a_broker_is_drained_and_opened_again(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("drained")
    (planned,) = cli.rows("wipeWritePerm", "-b", "broker-a", "--dry-run")
    assert (planned["outcome"], planned["new"]) == ("planned", {"writable": False})
    (row,) = cli.rows("wipeWritePerm", "-b", "broker-a", "--yes")
    assert row["outcome"] == "done"
    assert row["new"]["topics"] > 0
    (route,) = cli.rows("topicRoute", "-t", "drained")
    assert route["perm"] == 4
    (opened,) = cli.rows("addWritePerm", "-b", "broker-a", "--yes")
    assert opened["new"]["writable"] is True
    (route,) = cli.rows("topicRoute", "-t", "drained")
    assert route["perm"] == 6
    assert cli.run("wipeWritePerm", "-b", "no-broker", "--yes").code == 3
