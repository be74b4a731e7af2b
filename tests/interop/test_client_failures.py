"""Our client when something dies: a consumer's process, or the broker; ours and the Java one."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

import pytest

from flintmq import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Message,
    Producer,
    ReceivedMessage,
)
from flintmq.errors import FlintError
from flintmq.format.wire.codes import RequestCode
from flintmq.remoting.client_connection import PROBE
from tests.kits.leftovers import LEAVES_NOTHING
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain
from tests.kits.processes.line_process import LineProcess
from tests.kits.processes.serving import Serving

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("client-failures"),
    pytest.mark.usefixtures(LEAVES_NOTHING),
]

DEADLINE_S: Final = 120
SETTINGS: Final = {"brokerName": "broker-a", "mappedFileSizeCommitLog": 16 << 20}
CONSUMER: Final = Path(__file__).parents[1] / "kits" / "processes" / "our_consumer.py"


class Servers(Protocol):
    """A name server, and a broker that can be killed and started again."""

    @property
    def namesrv(self) -> str: ...

    def kill_broker(self) -> None: ...

    def start_broker(self) -> None: ...


class OurServers:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self.namesrv = serving.namesrv

    def kill_broker(self) -> None:
        self._serving.kill()

    def start_broker(self) -> None:
        self._serving.start()


class JavaServers:
    def __init__(self, cluster: JavaCluster) -> None:
        self._cluster = cluster
        self.namesrv = f"{HOST}:{cluster.namesrv_port}"
        self.kill_broker = cluster.kill_broker
        self.start_broker = cluster.start_broker


@pytest.fixture(scope="module", params=["ours", "java"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    work: Path = tmp_path_factory.mktemp("client-failures")
    if request.param == "ours":
        with Serving(work / "data", SETTINGS) as serving:
            yield OurServers(serving)
        return
    toolchain = JavaToolchain.find()
    with JavaCluster(work / "store", SETTINGS, work_directory=work, toolchain=toolchain) as cluster:
        yield JavaServers(cluster)
        cluster.kill_broker()


def names(count: int) -> set[str]:
    return {str(number) for number in range(count)}


def test_another_member_takes_over_from_a_killed_process_and_nothing_is_lost(
    servers: Servers, tmp_path: Path
) -> None:
    topic = "killed-consumer"

    def consumer(*more: str) -> LineProcess:
        command = [sys.executable, str(CONSUMER), servers.namesrv, "killed-group", topic, *more]
        return LineProcess(command, home=tmp_path / "home")

    with Producer(namesrv=servers.namesrv) as producer:

        def send(first: int, count: int) -> None:
            for number in range(first, first + count):
                producer.send(Message(topic=topic, body=b"%d" % number))

        send(0, 8)
        with consumer() as heir:
            heir.wait_for("got", 8)
            with consumer("--handle", "6") as victim:
                # Queues change hands some time after a member has come: send until it has some.
                sent = 8
                while not victim.all("held"):
                    send(sent, 4)
                    sent += 4
                    _wait_for(sent, heir, victim)
                victim.kill()
            held = {line["body"] for line in victim.all("held")}
            send(sent, 20)
            sent += 20
            handled = {line["body"] for line in victim.all("got")}
            heir.wait_until(
                lambda: {line["body"] for line in heir.all("got")} | handled == names(sent),
                "all messages",
            )
    assert held
    assert held <= {line["body"] for line in heir.all("got")}


def _wait_for(count: int, *processes: LineProcess) -> None:
    """Wait until so many messages are with one process or the other, handled or held."""

    def found() -> set[str]:
        return {line["body"] for one in processes for line in one.lines if "body" in line}

    processes[0].wait_until(lambda: len(found()) >= count, f"{count} messages with either")


async def test_the_probe_of_a_silent_connection_is_answered(servers: Servers) -> None:
    async with AsyncProducer(namesrv=servers.namesrv) as producer:
        sent = await producer.send(Message(topic="probed", body=b"x"), timeout_ms=30_000)
        broker = producer.client.routes.master(sent.queue.broker_name)
        assert broker is not None
        for address in (servers.namesrv, broker):
            # Whatever the answer is: it shows that somebody is there.
            await producer.client.remoting.call(
                address, RequestCode.GET_ROUTEINFO_BY_TOPIC, PROBE, timeout_ms=30_000
            )


@pytest.mark.deadline(DEADLINE_S)
async def test_producer_and_consumer_go_on_when_the_broker_was_killed_and_started_again(
    servers: Servers,
) -> None:
    topic = "restarted-broker"

    acknowledged: list[bytes] = []
    failures: list[FlintError] = []
    got: set[bytes] = set()
    is_over = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        got.add(message.body)

    async def send_forever(producer: AsyncProducer) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            body = b"%d" % number
            try:
                await producer.send(Message(topic=topic, body=body), timeout_ms=1000)
            except FlintError as error:
                failures.append(error)
                await asyncio.sleep(0.01)
            else:
                acknowledged.append(body)

    async with (
        AsyncProducer(namesrv=servers.namesrv, group="survivors") as producer,
        AsyncPushConsumer(
            namesrv=servers.namesrv,
            group="surviving",
            subscriptions={topic: "*"},
            handler=handle,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ),
    ):
        sending = asyncio.create_task(send_forever(producer))
        await eventually(lambda: len(acknowledged) >= 200 and len(got) >= 100)
        await asyncio.to_thread(servers.kill_broker)
        await eventually(lambda: bool(failures))
        before = len(acknowledged)
        await asyncio.to_thread(servers.start_broker)
        await eventually(lambda: len(acknowledged) >= before + 200)
        is_over.set()
        await sending
        await eventually(lambda: got >= set(acknowledged))
    # The broker that was started here is left to nobody; no test comes behind this one.
    await asyncio.to_thread(servers.kill_broker)


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0.01)
