"""Our producer against the real Java broker; what it stored is read with the real Java client."""

import asyncio
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq import AsyncProducer, Message
from flintmq.client.assigning.consume_from import QueueBounds
from flintmq.client.instance import ClientInstance
from flintmq.client.messaging.messages import ReceivedMessage
from flintmq.client.messaging.transaction_listener import TransactionState
from flintmq.client.options import ClientOptions
from flintmq.client.pulling.puller import Puller
from flintmq.format.compression import CompressionType
from flintmq.format.subscription import build_subscription
from tests.kits.leftovers import LEAVES_NOTHING
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures(LEAVES_NOTHING)]

SETTINGS = {
    "brokerName": "java-a",
    "brokerClusterName": "JavaCluster",
    "mappedFileSizeCommitLog": 8 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "transactionTimeOut": 500,
    "transactionCheckInterval": 500,
}


@pytest.fixture(scope="module")
def cluster(
    toolchain: JavaToolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaCluster]:
    work: Path = tmp_path_factory.mktemp("java")
    (work / "store").mkdir()
    with JavaCluster(work / "store", SETTINGS, work_directory=work, toolchain=toolchain) as running:
        yield running
        running.kill_broker()


def namesrv(cluster: JavaCluster) -> str:
    return f"{HOST}:{cluster.namesrv_port}"


async def read_all(address: str, topic: str, count: int) -> list[ReceivedMessage]:
    """Read a topic with our own pulls until it has so many messages."""
    async with ClientInstance(ClientOptions(namesrv=address)) as client:
        puller, bounds = Puller(client, "readers"), QueueBounds(client)
        subscription = build_subscription(topic, "*")
        while True:
            found: list[ReceivedMessage] = []
            for queue in await client.routes.subscribe_queues(topic):
                offset, end = 0, await bounds.end(queue)
                while offset < end:
                    result = await puller.pull(
                        queue, offset, subscription, suspend_ms=0, with_subscription=True
                    )
                    found += result.messages
                    offset = result.next_offset
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


async def test_every_form_of_send_is_read_by_the_java_client(cluster: JavaCluster) -> None:
    rng = random.Random(1)
    bodies = {
        **{f"plain-{n}": rng.randbytes(50) for n in range(10)},
        **{f"batch-{n}": rng.randbytes(50) for n in range(30)},
        "delayed": b"a second later",
        "queued": b"to a queue of its own",
        **{f"{kind.name}-large": rng.randbytes(64) * 200 for kind in CompressionType},
    }

    async with AsyncProducer(namesrv=namesrv(cluster), group="ours") as producer:
        for name, body in bodies.items():
            if name.startswith("plain"):
                result = await producer.send(
                    Message(topic="ours", body=body, keys=[name], tag="A", sharding_key="one")
                )
                assert result.ok
        batch = [
            Message(topic="ours", body=body, keys=[name])
            for name, body in bodies.items()
            if name.startswith("batch")
        ]
        await producer.send_batch(batch, batch_size=1500)
        *_, last = await producer.queues("ours")
        message = Message(topic="ours", body=bodies["queued"], keys=["queued"])
        assert (await producer.send(message, queue=last)).queue == last
        await producer.send(
            Message(topic="ours", body=bodies["delayed"], keys=["delayed"], delay_level=1)
        )
    for kind in CompressionType:
        async with AsyncProducer(namesrv=namesrv(cluster), compression=kind) as producer:
            name = f"{kind.name}-large"
            await producer.send_one_way(Message(topic="ours", body=bodies[name], keys=[name]))
            found = await read_all(namesrv(cluster), "ours", 42)
            while not any(one.body == bodies[name] for one in found):
                found = await read_all(namesrv(cluster), "ours", len(found) + 1)
    await read_all(namesrv(cluster), "ours", len(bodies))

    view = cluster.read_all(["ours"])
    read = {message["properties"]["KEYS"]: message["bodySha256"] for message in view.messages}
    assert read == {name: hashlib.sha256(body).hexdigest() for name, body in bodies.items()}
    ids = [message["properties"]["UNIQ_KEY"] for message in view.messages]
    assert len(set(ids)) == len(bodies)


class Ledger:
    def __init__(self) -> None:
        self.checked: list[bytes] = []

    def execute(self, message: Message, argument: Any) -> TransactionState:
        return TransactionState[argument]

    def check(self, message: ReceivedMessage) -> TransactionState:
        self.checked.append(message.body)
        return TransactionState.COMMIT


async def test_transactions_in_all_three_outcomes(cluster: JavaCluster) -> None:
    ledger = Ledger()

    async with AsyncProducer(
        namesrv=namesrv(cluster), group="bank", transaction_listener=ledger
    ) as producer:
        await producer.send(Message(topic="money", body=b"first"))
        await producer.client.heartbeat()
        for outcome in ("COMMIT", "ROLLBACK", "UNKNOWN"):
            await producer.send_in_transaction(
                Message(topic="money", body=outcome.encode()), outcome
            )
        found = await read_all(namesrv(cluster), "money", 3)
        assert {one.body for one in found} == {b"first", b"COMMIT", b"UNKNOWN"}

    assert b"UNKNOWN" in ledger.checked
    assert b"ROLLBACK" not in ledger.checked


async def test_request_and_reply(cluster: JavaCluster) -> None:
    address = namesrv(cluster)
    async with (
        AsyncProducer(namesrv=address, group="askers") as asker,
        AsyncProducer(namesrv=address, group="answerers") as answerer,
    ):
        # A topic that is new is known to nobody for a moment.
        await asker.send(Message(topic="questions", body=b"none"))
        await answerer.send(Message(topic="questions", body=b"none"))

        async def answer() -> None:
            found = await read_all(address, "questions", 3)
            (asked,) = [one for one in found if one.body == b"6 x 7?"]
            await answerer.reply(asked, b"42")

        task = asyncio.create_task(answer())
        reply = await asker.request(Message(topic="questions", body=b"6 x 7?"), timeout_ms=20_000)
        await task
        assert reply.body == b"42"
