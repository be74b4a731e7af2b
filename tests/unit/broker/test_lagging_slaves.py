"""A slave whose tables or queues are behind its log loses nothing that its master has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from flintmq.broker import Broker
from flintmq.broker.replication import replica as replica_module
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.admin import TopicRequest
from flintmq.format.wire.headers.codec import Header
from flintmq.model.data_version import DataVersion
from flintmq.remoting import RemotingClient
from flintmq.testing import AsyncEmbeddedCluster
from tests.kits.broker.remoting_kit import eventually

QUICK: Final[Any] = {"haSendHeartbeatInterval": 50, "haHousekeepingInterval": 10_000}
TOPIC: Final = "orders"


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[AsyncEmbeddedCluster, Broker]]:
    """Run a master and a slave that has ten messages of it, and their topic."""
    async with AsyncEmbeddedCluster(replicas=1, **QUICK) as cluster:
        for number in range(10):
            await cluster.send(TOPIC, b"%d" % number, keys=[f"key-{number}"])
        await cluster.wait_for_slaves()
        (slave,) = cluster.slaves
        await eventually(lambda: TOPIC in slave.context.topics)
        yield cluster, slave


def unit_count(broker: Broker) -> int:
    store = broker.context.store
    return sum(store.max_offset_in_queue(TOPIC, queue_id) for queue_id in range(8))


async def ask(broker: Broker, code: int, header: Header | None = None) -> Command:
    async with RemotingClient() as client:
        return await client.call(broker.address, code, header, timeout_ms=10_000)


def forget_topics(slave: Broker) -> None:
    """Let a slave know the topics that there were before any was made."""
    topics = slave.context.topics
    topics.replace_all({}, DataVersion())
    assert TOPIC not in topics


async def test_a_slave_keeps_the_queues_of_topics_that_it_has_not_heard_of() -> None:
    """They were deleted, and their messages missing when it was promoted."""
    async with pair() as (_, slave):
        forget_topics(slave)
        answer = await ask(slave, RequestCode.CLEAN_UNUSED_TOPIC)
        assert answer.code == ResponseCode.SUCCESS, answer
        assert unit_count(slave) == 10
        assert TOPIC in slave.context.topics


async def test_a_slave_cleans_up_after_topics_that_its_master_has_deleted() -> None:
    async with pair() as (cluster, slave):
        deleted = await ask(
            cluster.broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic=TOPIC)
        )
        assert deleted.code == ResponseCode.SUCCESS, deleted
        answer = await ask(slave, RequestCode.CLEAN_UNUSED_TOPIC)
        assert answer.code == ResponseCode.SUCCESS, answer
        assert [queue for queue in slave.context.store.queues if queue.topic == TOPIC] == []
        await cluster.send(TOPIC, b"of its second life")
        await cluster.wait_for_slaves()
        assert unit_count(slave) == 1


async def test_a_slave_without_its_master_does_not_clean_up() -> None:
    async with pair() as (cluster, slave):
        await cluster.kill_master()
        forget_topics(slave)
        answer = await ask(slave, RequestCode.CLEAN_UNUSED_TOPIC)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "topics of its master" in (answer.remark or "")
        assert unit_count(slave) == 10


async def test_a_slave_too_far_behind_does_not_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "CATCH_UP_S", 0.1)
    async with pair() as (cluster, slave):
        with cluster.stream.stall():
            await cluster.send(TOPIC, b"only the master has it")
            answer = await ask(slave, RequestCode.CLEAN_UNUSED_TOPIC)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "too far behind" in (answer.remark or "")
        await cluster.wait_for_slaves()


async def test_what_waits_for_dispatch_comes_into_its_queues_when_the_master_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slave that was far behind dispatched no more until its master was back."""
    async with pair() as (cluster, slave):
        # From now on it takes the log first, as if there were very much of it.
        monkeypatch.setattr(replica_module, "NEAR_SIZE", -(1 << 60))
        for number in range(10):
            await cluster.send(TOPIC, b"more %d" % number)
        store, end = slave.context.store, cluster.broker.context.store.log.end_offset
        await eventually(lambda: store.log.end_offset == end)
        assert store.dispatcher.behind
        await cluster.kill_master()
        await eventually(lambda: not store.dispatcher.behind)
        assert unit_count(slave) == 20
