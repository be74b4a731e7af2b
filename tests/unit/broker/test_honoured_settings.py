"""Settings that a file of RocketMQ has, and what a broker does by them."""

import asyncio
import hmac
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker import read_settings
from flintmq.broker.broker_registrar import BrokerRegistrar
from flintmq.filter.bloom import BloomFilter
from flintmq.format.wire.codes import RequestCode
from flintmq.remoting.tls_files import server_context
from flintmq.settings.tls_settings import TlsClientAuth
from tests.kits.broker.access_kit import USER, client_of, guarded_site
from tests.kits.broker.broker_kit import site
from tests.kits.broker.tls_kit import HOST, Authority

LOCK = (
    b'{"clientId":"%s","consumerGroup":"g","mqSet":'
    b'[{"brokerName":"broker-a","queueId":0,"topic":"T"}]}'
)


async def test_a_lock_lives_as_long_as_its_setting_says(tmp_path: Path) -> None:
    setting: dict[str, Any] = {"rocketmq.broker.rebalance.lockMaxLiveTime": 1000}
    async with site(tmp_path, **setting) as here:
        wire = await here.client()

        async def is_locked_by(client_id: bytes) -> bool:
            found = await wire.ask(RequestCode.LOCK_BATCH_MQ, None, LOCK % client_id)
            return bool(found["lockOKMQSet"])

        assert await is_locked_by(b"a")
        here.clock.advance(1000)
        assert not await is_locked_by(b"b")
        here.clock.advance(1)
        assert await is_locked_by(b"b")


async def test_a_broker_whose_tls_is_disabled_closes_handshakes_though_it_has_a_certificate(
    tmp_path: Path,
) -> None:
    issued = Authority(tmp_path / "keys").issue("broker")
    keys: dict[str, Any] = {
        "tls.server.mode": "disabled",
        "tls.server.certPath": issued.cert,
        "tls.server.keyPath": issued.key,
    }
    async with site(tmp_path / "store", **keys) as here:
        wire = await here.client()
        await wire.send("orders", b"plain")
        with socket.create_connection((HOST, here.broker.port)) as peer:
            peer.settimeout(10)
            peer.sendall(bytes.fromhex("16030100c8010000c40303"))
            assert await asyncio.to_thread(peer.recv, 1) == b""


def test_no_client_has_a_server_make_new_keys_for_ever(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("broker")
    context = server_context(issued.files(), TlsClientAuth.NONE)
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


async def test_filter_bits_are_made_by_the_rate_of_errors_and_the_number_of_groups(
    tmp_path: Path,
) -> None:
    settings = {"maxErrorRateOfBloomFilter": 5, "expectConsumerNumUseFilter": 100}
    async with site(tmp_path, **settings) as here:
        found = here.broker.context.filters._bloom
    expected = BloomFilter.of(error_percent=5, consumer_count=100)
    default = BloomFilter.of(error_percent=20, consumer_count=32)
    assert (found.bit_count, found.hash_count) == (expected.bit_count, expected.hash_count)
    assert found.bit_count != default.bit_count


def test_the_port_for_slaves_is_the_one_above_that_for_clients_unless_it_is_set() -> None:
    assert read_settings({"listenPort": "12000"})[1].ha_listen_port == 12001
    both = {"listenPort": "12000", "haListenPort": "13000"}
    assert read_settings(both)[1].ha_listen_port == 13000


async def test_a_broker_waits_for_name_servers_as_long_as_its_setting_says(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, connectTimeoutMillis=1234) as here:
        registrar = getattr(here.broker.context.topics.on_change, "__self__", None)
        assert isinstance(registrar, BrokerRegistrar)
        assert registrar._client.limits.connect_timeout_ms == 1234


async def test_signatures_are_compared_in_constant_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, compare_digest = [], hmac.compare_digest

    def compare(given: bytes, right: bytes) -> bool:
        compared.append(given == right)
        return compare_digest(given, right)

    monkeypatch.setattr("flintmq.access.access_control.hmac.compare_digest", compare)
    async with guarded_site(tmp_path) as here:
        here.broker.context.topics.ensure("orders", 4)
        async with client_of(here, USER) as wire:
            await wire.send("orders", b"signed")
        async with client_of(here, USER, "wrong-secret") as wire:
            assert (await wire.send_raw("orders", b"forged")).code != 0
    assert compared == [True, False]
