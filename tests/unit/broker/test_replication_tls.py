"""The log goes to slaves by TLS where ``haUseTLS`` says so, and then to nobody else."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from flintmq.format.wire.ha_stream import encode_report
from flintmq.settings import ConfigError
from flintmq.testing import AsyncEmbeddedCluster
from tests.kits.broker.access_kit import write_accounts
from tests.kits.broker.broker_kit import site
from tests.kits.broker.remoting_kit import eventually
from tests.kits.broker.tls_kit import Authority


def tls_settings(authority: Authority, root: Path, *, strangers: bool = False) -> dict[str, Any]:
    """Return the settings of a broker that wants certificates of its slaves, and shows one."""
    slave = (Authority(root / "strangers") if strangers else authority).issue("slave")
    return {
        **authority.settings(authority.issue("broker")),
        "haUseTLS": "true",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": authority.ca,
        "tls.client.certPath": slave.cert,
        "tls.client.keyPath": slave.key,
        "tls.client.authServer": "true",
        "tls.server.mode": "permissive",
        "haSendHeartbeatInterval": 100,
    }


async def test_a_slave_with_a_certificate_gets_the_whole_log(tmp_path: Path) -> None:
    settings = tls_settings(Authority(tmp_path / "keys"), tmp_path)
    async with AsyncEmbeddedCluster(replicas=1, brokerRole="SYNC_MASTER", **settings) as cluster:
        await eventually(lambda: bool(cluster.broker.context.slaves.links))
        # More than a socket takes at once, and more than one file.
        for number in range(300):
            assert (await cluster.send("orders", bytes(20_000) + b"%d" % number)).ok
        await cluster.wait_for_slaves()
        master, slave = cluster.broker.context.store, cluster.slaves[0].context.store
        assert slave.log.end_offset == master.log.end_offset
        end = master.max_offset_in_queue("orders", 0)
        await eventually(lambda: slave.max_offset_in_queue("orders", 0) == end)
        assert cluster.stream.drop_connections() == 1
        await cluster.send("orders", b"after a cut")
        await cluster.wait_for_slaves()


async def test_who_speaks_without_tls_or_shows_no_certificate_gets_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tls_settings(Authority(tmp_path / "keys"), tmp_path, strangers=True)
    async with AsyncEmbeddedCluster(replicas=1, **settings) as cluster:
        await cluster.send("orders", b"not for everybody")
        port = cluster.broker.context.store.config.ha_listen_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(encode_report(0) * 100)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := await reader.read(1 << 16):
                got += chunk
        assert b"not for everybody" not in got
        writer.close()
        # The slave has a certificate of somebody else, so it is refused again and again.
        await eventually(lambda: caplog.text.count("slave refused") >= 2)
        assert not cluster.broker.context.slaves.links
        assert cluster.slaves[0].context.store.log.end_offset == 0


async def test_without_a_certificate_the_stream_cannot_be_by_tls(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"haUseTLS=true.*tls\.server\.certPath"):
        async with site(tmp_path, haUseTLS="true"):
            pytest.fail("it has started")


async def test_slaves_come_from_where_they_may_and_from_nowhere_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncEmbeddedCluster(replicas=1, haSlaveAddresses="10.1.2.*,10.1.3.4") as cluster:
        await cluster.send("orders", b"not for everybody")
        await eventually(lambda: "slave refused, not of haSlaveAddresses" in caplog.text)
        assert not cluster.broker.context.slaves.links
        assert cluster.slaves[0].context.store.log.end_offset == 0
    async with AsyncEmbeddedCluster(replicas=1, haSlaveAddresses="10.1.2.*,127.0.0.1") as cluster:
        await cluster.send("orders", b"for a slave")
        await cluster.wait_for_slaves()
    with pytest.raises(ConfigError, match="haSlaveAddresses=nowhere"):
        async with site(tmp_path, haSlaveAddresses="nowhere"):
            pytest.fail("it has started")


@pytest.mark.parametrize(
    "closed", [{}, {"haSlaveAddresses": "10.1.2.3"}, {"bindAddress": "127.0.0.1"}]
)
async def test_a_start_with_accounts_and_an_open_stream_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, closed: dict[str, str]
) -> None:
    accounts = {"aclEnable": "true", "aclFile": write_accounts(tmp_path / "home")}
    async with site(tmp_path, **({"bindAddress": "0.0.0.0"} | accounts | closed)):
        is_said = "whoever connects to the replication port gets every message" in caplog.text
        assert is_said == (not closed)
