"""Producers and consumers behind a network that forgets, delays, stalls and cuts."""

import asyncio
import contextlib
import logging
import os
import random
from typing import Any, Final

import pytest

from flintmq import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    FlintError,
    Message,
    ReceivedMessage,
)
from flintmq.testing import AsyncEmbeddedCluster, AsyncTcpProxy
from tests.kits.broker.remoting_kit import eventually

logger = logging.getLogger(__name__)

TOPIC: Final = "orders"
QUICK: Final[dict[str, Any]] = {
    "request_timeout_ms": 500,
    "connect_timeout_ms": 500,
    "heartbeat_interval_ms": 200,
    "route_interval_ms": 500,
    "offset_interval_ms": 50,
}
CHURN_S: Final = float(os.environ.get("FLINTMQ_CHURN_S", "15"))
SEED: Final = int(os.environ.get("FLINTMQ_CHURN_SEED", random.randrange(1 << 32)))


class Handled:
    def __init__(self) -> None:
        self.bodies: set[bytes] = set()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.bodies.add(message.body)


def push(mq: AsyncEmbeddedCluster, handler: Handled, **keywords: Any) -> AsyncPushConsumer:
    settings: dict[str, Any] = {
        "group": "readers",
        "subscriptions": {TOPIC: "*"},
        "consume_from": ConsumeFrom.FIRST_OFFSET,
        "stop_timeout_ms": 2000,
    }
    return AsyncPushConsumer(namesrv=mq.namesrv, handler=handler, **(settings | QUICK | keywords))


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_consumer_whose_connection_a_firewall_forgets_goes_on(orderly: bool) -> None:
    handled = Handled()
    async with (
        AsyncEmbeddedCluster(proxied=True) as mq,
        AsyncProducer(namesrv=mq.namesrv, **QUICK) as producer,
        push(mq, handled, orderly=orderly),
    ):
        await producer.send(Message(topic=TOPIC, body=b"before"))
        await eventually(lambda: b"before" in handled.bodies)
        assert mq.proxy.forget_connections() > 0
        while True:
            with contextlib.suppress(FlintError):
                await producer.send(Message(topic=TOPIC, body=b"after"), timeout_ms=500)
                break
        await eventually(lambda: b"after" in handled.bodies)


def harm(proxy: AsyncTcpProxy, chance: random.Random) -> contextlib.AbstractContextManager[object]:
    """Do something to the connections of now, or begin something that ends later."""
    match chance.randrange(7):
        case 0:
            proxy.drop_connections()
        case 1:
            proxy.forget_connections()
        case 2:
            proxy.cut_answers_after(chance.randrange(2000))
        case 3:
            return proxy.delay(chance.randrange(1, 300))
        case 4:
            return proxy.stall()
        case 5:
            return proxy.blackhole()
    return contextlib.nullcontext()


@pytest.mark.slow
@pytest.mark.deadline(CHURN_S + 120)
async def test_nothing_acknowledged_is_lost_on_a_bad_network() -> None:
    chance, handled = random.Random(SEED), Handled()
    logger.info("FLINTMQ_CHURN_SEED=%d", SEED)
    acknowledged: set[bytes] = set()
    is_over = asyncio.Event()

    async def send_forever(producer: AsyncProducer, name: str) -> None:
        for number in range(1_000_000):
            if is_over.is_set():
                return
            body = f"{name}-{number}".encode()
            with contextlib.suppress(FlintError):
                await producer.send(Message(topic=TOPIC, body=body), timeout_ms=500)
                acknowledged.add(body)
            await asyncio.sleep(0.005)

    async with (
        AsyncEmbeddedCluster(proxied=True) as mq,
        AsyncProducer(namesrv=mq.namesrv, group="first", **QUICK) as first,
        AsyncProducer(namesrv=mq.namesrv, group="second", **QUICK) as second,
        push(mq, handled),
        push(mq, handled),
    ):
        sending = [
            asyncio.create_task(send_forever(first, "a")),
            asyncio.create_task(send_forever(second, "b")),
        ]
        harms, end = 0, asyncio.get_running_loop().time() + CHURN_S
        while asyncio.get_running_loop().time() < end:
            harms += 1
            with harm(mq.proxy, chance):
                await asyncio.sleep(chance.uniform(0.05, 1.5))
            await asyncio.sleep(chance.uniform(0, 1))
        is_over.set()
        await asyncio.gather(*sending)
        assert acknowledged
        await eventually(lambda: handled.bodies >= acknowledged)
        logger.info(
            "acknowledged=%d handled=%d connections=%d harms=%s",
            len(acknowledged),
            len(handled.bodies),
            mq.proxy.accepted_count,
            harms,
        )
