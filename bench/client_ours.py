"""What ``bench.client`` measures of our client; each piece of work runs in a process of its own."""

import asyncio
import itertools
import os
import threading

from bench.client_case import BATCH_COUNT, BATCHES_IN_FLIGHT, BODY, IN_FLIGHT, Stopwatch
from flintmq import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)


def one_by_one(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Send and wait, from code without asyncio."""
    with Producer(namesrv=namesrv, group="bench") as producer:
        message = Message(topic=topic, body=BODY)
        producer.send(message)
        with Stopwatch() as watch:
            for _ in range(count):
                producer.send(message)
    return watch


def in_flight(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Keep IN_FLIGHT sends waiting for their answers."""

    async def main() -> Stopwatch:
        async with AsyncProducer(namesrv=namesrv, group="bench") as producer:
            message = Message(topic=topic, body=BODY)
            await producer.send(message)
            left = iter(range(count))

            async def sender() -> None:
                for _ in left:
                    await producer.send(message)

            with Stopwatch() as watch:
                await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))
        return watch

    return asyncio.run(main())


def batches(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Send batches, one after the other."""
    with Producer(namesrv=namesrv, group="bench") as producer:
        batch = [Message(topic=topic, body=BODY) for _ in range(BATCH_COUNT)]
        producer.send(batch[0])
        with Stopwatch() as watch:
            for _ in range(count // BATCH_COUNT):
                producer.send_batch(batch)
    return watch


def batches_in_flight(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Keep several batches waiting for their answers."""

    async def main() -> Stopwatch:
        async with AsyncProducer(namesrv=namesrv, group="bench") as producer:
            batch = [Message(topic=topic, body=BODY) for _ in range(BATCH_COUNT)]
            await producer.send(batch[0])
            left = iter(range(count // BATCH_COUNT))

            async def sender() -> None:
                for _ in left:
                    await producer.send_batch(batch)

            with Stopwatch() as watch:
                await asyncio.gather(*(sender() for _ in range(BATCHES_IN_FLIGHT)))
        return watch

    return asyncio.run(main())


def consumption(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Consume a topic with a coroutine that gets one message at a time."""

    async def main() -> Stopwatch:
        done, seen = asyncio.Event(), itertools.count(1)

        async def handle(message: ReceivedMessage) -> None:
            assert message.body
            if next(seen) >= count:
                done.set()

        with Stopwatch() as watch:
            async with AsyncPushConsumer(
                namesrv=namesrv,
                group=f"ours-{os.getpid()}",
                subscriptions={topic: "*"},
                handler=handle,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ):
                await done.wait()
                watch.stop()
        return watch

    return asyncio.run(main())


def consumption_in_threads(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Consume a topic with a plain function that gets one message at a time."""
    done, seen = threading.Event(), itertools.count(1)

    def handle(message: ReceivedMessage) -> None:
        assert message.body
        if next(seen) >= count:
            done.set()

    with (
        Stopwatch() as watch,
        PushConsumer(
            namesrv=namesrv,
            group=f"ours-{os.getpid()}",
            subscriptions={topic: "*"},
            handler=handle,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ),
    ):
        done.wait()
        watch.stop()
    return watch
