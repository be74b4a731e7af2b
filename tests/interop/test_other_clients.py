"""Clients of other languages work with our servers: PyPI ``rocketmq`` (C++), npm ``ali-ons``."""

import asyncio
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.remoting import RemotingClient
from tests.kits.broker.access_kit import signer, write_accounts
from tests.kits.processes.java_clients import offsets_by_queue
from tests.kits.processes.java_toolchain import give_up
from tests.kits.processes.line_process import LineProcess
from tests.kits.processes.node_toolchain import NodeToolchain
from tests.kits.processes.serving import Serving

pytestmark = pytest.mark.interop

COUNT: Final = 25
"""The last message is one that is answered: one-way ones before it have arrived then."""
BODIES: Final = [f"body-{number}" for number in range(COUNT)]
PYTHON_PROGRAM: Final = Path(__file__).parents[1] / "kits" / "processes" / "python_client.py"
SETTINGS: Final = {"messageDelayLevel": "1s 1s 1s 2s 3s 4s 5s 6s"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path / "data", SETTINGS) as running:
        yield running


async def create_topic(
    broker: str, topic: str, prepare: Callable[[Command], None] | None = None
) -> None:
    header = CreateTopicRequest(topic=topic, read_queue_nums=4, write_queue_nums=4, perm=6)
    async with RemotingClient(prepare=prepare) as client:
        answer = await client.call(
            broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_ms=10_000
        )
    assert answer.code == ResponseCode.SUCCESS, answer


def tag_of(body: str) -> str:
    return f"Tag{'ABC'[int(body.removeprefix('body-')) % 3]}"


@pytest.fixture
def program(servers: Serving, tmp_path: Path) -> Callable[..., LineProcess]:
    """Return what starts the program of the Python client with an action."""
    if find_spec("rocketmq") is None:
        give_up(f"the package rocketmq is not there ({sys.platform}, {platform.machine()})")

    def start(action: str, *more: str) -> LineProcess:
        command = [sys.executable, str(PYTHON_PROGRAM), action, servers.namesrv, "cpp-topic", *more]
        return LineProcess(command, home=tmp_path / "home")

    return start


def test_the_python_client_sends_pushes_and_pulls(program: Callable[..., LineProcess]) -> None:
    with program("produce", str(COUNT)) as producer:
        producer.wait_for("end")
        sent = producer.all("sent")
    ids = {line["id"] for line in sent if line["way"] != "oneway"}
    assert len(sent) == COUNT
    with program("pull") as puller:
        puller.wait_for("end")
        pulled = puller.all("received")
    assert sorted(line["body"] for line in pulled) == sorted(BODIES)
    assert ids <= {line["id"] for line in pulled}
    for line in pulled:
        number = line["body"].removeprefix("body-")
        assert (line["tags"], line["keys"]) == (tag_of(line["body"]), f"key-{number}")
        assert line["number"] == number
    with program("push", "TagA || TagC") as pusher, program("push-orderly") as orderly:
        wanted = [body for body in BODIES if tag_of(body) != "TagB"]
        pushed = pusher.wait_for("received", len(wanted))
        assert sorted(line["body"] for line in pushed) == sorted(wanted)
        ordered = orderly.wait_for("received", COUNT)
        assert sorted(line["body"] for line in ordered) == sorted(BODIES)
        for offsets in offsets_by_queue(ordered).values():
            assert offsets == list(range(len(offsets)))


def test_batches_of_the_python_client_arrive_as_their_messages(
    program: Callable[..., LineProcess],
) -> None:
    counts = (2, 20, 40, 200)
    with program("produce-batches", *map(str, counts)) as producer:
        producer.wait_for("end")
    with program("pull") as puller:
        puller.wait_for("end")
        pulled = puller.all("received")
    numbers = range(1 + sum(counts))
    assert sorted(int(line["number"]) for line in pulled) == list(numbers)
    for line in pulled:
        number = int(line["number"])
        assert (line["body"], line["keys"]) == (f"body-{number}", f"key-{number}")


def test_the_javascript_client_sends_filters_retries_and_broadcasts(
    servers: Serving, tmp_path: Path
) -> None:
    node = NodeToolchain.find()
    # This client sends to no topic that is not there yet.
    asyncio.run(create_topic(servers.broker, "node-topic"))
    command = node.command("client.js", servers.namesrv, "node-topic", str(COUNT))
    with LineProcess(command, home=tmp_path / "home") as client:
        sent = client.wait_for("sent", COUNT)
        assert {line["status"] for line in sent} == {"SEND_OK"}
        wanted = [body for body in BODIES if tag_of(body) != "TagB"]
        filtered = client.wait_for("received", len(wanted), by="filtering")
        assert sorted(line["body"] for line in filtered) == sorted(wanted)
        for line in filtered:
            assert line["tags"] == tag_of(line["body"])
            assert line["properties"]["number"] == line["body"].removeprefix("body-")
        everything = client.wait_for("received", COUNT, by="broadcasting")
        assert sorted(line["body"] for line in everything) == sorted(BODIES)
        # One message was given back: it comes again, counted.
        retried = client.wait_for("received", COUNT - len(wanted) + 1, by="retrying")
        again = [line for line in retried if line["reconsumeTimes"]]
        assert [line["reconsumeTimes"] for line in again] == [1]
        assert again[0]["body"] == retried[0]["body"]


ACCOUNTS: Final = """
accounts:
  - {accessKey: operator, secretKey: operator-secret, admin: true}
  - accessKey: nodeKey1
    secretKey: node-secret
    topicPerms: [node-topic=PUB|SUB]
    groupPerms: [node-filtering=SUB, node-retrying=SUB, node-broadcasting=SUB]
"""


def test_the_javascript_client_signs_numbers_as_they_stand_in_its_headers(tmp_path: Path) -> None:
    node = NodeToolchain.find()
    settings = {**SETTINGS, "aclEnable": "true", "rocketmqHome": tmp_path / "access"}
    write_accounts(tmp_path / "access", ACCOUNTS)
    with Serving(tmp_path / "data", settings) as servers:
        sign = signer("operator", "operator-secret")
        asyncio.run(create_topic(servers.broker, "node-topic", sign))
        command = node.command("client.js", servers.namesrv, "node-topic", str(COUNT))
        keys = {"ACCESS_KEY": "nodeKey1", "SECRET_KEY": "node-secret"}
        with LineProcess(command, home=tmp_path / "home", environment=keys) as client:
            sent = client.wait_for("sent", COUNT)
            assert {line["status"] for line in sent} == {"SEND_OK"}
            client.wait_for("received", COUNT, by="broadcasting")
            client.wait_for(
                "received", len([one for one in BODIES if tag_of(one) == "TagB"]) + 1, by="retrying"
            )
    assert "request denied" not in servers.log.read_text()
