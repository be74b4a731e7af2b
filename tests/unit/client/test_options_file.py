import asyncio
import logging
from pathlib import Path

import pytest

from flintmq import (
    AsyncProducer,
    AsyncPushConsumer,
    ClientInstance,
    ClientOptions,
    ConsumeFrom,
    Message,
    ReceivedMessage,
    TlsFiles,
    UsageError,
    load_options,
)
from flintmq.format.wire.command import Command
from flintmq.format.wire.frame import HeaderType
from flintmq.testing import AsyncEmbeddedCluster

WHOLE = """
namesrv = "127.0.0.1:9876;127.0.0.1:9877"
namespace = "shop"
heartbeat_interval_ms = 5000
use_tls = true
access_key = "key"
secret_key = "not to be told"

[tls]
ca_file = "ca.pem"
verify = false
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.toml"


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_has_all_options_of_a_client(path: Path) -> None:
    options = load_options(written(path, WHOLE), environment={})
    assert options.name_servers == ("127.0.0.1:9876", "127.0.0.1:9877")
    assert (options.namespace, options.heartbeat_interval_ms, options.use_tls) == (
        "shop",
        5000,
        True,
    )
    assert options.credentials is not None
    assert (options.credentials.access_key, options.credentials.secret_key) == (
        "key",
        "not to be told",
    )
    assert options.tls == TlsFiles(ca_file="ca.pem", verify=False)
    assert "not to be told" not in repr(options)


def test_the_environment_comes_before_the_file(path: Path) -> None:
    environment = {
        "FLINTMQ_CLIENT_FILE": str(written(path, WHOLE)),
        "FLINTMQ_NAMESRV": "127.0.0.1:1",
        "FLINTMQ_USE_TLS": "false",
        "FLINTMQ_REQUEST_TIMEOUT_MS": "77",
        "FLINTMQ_SECRET_KEY": "another",
    }
    options = load_options(environment=environment)
    assert (options.namesrv, options.use_tls, options.request_timeout_ms) == (
        "127.0.0.1:1",
        False,
        77,
    )
    assert options.credentials is not None
    assert options.credentials.secret_key == "another"
    assert load_options(environment={}).namesrv is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("namsrv = '127.0.0.1:9876'", "unknown option 'namsrv'; did you mean 'namesrv'?"),
        ("[tls]\ncafile = 'x'", "unknown option 'cafile'; did you mean 'ca_file'?"),
        ("tls = 'x'", "tls must be a table"),
        ("[tls]\nca_file = 5", "ca_file must be str, not int"),
        ("[tls]\nverify = 0", "verify must be bool, not int"),
        ("namesrv = 5", "namesrv must be str, not int"),
        ("namesrv = 'nowhere'", "namesrv: "),
        ("use_tls = 'yes'", "use_tls must be bool, not str"),
        ("access_key = 'a'", "access_key and secret_key belong together"),
        ("namesrv = ", "Invalid value"),
        ("credentials = 'x'", "unknown option 'credentials'"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_name(path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_options(written(path, text), environment={})
    assert str(caught.value).startswith(str(path))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"), [("FLINTMQ_REQUEST_TIMEOUT_MS", "-1"), ("FLINTMQ_VIP_CHANNEL", "maybe")]
)
def test_what_is_wrong_in_the_environment_is_told_with_its_name(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"{name} in the environment must be"):
        load_options(environment={name: text})


def test_a_file_that_is_not_there_or_too_large_is_told(path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_options(path, environment={})
    with pytest.raises(UsageError, match="more than"):
        load_options(written(path, "#" * (1 << 20) + "\n"), environment={})


def test_a_secret_that_others_can_read_is_warned_of_and_not_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    load_options(written(path, WHOLE, 0o644), environment={})
    assert "others can read the secret key" in caplog.text
    assert "not to be told" not in caplog.text


async def test_a_client_with_binary_headers_sends_and_consumes() -> None:
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(message: ReceivedMessage) -> None:
        got.put_nowait(message.body)

    seen: set[HeaderType] = set()
    async with AsyncEmbeddedCluster() as mq:
        options = ClientOptions(namesrv=mq.namesrv, binary_headers=True)
        client = ClientInstance(options)
        prepare = client.remoting.prepare

        def noting(command: Command) -> None:
            prepare(command)
            seen.add(command.serialize_type)

        client.remoting.prepare = noting  # type: ignore[method-assign]
        consumer = AsyncPushConsumer(
            group="readers",
            subscriptions={"orders": "*"},
            handler=handle,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            client=client,
        )
        async with client, AsyncProducer(client=client) as producer:
            await producer.send(Message(topic="orders", body=b"first"))
            async with consumer:
                assert await got.get() == b"first"
    assert seen == {HeaderType.ROCKETMQ}


async def test_a_client_works_with_a_file(path: Path) -> None:
    async with AsyncEmbeddedCluster() as mq:
        options = load_options(written(path, f'namesrv = "{mq.namesrv}"'))
        async with AsyncProducer(options=options) as producer:
            assert (await producer.send(Message(topic="orders", body=b"x"))).ok
