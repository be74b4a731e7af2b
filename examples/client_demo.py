"""Send and consume against a cluster inside this process: ``python examples/client_demo.py``.

Give an address (``python examples/client_demo.py 127.0.0.1:9876``) to use a cluster that runs.
"""

import asyncio
import contextlib
import sys

from flintmq import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Message, ReceivedMessage
from flintmq.testing import AsyncEmbeddedCluster

COUNT = 1000


async def main(namesrv: str | None) -> None:
    """Send a thousand orders, consume them, and fail one twice on purpose."""
    async with contextlib.AsyncExitStack() as stack:
        if namesrv is None:
            cluster = await stack.enter_async_context(
                AsyncEmbeddedCluster(messageDelayLevel="1s 1s 1s 1s 1s")
            )
            namesrv = cluster.namesrv
        producer = await stack.enter_async_context(AsyncProducer(namesrv=namesrv, group="demo"))
        messages = [
            Message(topic="demo-orders", body=b"order %d" % number, keys=[f"order-{number}"])
            for number in range(COUNT)
        ]
        await asyncio.gather(*map(producer.send, messages))
        print(f"sent {COUNT} messages")
        seen: dict[str, int] = {}
        done = asyncio.Event()

        async def handle(message: ReceivedMessage) -> bool:
            (key,) = message.keys
            if key == "order-7" and message.reconsume_times < 2:
                print(f"{key} fails on purpose, try {message.reconsume_times + 1}")
                return False
            seen[key] = message.reconsume_times
            if len(seen) == COUNT:
                done.set()
            return True

        consumer = AsyncPushConsumer(
            namesrv=namesrv,
            group="demo-consumers",
            subscriptions={"demo-orders": "*"},
            handler=handle,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )
        async with consumer, asyncio.timeout(120):
            await done.wait()
        print(f"consumed {len(seen)} messages; order-7 took {seen['order-7'] + 1} tries")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
