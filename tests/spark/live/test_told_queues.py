"""Queues of many topics as brokers tell them: the same as by routes, with fewer questions."""

from collections.abc import Iterator

import pytest

from flintmq.model.message_queue import MessageQueue
from flintmq.model.routes import BrokerData
from flintmq.model.topic_config import Perm, TopicConfig
from flintmq.spark.live import cluster as cluster_module
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.live_options import parse_batch
from flintmq.spark.live.live_session import LiveSession
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import Admin

COUNT = 12


class CountingCluster(Cluster):
    """Counts routes that are asked for, and can have brokers that are silent."""

    route_count = 0
    is_silent = False

    async def _queues_of(self, topic: str) -> list[MessageQueue]:
        self.route_count += 1
        return await super()._queues_of(topic)

    async def _topic_table(self, broker: BrokerData) -> "dict[str, TopicConfig] | None":
        table = None if self.is_silent else await super()._topic_table(broker)
        return None if table is None else dict(table)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have brokers asked where there are few topics."""
    monkeypatch.setattr(cluster_module, "TOLD_TOPICS_MIN", COUNT)


@pytest.fixture
def broker() -> Iterator[EmbeddedCluster]:
    """Give a broker with topics of one and two queues."""
    with EmbeddedCluster() as cluster, Admin(cluster.namesrv) as admin:
        for number in range(COUNT):
            admin.set_topic(f"told-{number:02}", 1 + number % 2)
        yield cluster


def asked(namesrv: str, *, is_silent: bool = False) -> tuple[list[MessageQueue], int]:
    """Return the queues that are told, which are those of routes, and how many routes it took."""
    options = parse_batch({"namesrv": namesrv, "subscribePattern": "told-.*"})
    with LiveSession(options.connection) as session:
        cluster = CountingCluster(session.client, options)
        cluster.is_silent = is_silent
        told = session.run(cluster.told_queues())
        route_count = cluster.route_count
        assert told == session.run(cluster.queues())
    return told, route_count


def test_a_broker_tells_all_of_its_topics_at_once(broker: EmbeddedCluster) -> None:
    told, route_count = asked(broker.namesrv)
    assert len(told) == COUNT + COUNT // 2
    assert route_count == 1, "one shows that routes say the same"


def test_two_brokers_tell_their_own_queues(broker: EmbeddedCluster) -> None:
    with (
        EmbeddedCluster(namesrvAddr=broker.namesrv, brokerName="broker-b"),
        Admin(broker.namesrv) as admin,
    ):
        admin.set_topic("told-03", 4, broker_count=2)
        told, route_count = asked(broker.namesrv)
    assert MessageQueue("told-03", "broker-b", 3) in told
    assert route_count <= 2


def test_a_broker_that_tells_nothing_is_no_loss(broker: EmbeddedCluster) -> None:
    told, route_count = asked(broker.namesrv, is_silent=True)
    assert len(told) == COUNT + COUNT // 2
    assert route_count == COUNT


def test_a_broker_that_may_not_be_read_has_no_queues() -> None:
    with (
        EmbeddedCluster(brokerPermission=int(Perm.WRITE)) as broker,
        Admin(broker.namesrv) as admin,
    ):
        for number in range(COUNT):
            admin.set_topic(f"told-{number:02}", 1)
        told, route_count = asked(broker.namesrv)
    assert not told
    assert route_count > COUNT


def test_a_topic_that_its_broker_has_forgotten_is_asked_for_by_its_route(
    broker: EmbeddedCluster,
) -> None:
    with Admin(broker.namesrv) as admin:
        admin.forget_topic("told-05")
    told, route_count = asked(broker.namesrv)
    assert MessageQueue("told-05", "broker-a", 0) in told
    assert route_count == 2
