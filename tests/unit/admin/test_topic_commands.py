"""The commands about topics, against our broker."""

from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli


def test_update_topic_creates_a_topic_and_shows_old_and_new(cli: AdminCli) -> None:
    arguments = ("-t", "made", "-c", "DefaultCluster", "-r", "3", "-w", "2", "-p", "4")
    (created,) = cli.change("updateTopic", *arguments)
    assert created["old"] is None
    assert created["subject"] == "topic made"
    expected = {"readQueueNums": 3, "writeQueueNums": 2, "perm": 4, "topicName": "made"}
    assert expected.items() <= created["new"].items()
    (again,) = cli.change("updateTopic", *arguments)
    assert (again["outcome"], again["old"]) == ("unchanged", again["new"])


def test_a_dry_run_changes_nothing(cli: AdminCli) -> None:
    (planned,) = cli.rows("updateTopic", "-t", "dry", "-c", "DefaultCluster", "--dry-run")
    assert planned["outcome"] == "planned"
    assert {"topic": "dry"} not in cli.rows("topicList")


def test_topic_list_has_every_topic(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("listed")
    assert {"topic": "listed"} in cli.rows("topicList")
    uses = cli.rows("topicList", "-c")
    assert {"cluster": "DefaultCluster", "topic": "listed", "group": None} in uses


def test_delete_topic_removes_it_from_brokers_and_name_servers(
    cli: AdminCli, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("doomed")
    on_broker, on_name_server = cli.change("deleteTopic", "-t", "doomed", "-c", "DefaultCluster")
    assert (on_broker["subject"], on_broker["new"]) == ("topic doomed", None)
    assert on_name_server["subject"] == "route of doomed"
    assert cli.run("topicRoute", "-t", "doomed").code == 3
    again = cli.run("deleteTopic", "-t", "doomed", "-c", "DefaultCluster", "--yes")
    assert again.code == 3


def test_update_topic_perm_shows_the_old_permission(
    cli: AdminCli, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("guarded")
    (row,) = cli.change("updateTopicPerm", "-t", "guarded", "-p", "4", "-c", "DefaultCluster")
    assert (row["old"], row["new"]) == ({"perm": 6}, {"perm": 4})
    missing = cli.run("updateTopicPerm", "-t", "nothing", "-p", "4", "-b", "broker-a", "--yes")
    assert missing.code == 3


def test_topic_route_and_clusters(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("routed", queue_count=3)
    found = cli.json("topicRoute", "-t", "routed", "-l")
    assert found["summary"] == {"readQueues": 3, "writeQueues": 3}
    (row,) = found["rows"]
    assert (row["cluster"], row["broker"], row["perm"]) == ("DefaultCluster", "broker-a", 6)
    assert list(row["addresses"]) == ["0"]
    assert cli.rows("topicClusterList", "-t", "routed") == [{"cluster": "DefaultCluster"}]


def test_topic_status_tells_where_queues_begin_and_end(
    cli: AdminCli, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("counted", queue_count=2)
    for number in range(4):
        cluster.send("counted", b"%d" % number)
    found = cli.json("topicStatus", "-t", "counted")
    assert found["summary"] == {"messages": 4}
    assert [(row["broker"], row["queueId"], row["minOffset"]) for row in found["rows"]] == [
        ("broker-a", 0, 0),
        ("broker-a", 1, 0),
    ]
    assert all("T" in row["lastStoredAt"] for row in found["rows"] if row["maxOffset"])


def test_the_order_of_queues_is_put_shown_and_deleted(cli: AdminCli) -> None:
    name = ("-t", "in-order")
    assert cli.run("updateOrderConf", *name, "-m", "get").code == 3
    (put,) = cli.change("updateOrderConf", *name, "-m", "put", "-v", "broker-a:4")
    assert (put["old"], put["new"]) == (None, {"queues": "broker-a:4"})
    shown = cli.rows("updateOrderConf", *name, "-m", "get")
    assert shown == [{"topic": "in-order", "queues": "broker-a:4"}]
    (gone,) = cli.change("updateOrderConf", *name, "-m", "delete")
    assert gone["new"] is None
    assert cli.run("updateOrderConf", *name, "-m", "put", "-v", "broker-a", "--yes").code == 2


def test_an_ordered_topic_tells_name_servers_its_queues(cli: AdminCli) -> None:
    rows = cli.change("updateTopic", "-t", "sorted", "-c", "DefaultCluster", "-o", "true")
    assert [row["subject"] for row in rows] == ["topic sorted", "order of sorted"]
    assert rows[1]["new"] == {"queues": "broker-a:8"}


def test_allocate_mq_shares_queues_as_consumers_do(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("shared", queue_count=3)
    first, second = cli.rows("allocateMQ", "-t", "shared", "-i", "10.0.0.1,10.0.0.2")
    assert [queue["queueId"] for queue in first["queues"]] == [0, 1]
    assert [queue["queueId"] for queue in second["queues"]] == [2]
