"""A consumer goes on at the slave when the master is gone, and returns when it is back."""

from typing import Any

from flintmq import AsyncPushConsumer
from flintmq.client.messaging.messages import ReceivedMessage
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
