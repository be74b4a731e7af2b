"""A synchronous master and its slave as processes, under large batches with many keys and faults.

The batches have more messages than a turn of the loop enters, so both dispatchers lag whenever a
fault comes.  Nothing but our own client is needed.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import TopicRequest
from flintmq.format.wire.headers.send import SendMessageResponse
from flintmq.offline.dump import Dump, Selection
from flintmq.offline.layout import find_store
from flintmq.remoting import RemotingClient
from flintmq.remoting.errors import RemotingError
from flintmq.testing import TcpProxy
from tests.kits.broker.broker_kit import send_header
from tests.kits.processes.broker_process import (
    SLAVE,
    OurBroker,
    OurNamesrv,
    wait_for_same_logs,
)
from tests.kits.replication.pair_faults import Pair, kill
from tests.kits.store.verified import problems_in

if TYPE_CHECKING:
    from pathlib import Path

LEVELS: Final = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
KEPT: Final = "kept"
DELETED: Final = "deleted"
QUEUE_COUNT: Final = 2
BATCH_SIZES: Final = (1, 40, 3000)
BATCHES_BETWEEN: Final = 6
"""Batches that are acknowledged between two faults."""
FAULTS: Final = ("kill master", "kill slave", "stop slave", "cut", "stall", "delete")
WAITS_S: Final = (0.1, 0, 0.01)
"""How long after the last batch was sent a fault comes."""
TIMEOUT_MS: Final = 15_000
SETTINGS: Final = {
    "haSendHeartbeatInterval": 300,
    "haHousekeepingInterval": 2000,
    "slaveTimeout": 4000,
    "mappedFileSizeCommitLog": 2 << 20,
    "mappedFileSizeConsumeQueue": 40_000,
    "maxHashSlotNum": 2000,
    "maxIndexNum": 20_000,
    "maxMessageSize": 1 << 20,
}


class SentBatch(NamedTuple):
    """A batch that was acknowledged by both."""

    queue_id: int
    queue_offset: int
    name: str
    message_count: int


class Load:
    """Sends batches, one after the other, and notes which were acknowledged."""

    def __init__(self, address: str, rng: Random) -> None:
        self._address = address
        self._rng = rng
        self._client = RemotingClient()
        self._number = 0
        self.acknowledged: list[SentBatch] = []

    async def send_some(self) -> None:
        """Send until some more are acknowledged."""
        wanted, deadline = len(self.acknowledged) + BATCHES_BETWEEN, time.monotonic() + 90
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            await self.send(self._rng.choice([KEPT, KEPT, DELETED]))

    async def send(self, topic: str) -> None:
        """Send a batch; a fault may come in between, and then nothing is known of it."""
        self._number += 1
        name, count = f"b{self._number}", self._rng.choice(BATCH_SIZES)
        queue_id = self._rng.randrange(QUEUE_COUNT)
        body = encode_batch(
            BatchItem(0, body_of(name, at), f"KEYS\x01{name} x{at} y{at}\x02".encode())
            for at in range(count)
        )
        header = send_header(topic, queue_id=queue_id, batch=True)
        answer = await self._ask(RequestCode.SEND_BATCH_MESSAGE, header, body)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            # Who sends faster than anybody can answer has to wait; so does this one.
            await asyncio.sleep(0.05)
        elif topic == KEPT:
            offset = SendMessageResponse.decode(answer.ext_fields).queue_offset
            self.acknowledged.append(SentBatch(queue_id, offset, name, count))

    async def delete_topic(self) -> None:
        """Delete the other topic, whatever waits of it."""
        await self._ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic=DELETED))

    async def _ask(self, code: int, header: Any, body: bytes = b"") -> Any:
        try:
            return await self._client.call(self._address, code, header, body, timeout_ms=TIMEOUT_MS)
        except RemotingError:
            return None

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()


def body_of(name: str, at: int) -> bytes:
    """Return the body of a message of a batch."""
    return f"{name}-{at}".encode()


def run_batches(directory: Path, seed: int, fault_count: int) -> list[str]:
    """Run a pair under batches and faults, and judge it; return the faults, in their order."""
    rng = Random(seed)
    both = SETTINGS | {"machineCode": rng.choice(["true", "false"])}
    modes = [rng.choice(["ASYNC_FLUSH", "SYNC_FLUSH"]) for _ in range(2)]
    faults = [f"flush {modes}"]
    with OurNamesrv(directory / "namesrv") as names:
        settings = {**both, "brokerRole": "SYNC_MASTER", "flushDiskType": modes[0]}
        master = OurBroker(directory / "master", names.address, settings)
        with master, TcpProxy(f"127.0.0.1:{master.port + 1}") as stream:
            settings = {**both, **SLAVE, "haMasterAddress": stream.address}
            with OurBroker(
                directory / "slave", names.address, settings | {"flushDiskType": modes[1]}
            ) as slave:
                load = Load(f"127.0.0.1:{master.port}", rng)
                faults += [rng.choice(FAULTS) for _ in range(fault_count)]
                asyncio.run(_under_faults(load, Pair(master, slave, stream), faults[1:]))
                wait_for_same_logs(master.store, slave.store)
                if rng.random() < 0.5:
                    kill(slave)  # In the middle of its dispatch, maybe; the next start goes on.
    for broker in (master, slave):
        assert_delivered(broker.store, load.acknowledged)
    return faults


async def _under_faults(load: Load, pair: Pair, faults: list[str]) -> None:
    await load.send_some()
    for number, fault in enumerate(faults):
        # A batch is on its way when it comes.
        sending = asyncio.create_task(load.send(KEPT))
        await asyncio.sleep(WAITS_S[number % len(WAITS_S)])
        if fault == "delete":
            await load.delete_topic()
        else:
            await asyncio.to_thread(pair.cause, fault, 0.5)
        await sending
        await load.send_some()
    await load.close()


def assert_delivered(store: Path, acknowledged: list[SentBatch]) -> None:
    """Each acknowledged message is found by its queue where the answer said; all is sound."""
    layout = find_store(store)
    places: dict[tuple[int, int], str] = {}
    offsets = defaultdict(list)
    for message in Dump(layout, Selection(topic=KEPT), delay_levels=LEVELS).messages():
        place = message["queueId"], message["queueOffset"]
        assert place not in places, f"twice: {place}"
        places[place] = message["bodySha256"]
        offsets[place[0]].append(place[1])
    assert all(sorted(found) == list(range(len(found))) for found in offsets.values())
    for batch in acknowledged:
        for at in range(batch.message_count):
            wanted = hashlib.sha256(body_of(batch.name, at)).hexdigest()
            assert places[batch.queue_id, batch.queue_offset + at] == wanted, batch
    removed = {(DELETED, queue_id) for queue_id in range(QUEUE_COUNT)}
    assert problems_in(layout, LEVELS, emptied=removed) == []
