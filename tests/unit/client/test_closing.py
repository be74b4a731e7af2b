"""Closing keeps to its time, whatever brokers and handlers do, and programs end without it."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from flintmq import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Message,
    MessageQueue,
    PushConsumer,
    ReceivedMessage,
    UsageError,
)
from flintmq.remoting import ConnectError
from flintmq.testing import AsyncEmbeddedCluster, EmbeddedCluster
from tests.kits.broker.remoting_kit import eventually

TOPIC = "orders"
QUEUE_COUNT = 8
STOP_MS = 1000
GENEROUS_S = 10
"""Much more than the stop timeout, and less than what waiting for each queue in turn takes."""


@asynccontextmanager
async def proxied() -> AsyncIterator[AsyncEmbeddedCluster]:
    async with AsyncEmbeddedCluster(proxied=True) as mq:
        mq.broker.context.topics.ensure(TOPIC, QUEUE_COUNT)
        for number in range(2 * QUEUE_COUNT):
            await mq.send(TOPIC, b"%d" % number)
        yield mq


async def closes_in_time(consumer: Any) -> None:
    began = time.monotonic()
    await consumer.close()
    assert time.monotonic() - began < GENEROUS_S


def push(namesrv: str, handler: Callable[..., Any], **keywords: Any) -> AsyncPushConsumer:
    settings: dict[str, Any] = {
        "group": "readers",
        "subscriptions": {TOPIC: "*"},
        "consume_from": ConsumeFrom.FIRST_OFFSET,
        "stop_timeout_ms": STOP_MS,
        # Nothing is committed before the end.
        "offset_interval_ms": 3_600_000,
    }
    return AsyncPushConsumer(namesrv=namesrv, handler=handler, **(settings | keywords))


@pytest.mark.parametrize("fault", ["stall", "blackhole"])
@pytest.mark.parametrize("orderly", [False, True])
async def test_a_consumer_closes_in_time_while_its_broker_is_silent(
    fault: str, orderly: bool
) -> None:
    handled: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message)

    async with proxied() as mq:
        consumer = await push(mq.namesrv, handle, orderly=orderly).start()
        await eventually(lambda: len(handled) == 2 * QUEUE_COUNT)
        with getattr(mq.proxy, fault)():
            await closes_in_time(consumer)


async def test_a_lite_pull_consumer_and_a_producer_close_in_time_while_the_broker_is_silent() -> (
    None
):
    async with proxied() as mq:
        consumer = await AsyncLitePullConsumer(
            namesrv=mq.namesrv,
            group="readers",
            subscriptions={TOPIC: "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            request_timeout_ms=1000,
        ).start()
        producer = await AsyncProducer(
            namesrv=mq.namesrv, trace=True, request_timeout_ms=1000
        ).start()
        await producer.send(Message(topic=TOPIC, body=b"traced"))
        for _ in range(4):
            await consumer.poll()
        with mq.proxy.stall():
            await closes_in_time(consumer)
            await closes_in_time(producer)


async def test_a_poll_after_close_is_an_error_and_does_not_wait_for_ever() -> None:
    async with AsyncEmbeddedCluster() as mq:
        await mq.send(TOPIC, b"x")
        consumer = await AsyncLitePullConsumer(
            namesrv=mq.namesrv, group="readers", subscriptions={TOPIC: "*"}
        ).start()
        await consumer.close()
        with pytest.raises(UsageError):
            await consumer.poll()
        with pytest.raises(UsageError):
            async for _ in consumer:
                pass


async def test_offsets_are_committed_side_by_side() -> None:
    handled: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message)

    async with proxied() as mq:
        # Offsets may take half of this.  Two seconds for each queue, one after the other, are more;
        # the first alone and the others side by side leave room for pieces that come in parts.
        consumer = await push(mq.namesrv, handle, stop_timeout_ms=28_000).start()
        await eventually(lambda: len(handled) == 2 * QUEUE_COUNT)
        with mq.proxy.delay(1000):
            await consumer.close()
        committed = mq.broker.context.offsets.queues("readers", TOPIC)
        assert sum(dict(committed).values()) == 2 * QUEUE_COUNT


async def test_a_stuck_orderly_handler_and_a_reset_of_offsets_do_not_keep_close() -> None:
    entered = asyncio.Event()

    async def stuck(message: ReceivedMessage) -> None:
        entered.set()
        await asyncio.get_running_loop().create_future()

    async with proxied() as mq:
        consumer = await push(mq.namesrv, stuck, orderly=True).start()
        await entered.wait()
        queues = {MessageQueue(TOPIC, "broker-a", number): 0 for number in range(QUEUE_COUNT)}
        moving = asyncio.create_task(consumer.move(queues))
        await asyncio.sleep(0)
        await closes_in_time(consumer)
        await moving


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_handler_that_cannot_be_cancelled_does_not_keep_close(orderly: bool) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def stubborn(message: ReceivedMessage) -> None:
        entered.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with proxied() as mq:
        consumer = await push(mq.namesrv, stubborn, orderly=orderly).start()
        await entered.wait()
        await closes_in_time(consumer)
        release.set()


async def test_a_full_default_executor_does_not_keep_close() -> None:
    release = threading.Event()
    handled: list[ReceivedMessage] = []
    with EmbeddedCluster() as mq:
        mq.send(TOPIC, b"x")
        consumer = await push(mq.namesrv, handled.append).start()
        await eventually(lambda: len(handled) == 1)
        busy = [asyncio.create_task(asyncio.to_thread(release.wait)) for _ in range(64)]
        try:
            await closes_in_time(consumer)
        finally:
            release.set()
        await asyncio.gather(*busy)


def test_a_blocking_consumer_closes_although_its_handler_waits_for_a_thread() -> None:
    release, entered = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        release.wait()

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.to_thread(block)

    with EmbeddedCluster() as mq:
        mq.send(TOPIC, b"x")
        consumer = PushConsumer(
            namesrv=mq.namesrv,
            group="readers",
            subscriptions={TOPIC: "*"},
            handler=handle,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            stop_timeout_ms=STOP_MS,
        ).start()
        try:
            assert entered.wait(GENEROUS_S)
            began = time.monotonic()
            consumer.close()
            assert time.monotonic() - began < GENEROUS_S
        finally:
            release.set()


FORGETFUL = """
import sys, threading
from flintmq import ConsumeFrom, Message, Producer, PushConsumer

handled = threading.Event()
producer = Producer(namesrv=sys.argv[1]).start()
consumer = PushConsumer(
    namesrv=sys.argv[1],
    group="forgetful",
    subscriptions={"orders": "*"},
    handler=lambda message: handled.set(),
    consume_from=ConsumeFrom.FIRST_OFFSET,
).start()
producer.send(Message(topic="orders", body=b"x"))
assert handled.wait(30)
print("done")
"""


def test_a_program_that_closes_nothing_ends() -> None:
    with EmbeddedCluster() as mq:
        mq.send(TOPIC, b"x")
        ended = subprocess.run(
            [sys.executable, "-c", FORGETFUL, mq.namesrv],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, ended.stdout.strip()) == (0, "done"), ended.stderr


# -- while it is opened ----------------------------------------------------------------------


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_consumer_that_is_closed_while_it_is_opened_leaves_nothing(
    *, orderly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks went on, and `start` said that it was open."""
    async with proxied() as mq:
        consumer = push(mq.namesrv, lambda message: None, orderly=orderly, trace=True)
        is_begun = asyncio.Event()
        rebalance = consumer.rebalance

        async def watched() -> None:
            is_begun.set()
            await rebalance()

        monkeypatch.setattr(consumer, "rebalance", watched)
        with mq.proxy.delay(100):
            opening = asyncio.create_task(consumer.start())
            await is_begun.wait()
            with pytest.raises(UsageError, match="open already"):
                await consumer.start()
            await closes_in_time(consumer)
            with pytest.raises(UsageError, match="closed while it was opened"):
                await opening
        assert consumer.assigned == frozenset()


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async with proxied() as mq:
        producer = AsyncProducer(namesrv=mq.namesrv)
        opening = asyncio.create_task(producer.start())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with producer:
            assert (await producer.send(Message(topic=TOPIC, body=b"x"))).ok


async def test_a_broker_whose_address_is_none_does_not_disturb_the_others() -> None:
    """Heartbeats, and `close`, failed with an error of the parser of addresses."""
    async with proxied() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        await producer.queues(TOPIC)
        addresses = producer.client.routes._addresses
        for number, bad in enumerate(["127.0.0.1:99999", "a..b:1", "x" * 80 + ":1", "noport", ""]):
            addresses[f"bad-{number}"] = {0: bad}
            with pytest.raises(ConnectError):
                await producer.client.remoting.connect(bad)
        await producer.client.heartbeat()
        assert (await producer.send(Message(topic=TOPIC, body=b"x"))).ok
