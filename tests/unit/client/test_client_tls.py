"""Our client and our servers with TLS: options, environment, and settings that contradict."""

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flintmq import AsyncProducer, ClientOptions, FlintError, Message, TlsFiles, UsageError
from flintmq.broker import BrokerConfig
from flintmq.cli.servers.running import print_settings
from flintmq.client.client_tls import context_for
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.remoting.tls_setup import outgoing_tls, server_tls
from flintmq.settings import ConfigError
from flintmq.settings.live_config import LiveConfig
from flintmq.spark.live.cluster_options import parse_connection
from tests.kits.broker.broker_kit import eventually, site
from tests.kits.broker.tls_kit import Authority, Issued


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("server")


@contextlib.asynccontextmanager
async def enforcing(root: Path, authority: Authority, server: Issued) -> AsyncIterator[str]:
    """Run a name server and a broker that take nothing but TLS; the broker registers by it."""
    texts = {
        key: str(value)
        for key, value in authority.settings(server).items()
        if key.startswith("tls.")
    }
    settings = texts | {"tls.server.mode": "enforcing"}
    names = replace(
        NamesrvConfig.from_properties(settings),
        listen_port=0,
        kv_config_path=root / "kv.json",
        config_store_path=root / "changes.properties",
    )
    more: dict[str, Any] = {"namesrvAddr": ""} | settings
    async with run_namesrv(names) as namesrv:
        more["namesrvAddr"] = namesrv.address
        async with site(root / "store", **more) as here:
            here.broker.context.topics.ensure("orders", 4)
            await eventually(lambda: namesrv.routes.route("orders") is not None)
            yield namesrv.address


async def test_a_client_speaks_tls_by_its_options(
    tmp_path: Path, authority: Authority, server: Issued
) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca))
    async with enforcing(tmp_path, authority, server) as namesrv:
        for tls in (context, TlsFiles(ca_file=str(authority.ca))):
            async with AsyncProducer(namesrv=namesrv, group="senders", tls=tls) as producer:
                await producer.send(Message(topic="orders", body=b"by TLS"))
        for wrong in ({}, {"use_tls": True}, {"use_tls": False, "tls": context}):
            with pytest.raises(FlintError):
                async with AsyncProducer(
                    namesrv=namesrv, group="senders", request_timeout_ms=500, **wrong
                ) as producer:
                    await producer.send(Message(topic="orders", body=b"refused"))


async def test_a_client_speaks_tls_and_signs_by_its_environment(
    tmp_path: Path, authority: Authority, server: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINTMQ_USE_TLS", "true")
    monkeypatch.setenv("FLINTMQ_TLS_CA_FILE", str(authority.ca))
    monkeypatch.setenv("FLINTMQ_ACCESS_KEY", "shopKey1")
    monkeypatch.setenv("FLINTMQ_SECRET_KEY", "shop-secret")
    async with (
        enforcing(tmp_path, authority, server) as namesrv,
        AsyncProducer(namesrv=namesrv, group="senders") as producer,
    ):
        await producer.send(Message(topic="orders", body=b"by TLS"))
    found = ClientOptions(namesrv="h:1").signing_credentials
    assert found is not None
    assert (found.access_key, found.secret_key) == ("shopKey1", "shop-secret")
    connection = parse_connection({"namesrv": "h:1"})
    assert (connection.use_tls, connection.tls.ca_file) == (True, str(authority.ca))
    assert context_for(connection.client_options()) is not None
    monkeypatch.delenv("FLINTMQ_SECRET_KEY")
    with pytest.raises(UsageError, match="belong together"):
        _ = ClientOptions(namesrv="h:1").signing_credentials
    monkeypatch.setenv("FLINTMQ_USE_TLS", "yes")
    with pytest.raises(UsageError, match="FLINTMQ_USE_TLS"):
        context_for(ClientOptions(namesrv="h:1"))
    monkeypatch.setenv("FLINTMQ_USE_TLS", "true")
    monkeypatch.setenv("FLINTMQ_TLS_CA_FILE", "/no/such.pem")
    with pytest.raises(UsageError, match=r"/no/such\.pem"):
        context_for(ClientOptions(namesrv="h:1"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls.test.mode.enable": "true"}, "no key that everybody knows"),
        ({"tls.server.mode": "enforcing"}, "unless tls.server.certPath"),
        ({"tls.server.certPath": "a.pem"}, "tls.server.keyPath"),
        ({"tls.server.need.client.auth": "require"}, "tls.server.authClient=false"),
        ({"tls.server.authClient": "true"}, "tls.server.authClient=true"),
        (
            {"tls.server.authClient": "true", "tls.server.need.client.auth": "optional"},
            "tls.server.trustCertPath",
        ),
        ({"tls.enable": "yes"}, "tls.enable=yes"),
        ({"tls.config.file": "/no/such"}, "tls.config.file=/no/such"),
    ],
)
def test_settings_that_mean_less_than_they_say_are_refused(
    settings: dict[str, str], words: str
) -> None:
    for kind in (BrokerConfig, NamesrvConfig):
        with pytest.raises(ConfigError, match=words):
            server_tls(kind.from_properties(settings))
    with pytest.raises(ConfigError, match="disabled or permissive or enforcing"):
        BrokerConfig.from_properties({"tls.server.mode": "enforced"})


def test_the_file_for_tls_goes_before_other_settings(
    tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = authority.issue("hidden", password="a-password")
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.server.certPath={hidden.cert}\ntls.server.keyPath={hidden.key}\n"
        "tls.server.keyPassword=a-password\ntls.server.mode=disabled\n"
    )
    settings = {
        "tls.config.file": str(file),
        "tls.server.mode": "enforcing",
        "tls.server.keyPassword": "another",
        "tls.client.trustCertPath": str(authority.ca),
    }
    config = BrokerConfig.from_properties(settings)
    made = server_tls(config)
    assert made is not None
    assert made.is_enforced
    # Who takes nothing but TLS asks by TLS, unless told otherwise.
    assert outgoing_tls(config) is not None
    assert outgoing_tls(replace(config, tls_enable="false")) is None
    assert outgoing_tls(BrokerConfig(), use_tls=True) is not None
    assert server_tls(BrokerConfig()) is None
    print_settings(config.to_properties())
    shown = LiveConfig(config, {}, editable=frozenset()).shown()
    assert "another" not in capsys.readouterr().out + repr(config) + repr(shown)
    file.write_text("tls.server.certpath=a.pem\n")
    with pytest.raises(ConfigError, match=r"such as tls\.server\.certPath"):
        server_tls(config)
