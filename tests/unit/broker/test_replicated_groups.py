"""Sends that are appended as a group wait for a slave as single ones do."""

import asyncio
from typing import Any

import pytest

from flintmq.client.messaging.messages import SendStatus
from flintmq.store.message_store import MessageStore
from flintmq.testing import AsyncEmbeddedCluster
from tests.kits.broker.remoting_kit import eventually

QUICK: Any = {
    "haSendHeartbeatInterval": 50,
    "haHousekeepingInterval": 2000,
    "slaveTimeout": 400,
    "brokerRole": "SYNC_MASTER",
}


async def send_many(cluster: AsyncEmbeddedCluster, count: int) -> list[SendStatus]:
    sent = await asyncio.gather(*(cluster.send("orders", b"%d" % n) for n in range(count)))
    return [one.status for one in sent]


async def test_a_group_is_answered_when_a_slave_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = 0
    append_group = MessageStore.append_group

    def counting(self: MessageStore, sends: Any, store_host: bytes) -> Any:
        nonlocal grouped
        grouped += 1
        return append_group(self, sends, store_host)

    monkeypatch.setattr(MessageStore, "append_group", counting)
    async with AsyncEmbeddedCluster(replicas=1, **QUICK) as cluster:
        await eventually(lambda: bool(cluster.broker.context.slaves.links))
        await cluster.send("orders", b"makes the topic")
        assert set(await send_many(cluster, 60)) == {SendStatus.SEND_OK}
        assert grouped > 0, "the fast way was not taken"
        assert cluster.broker.context.slaves.acknowledged.value == (
            cluster.broker.context.store.log.end_offset
        )
        with cluster.stream.stall():
            late = await send_many(cluster, 40)
        assert set(late) == {SendStatus.FLUSH_SLAVE_TIMEOUT}
        await cluster.wait_for_slaves()
        assert len(cluster.messages("orders")) == 101


async def test_a_group_without_a_slave_is_stored_and_says_so() -> None:
    async with AsyncEmbeddedCluster(**QUICK) as cluster:
        await cluster.send("orders", b"makes the topic")
        assert set(await send_many(cluster, 40)) == {SendStatus.SLAVE_NOT_AVAILABLE}
        assert len(cluster.messages("orders")) == 41
