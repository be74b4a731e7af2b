"""The plain Python client beside the live half of the pipeline: it fills a topic and reads it."""

import asyncio
from typing import Final

from bench.client_case import BATCHES_IN_FLIGHT, Stopwatch
from flintmq import AsyncProducer, AsyncPullConsumer, Message, MessageQueue

BATCH_COUNT: Final = 64
PULL_COUNT: Final = 1024
"""As many as the source asks for; a broker gives fewer if it likes."""


def fill(namesrv: str, topic: str, *, count: int, body_size: int) -> None:
    """Send so many messages to a topic."""

    async def main() -> None:
        message = Message(topic=topic, body=b"x" * body_size)
        left = iter(range(0, count, BATCH_COUNT))

        async def sender(producer: AsyncProducer) -> None:
            for start in left:
                await producer.send_batch([message] * min(BATCH_COUNT, count - start))

        async with AsyncProducer(namesrv=namesrv, group="bench") as producer:
            await asyncio.gather(*(sender(producer) for _ in range(BATCHES_IN_FLIGHT)))

    asyncio.run(main())


def pull_all(namesrv: str, topic: str, count: int) -> Stopwatch:
    """Pull all messages of a topic, all of its queues at the same time, and look at each body."""

    async def pull_queue(consumer: AsyncPullConsumer, queue: MessageQueue) -> int:
        found, offset = 0, await consumer.begin_offset(queue)
        end = await consumer.end_offset(queue)
        while offset < end:
            result = await consumer.pull(queue, offset, count_max=PULL_COUNT)
            found += sum(1 for message in result.messages if message.body)
            offset = result.next_offset
        return found

    async def main() -> Stopwatch:
        async with AsyncPullConsumer(namesrv=namesrv, group="bench-pull") as consumer:
            with Stopwatch() as watch:
                queues = await consumer.queues(topic)
                found = await asyncio.gather(*(pull_queue(consumer, one) for one in queues))
        assert sum(found) == count, f"{sum(found)} messages of {count}"
        return watch

    return asyncio.run(main())
