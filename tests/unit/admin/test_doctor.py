"""The doctor finds each fault that was planted, and names it."""

import contextlib
import json
from pathlib import Path

import pytest

from flintmq import AsyncPullConsumer, AsyncPushConsumer, ReceivedMessage
from flintmq.admin import AsyncAdmin
from flintmq.admin.diagnosis import Diagnosis, DiagnosisLevel, DoctorLimits
from flintmq.testing import AsyncEmbeddedCluster, EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli
from tests.kits.admin.planted import name_server, register, telling_broker
from tests.kits.broker.remoting_kit import eventually, reserved_port

BAD = (DiagnosisLevel.WARNING, DiagnosisLevel.PROBLEM)


def handled(message: ReceivedMessage) -> None:
    """Take a message without doing anything."""


async def bad(admin: AsyncAdmin, limits: DoctorLimits | None = None) -> dict[str, Diagnosis]:
    """Return what the doctor complains of, by the name of the complaint."""
    found = [one for one in await admin.diagnose(limits) if one.level in BAD]
    assert all(one.advice for one in found), "every complaint says what to do"
    return {one.check: one for one in found}


async def test_a_healthy_cluster_has_no_complaint() -> None:
    async with AsyncEmbeddedCluster() as cluster, AsyncAdmin(namesrv=cluster.namesrv) as admin:
        assert await bad(admin) == {}
        checks = {one.check for one in await admin.diagnose()}
        assert checks >= {"name-servers", "broker", "disk", "flush", "replication", "clock"}


async def test_1_a_name_server_that_does_not_answer() -> None:
    with reserved_port() as port:
        async with AsyncEmbeddedCluster() as cluster:
            both = f"{cluster.namesrv};127.0.0.1:{port}"
            async with AsyncAdmin(namesrv=both) as admin:
                found = await bad(admin)
    assert found["name-server-unreachable"].subject == f"127.0.0.1:{port}"


async def test_2_name_servers_that_know_different_brokers(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(AsyncEmbeddedCluster())
        other = await stack.enter_async_context(name_server(tmp_path))
        both = AsyncAdmin(namesrv=f"{cluster.namesrv};{other.address}")
        found = await bad(await stack.enter_async_context(both))
    assert list(found) == ["name-servers-disagree"]
    assert found["name-servers-disagree"].subject == other.address


async def test_3_no_broker_at_all(tmp_path: Path) -> None:
    async with name_server(tmp_path) as alone, AsyncAdmin(namesrv=alone.address) as admin:
        assert list(await bad(admin)) == ["no-broker"]


async def test_4_an_address_that_cannot_be_reached_from_here(tmp_path: Path) -> None:
    with reserved_port() as port:
        async with name_server(tmp_path) as server, AsyncAdmin(namesrv=server.address) as admin:
            await register(admin, server.address, f"127.0.0.1:{port}")
            found = await bad(admin)
    assert found["broker-unreachable"].subject == f"planted (127.0.0.1:{port})"
    assert "brokerIP1" in found["broker-unreachable"].advice


async def test_5_only_a_slave_is_left(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as server,
        telling_broker() as address,
        AsyncAdmin(namesrv=server.address) as admin,
    ):
        await register(admin, server.address, address, broker_id=1)
        found = await bad(admin)
    assert found["no-master"].subject == "planted"


@pytest.mark.parametrize(("ratio", "name"), [("0.97", "disk-full"), ("0.80", "disk-filling")])
async def test_6_a_disk_that_is_filling_up(tmp_path: Path, ratio: str, name: str) -> None:
    async with (
        name_server(tmp_path) as server,
        telling_broker({"commitLogDiskRatio": ratio}) as address,
        AsyncAdmin(namesrv=server.address) as admin,
    ):
        await register(admin, server.address, address)
        found = await bad(admin)
    assert found[name].subject == f"planted ({address})"


async def test_7_a_master_that_waits_for_a_slave_in_vain() -> None:
    async with (
        AsyncEmbeddedCluster(brokerRole="SYNC_MASTER") as cluster,
        AsyncAdmin(namesrv=cluster.namesrv) as admin,
    ):
        found = await bad(admin)
    assert "SLAVE_NOT_AVAILABLE" in found["no-slave"].finding


async def test_8_a_slave_that_is_far_behind(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as server,
        telling_broker({"commitLogMaxOffset": str(1 << 30)}) as master,
        telling_broker({"commitLogMaxOffset": "1000"}) as slave,
        AsyncAdmin(namesrv=server.address) as admin,
    ):
        await register(admin, server.address, master)
        await register(admin, server.address, slave, broker_id=1)
        found = await bad(admin)
    assert found["replication-gap"].subject == f"planted ({slave})"
    assert str((1 << 30) - 1000) in found["replication-gap"].finding


async def test_9_members_that_subscribe_differently() -> None:
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(AsyncEmbeddedCluster())
        await cluster.create_topic("orders")
        for tag in ("red", "blue"):
            await stack.enter_async_context(
                AsyncPushConsumer(
                    namesrv=cluster.namesrv,
                    group="quarrel",
                    subscriptions={"orders": tag},
                    handler=handled,
                )
            )
        admin = await stack.enter_async_context(AsyncAdmin(namesrv=cluster.namesrv))
        members = cluster.broker.context.consumers
        await eventually(lambda: len(getattr(members.get("quarrel"), "members", ())) == 2)
        found = await bad(admin)
    assert found["subscription-mismatch"].subject == "quarrel in orders"
    assert "TAG:red" in found["subscription-mismatch"].finding


async def test_10_dead_letters_that_came_lately_and_cannot_be_read() -> None:
    async with (
        AsyncEmbeddedCluster() as cluster,
        AsyncAdmin(namesrv=cluster.namesrv) as admin,
        AsyncPullConsumer(namesrv=cluster.namesrv, group="giving-up") as consumer,
    ):
        await cluster.create_topic("orders", queue_count=1)
        await cluster.send("orders", b"poison")
        await admin.put_group("giving-up", broker="broker-a")
        (queue,) = await consumer.queues("orders")
        (message,) = (await consumer.pull(queue, 0)).messages
        assert await consumer.send_back(message, delay_level=-1)
        await cluster.wait_for("%DLQ%giving-up", 1)
        found = await bad(admin)
        assert found["dead-letters-growing"].subject == "giving-up"
        await admin.set_topic_permission("%DLQ%giving-up", 2, broker="broker-a")
        assert (await bad(admin))["dead-letters-unreadable"].subject == "%DLQ%giving-up"


async def test_11_a_clock_that_differs() -> None:
    async with (
        AsyncEmbeddedCluster(manual_clock=True) as cluster,
        AsyncAdmin(namesrv=cluster.namesrv) as admin,
    ):
        cluster.advance(3_600_000)
        found = await bad(admin)
    assert found["clock-skew"].subject.startswith("broker-a (127.0.0.1:")
    assert "differ by 3" in found["clock-skew"].finding


async def test_12_a_group_that_nobody_serves_and_one_far_behind() -> None:
    async with (
        AsyncEmbeddedCluster() as cluster,
        AsyncAdmin(namesrv=cluster.namesrv) as admin,
        AsyncPullConsumer(namesrv=cluster.namesrv, group="lonely") as consumer,
    ):
        await cluster.create_topic("orders", queue_count=1)
        await cluster.create_topic("%RETRY%lonely", queue_count=1)
        await cluster.send("orders", b"waits")
        (queue,) = await consumer.queues("orders")
        await consumer.commit(queue, 0)
        assert (await bad(admin))["nobody-consumes"].subject == "lonely"


async def test_13_a_broker_that_was_drained_and_forgotten() -> None:
    async with AsyncEmbeddedCluster() as cluster, AsyncAdmin(namesrv=cluster.namesrv) as admin:
        await admin.wipe_write_permission("broker-a")
        found = await bad(admin)
        assert found["drained-broker"].subject == "broker-a"
        await admin.add_write_permission("broker-a")
        assert await bad(admin) == {}


async def test_14_a_broker_whose_messages_are_not_visible_yet(tmp_path: Path) -> None:
    async with (
        name_server(tmp_path) as server,
        telling_broker({"dispatchBehindBytes": str(1 << 30)}) as address,
        AsyncAdmin(namesrv=server.address) as admin,
    ):
        await register(admin, server.address, address)
        assert "dispatch-behind" in await bad(admin)


def test_the_command_ends_with_1_for_problems_only(cli: AdminCli, cluster: EmbeddedCluster) -> None:
    well = cli.json("doctor", "--all")
    assert well["summary"]["problem"] == 0
    assert {row["level"] for row in well["rows"]} == {"ok", "note"}
    cli.change("updateBrokerConfig", "-b", "broker-a", "-k", "brokerPermission", "-v", "4")
    cli.rows("wipeWritePerm", "-b", "broker-a", "--yes")
    assert cli.run("doctor").code == 0
    strict = cli.run("doctor", "--strict", "-o", "jsonl")
    assert strict.code == 1
    assert "drained-broker" in {json.loads(line)["check"] for line in strict.out.splitlines()}
    assert AdminCli("127.0.0.1:1").run("doctor").code == 1
