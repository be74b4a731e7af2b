"""What is done partly, with slaves, and over TLS."""

import asyncio
from pathlib import Path

from flintmq.admin import AsyncAdmin, ChangeOutcome
from flintmq.settings.tls_settings import TlsMode
from flintmq.testing import AsyncEmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli, Ran, run_flintmq
from tests.kits.admin.planted import name_server, register
from tests.kits.broker.remoting_kit import reserved_port
from tests.kits.broker.tls_kit import Authority


async def test_a_broker_that_is_down_keeps_none_from_being_changed() -> None:
    with reserved_port() as port:
        async with (
            AsyncEmbeddedCluster() as cluster,
            AsyncAdmin(namesrv=cluster.namesrv) as admin,
        ):
            await register(admin, cluster.namesrv, f"127.0.0.1:{port}")
            cli = AdminCli(cluster.namesrv)
            listed = await asyncio.to_thread(cli.json, "clusterList", code=5)
            assert [row["broker"] for row in listed["rows"]] == ["broker-a"]
            assert [one["where"] for one in listed["failures"]] == [f"planted (127.0.0.1:{port})"]
            arguments = ("-t", "half", "-c", "DefaultCluster", "--yes", "--output", "json")
            made = await asyncio.to_thread(cli.run, "updateTopic", *arguments)
            assert made.code == 5
            outcomes = {row["target"].split()[0]: row["outcome"] for row in made.envelope["rows"]}
            assert outcomes == {"broker-a": "done", "planted": "failed"}
            assert f"no connection to 127.0.0.1:{port}" in made.err
            changes = await admin.put_group("half", cluster="DefaultCluster", dry_run=True)
            assert {one.outcome for one in changes} == {
                ChangeOutcome.PLANNED,
                ChangeOutcome.FAILED,
            }
            alone = await asyncio.to_thread(cli.run, "brokerStatus", "-b", f"127.0.0.1:{port}")
            assert alone.code == 1


async def test_what_some_brokers_did_not_tell_is_not_taken_for_all() -> None:
    with reserved_port() as port:
        async with (
            AsyncEmbeddedCluster() as cluster,
            AsyncAdmin(namesrv=cluster.namesrv) as admin,
        ):
            await cluster.create_topic("told")
            await cluster.send("told", b"x", keys=["k"])
            await register(admin, cluster.namesrv, f"127.0.0.1:{port}")
            cli = AdminCli(cluster.namesrv)
            for command, code in (
                (("topicStatus", "-t", "told"), 5),
                (("queryMsgByKey", "-t", "told", "-k", "k"), 5),
                (("statsAll", "-t", "told"), 1),
                (("checkMsgSendRT", "-t", "told", "-a", "40"), 5),
            ):
                done = await asyncio.to_thread(cli.run, *command)
                assert done.code == code, (command, done)
                (line,) = done.err.splitlines()
                assert f"127.0.0.1:{port}" in line


async def test_masters_and_slaves_are_told_apart() -> None:
    async with (
        AsyncEmbeddedCluster(replicas=1) as cluster,
        AsyncAdmin(namesrv=cluster.namesrv) as admin,
    ):
        places = await admin.places(cluster="DefaultCluster", masters_only=False)
        assert [one.broker_id for one in places] == [0, 1]
        assert [one.broker_id for one in await admin.places(cluster="DefaultCluster")] == [0]
        await cluster.create_topic("orders")
        await cluster.send("orders", b"x")
        await cluster.wait_for_slaves()
        found = {one.check: one for one in await admin.diagnose()}
        assert found["replication"].finding == "0 bytes behind its master"
        exported = await admin.export_configs(cluster="DefaultCluster")
        assert exported["clusterScale"]["slaveBrokerSize"] == 1
        assert set(exported["brokerConfigs"]) == {"broker-a", "broker-a:1"}


async def test_a_context_speaks_tls(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "known"), Authority(tmp_path / "unknown")
    issued = authority.issue("server")
    async with name_server(
        tmp_path,
        tls_mode=TlsMode.ENFORCING,
        tls_server_cert_path=str(issued.cert),
        tls_server_key_path=str(issued.key),
    ) as server:

        async def listed(*arguments: str) -> Ran:
            return await asyncio.to_thread(run_flintmq, "admin", *arguments, "topicList")

        for name, trusted in (("safe", authority), ("unsafe", other)):
            added = run_flintmq(
                "context", "add", name, "-n", server.address, "--tls-ca-file", str(trusted.ca)
            )
            assert added.code == 0
        assert (await listed("--context", "safe")).code == 0
        untrusted = await listed("--context", "unsafe")
        assert untrusted.code == 1
        assert "certificate is not trusted" in untrusted.err
        assert (await listed("-n", server.address)).code == 1
