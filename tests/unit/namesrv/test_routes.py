from typing import Any

import pytest

from flintmq.format.wire.bodies.registration import Registration
from flintmq.format.wire.headers.namesrv import RegisterBrokerRequest
from flintmq.model import DataVersion, TopicConfig, TopicSysFlag
from flintmq.namesrv.routes import RouteTable

MINUTE = 60_000


def request(name: str = "a", *, broker_id: int = 0, **more: Any) -> RegisterBrokerRequest:
    values: dict[str, Any] = {
        "broker_name": name,
        "broker_addr": f"{name}{broker_id}:1",
        "cluster_name": "C",
        "ha_server_addr": f"{name}{broker_id}:2",
        "broker_id": broker_id,
    }
    return RegisterBrokerRequest(**(values | more))


def topics(*names: str, version: int = 1, **more: Any) -> Registration:
    table = {name: TopicConfig(name=name, **more) for name in names}
    return Registration(table, DataVersion(1, version))


def register(
    table: RouteTable, what: RegisterBrokerRequest, content: Registration, **more: Any
) -> Any:
    connection = more.get("connection", object())
    return table.register(what, content, connection, more.get("now_ms", 0))


def test_a_registered_topic_has_a_route() -> None:
    table = RouteTable()
    register(table, request("a"), topics("T", write_queue_count=4))
    register(table, request("b"), topics("T", "U"))
    route = table.route("T")
    assert route is not None
    assert [queue.broker_name for queue in route.queues] == ["a", "b"]
    assert route.queues[0].write_queue_count == 4
    assert route.brokers[1].addresses == {0: "b0:1"}
    assert table.route("none") is None
    assert table.topics() == ["T", "U"]
    assert table.topics_of_cluster("C") == ["T", "U"]
    assert table.topics_of_cluster("D") == []


def test_topics_change_only_with_the_version_and_are_never_dropped() -> None:
    table = RouteTable()
    register(table, request(), topics("T", "U"))
    register(table, request(), topics("T", write_queue_count=9))
    route = table.route("T")
    assert route is not None
    assert route.queues[0].write_queue_count == 16
    register(table, request(), topics("T", version=2, write_queue_count=9))
    route = table.route("T")
    assert route is not None
    assert route.queues[0].write_queue_count == 9
    assert table.route("U") is not None


def test_a_slave_is_told_its_master_and_brings_no_topics() -> None:
    table = RouteTable()
    alone = register(table, request(broker_id=1), topics("S"))
    assert (alone.master_address, alone.ha_address) == (None, None)
    register(table, request(), topics("T"))
    found = register(table, request(broker_id=1), topics("S"))
    assert (found.master_address, found.ha_address) == ("a0:1", "a0:2")
    assert table.route("S") is None
    route = table.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {0: "a0:1", 1: "a1:1"}


def test_a_broker_under_another_id_is_not_there_twice() -> None:
    table = RouteTable()
    register(table, request(), topics("T"))
    register(table, request(broker_id=1, broker_addr="a0:1"), topics("T"))
    assert table.cluster_info().brokers["a"].addresses == {1: "a0:1"}


def test_a_silent_broker_is_gone_after_two_minutes() -> None:
    table, connection = RouteTable(), object()
    register(table, request(), topics("T"), connection=connection, now_ms=0)
    assert table.expire(2 * MINUTE, 2 * MINUTE) == []
    table.touch("a0:1", MINUTE)
    assert table.expire(3 * MINUTE, 2 * MINUTE) == []
    assert table.expire(3 * MINUTE + 1, 2 * MINUTE) == [("a0:1", connection)]
    assert table.route("T") is None
    assert table.topics() == []
    assert table.cluster_info().clusters == {}


def test_a_broker_goes_with_the_connection_of_its_last_registration() -> None:
    table, old, new = RouteTable(), object(), object()
    register(table, request(), topics("T"), connection=old)
    register(table, request(), topics("T"), connection=new)
    assert table.lost(old) == []  # type: ignore[arg-type]
    assert table.route("T") is not None
    assert table.lost(new) == ["a0:1"]  # type: ignore[arg-type]
    assert table.route("T") is None


def test_a_broker_with_slaves_left_stays_readable() -> None:
    table = RouteTable()
    register(table, request(), topics("T"))
    register(table, request(broker_id=1), topics())
    table.unregister("a", 0, "a0:1")
    route = table.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {1: "a1:1"}
    table.unregister("a", 1, "a1:1")
    assert table.route("T") is None


def test_write_permission_is_taken_and_given_until_the_topics_change() -> None:
    table = RouteTable()
    register(table, request(), topics("T", perm=7))
    assert table.wipe_write_perm("a") == 1
    assert table.wipe_write_perm("unknown") == 0

    def perm() -> int:
        route = table.route("T")
        assert route is not None
        return route.queues[0].perm

    assert perm() == 5
    register(table, request(), topics("T", perm=7))
    assert perm() == 5
    assert table.add_write_perm("a") == 1
    assert perm() == 6
    register(table, request(), topics("T", version=2, perm=7))
    assert perm() == 7


def test_topics_are_deleted_everywhere_or_in_one_cluster() -> None:
    table = RouteTable()
    register(table, request("a"), topics("T"))
    register(table, request("b", cluster_name="D"), topics("T"))
    table.delete_topic("T", "D")
    route = table.route("T")
    assert route is not None
    assert [queue.broker_name for queue in route.queues] == ["a"]
    table.delete_topic("T", "C")
    assert table.topics() == []
    register(table, request("a"), topics("T", version=3))
    table.delete_topic("T", None)
    assert table.topics() == []


@pytest.mark.parametrize(
    ("flag", "expected"),
    [(TopicSysFlag.UNIT, ["unit", "both"]), (TopicSysFlag.UNIT_SUB, ["sub", "both"])],
)
def test_topics_are_told_by_their_flag(flag: TopicSysFlag, expected: list[str]) -> None:
    table = RouteTable()
    known = {"unit": 1, "sub": 2, "both": 3, "none": 0}
    content = {name: TopicConfig(name=name, sys_flag=bits) for name, bits in known.items()}
    register(table, request(), Registration(content, DataVersion(1, 1)))
    assert table.topics_where(lambda bits: flag in bits) == expected
