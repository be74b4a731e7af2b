"""A consumer goes on at the slave when the master is gone, and returns when it is back."""

import asyncio
from typing import Any

from flintmq import AsyncPushConsumer, ClientInstance, ClientOptions
from flintmq.client.messaging.messages import ReceivedMessage
from flintmq.client.routing.route_cache import RouteCache
from flintmq.model.routes import TopicRoute
from flintmq.testing import AsyncEmbeddedCluster
from tests.kits.broker.remoting_kit import eventually

QUICK: Any = {"haSendHeartbeatInterval": 50, "haHousekeepingInterval": 2000}


async def test_a_consumer_reads_from_the_slave_while_the_master_is_gone() -> None:
    got: set[bytes] = set()

    async def handle(message: ReceivedMessage) -> None:
        got.add(message.body)

    async with AsyncEmbeddedCluster(replicas=1, **QUICK) as cluster:
        wanted = {b"before %d" % number for number in range(8)}
        for body in sorted(wanted):
            await cluster.send("orders", body)
        await cluster.wait_for_slaves()
        await eventually(lambda: "orders" in cluster.slaves[0].context.topics)
        await cluster.kill_master()
        async with AsyncPushConsumer(
            namesrv=cluster.namesrv, group="readers", subscriptions={"orders": "*"}, handler=handle
        ):
            await eventually(lambda: got == wanted)
            await cluster.start_master()
            for number in range(8):
                await cluster.send("orders", b"after %d" % number)
            await eventually(lambda: len(got) == 16)


async def test_a_consumer_looks_for_the_slave_as_soon_as_the_master_is_gone() -> None:
    got: set[bytes] = set()

    async def handle(message: ReceivedMessage) -> None:
        got.add(message.body)

    async with AsyncEmbeddedCluster(replicas=1, **QUICK) as cluster:
        await cluster.send("orders", b"first")
        await cluster.wait_for_slaves()
        await eventually(lambda: "orders" in cluster.slaves[0].context.topics)
        # By itself it would ask for routes after an hour.
        options = ClientOptions(namesrv=cluster.namesrv, route_interval_ms=3_600_000)
        async with AsyncPushConsumer(
            options=options, group="readers", subscriptions={"orders": "*"}, handler=handle
        ) as consumer:
            await eventually(lambda: b"first" in got)
            consumer.suspend()
            wanted = {b"%d" % number for number in range(40)}
            for body in sorted(wanted):
                await cluster.send("orders", body)
            await cluster.wait_for_slaves()
            await cluster.kill_master()
            consumer.resume()
            await eventually(lambda: wanted <= got)


class CountingRoutes(RouteCache):
    """Counts how often name servers are asked."""

    count = 0

    async def fetch(self, topic: str) -> TopicRoute:
        self.count += 1
        return await super().fetch(topic)


async def test_queues_whose_broker_is_gone_share_one_question_for_the_route() -> None:
    async with AsyncEmbeddedCluster() as cluster:
        await cluster.send("orders", b"first")
        async with ClientInstance(ClientOptions(namesrv=cluster.namesrv)) as client:
            fetched = CountingRoutes(client.servers)
            await asyncio.gather(*(fetched.fetch_again("orders") for _ in range(100)))
            assert fetched.count == 1
