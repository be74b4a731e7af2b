"""A push consumer of ours in a process of its own, so that it can be killed.

It tells every message as one JSON object a line.  With ``--handle`` it handles so many messages;
further ones it takes, and never comes to an end with them.
"""

import argparse
import asyncio
import json
import sys

from flintmq import AsyncPushConsumer, ConsumeFrom, ReceivedMessage


def tell(kind: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **facts}) + "\n")
    sys.stdout.flush()


async def main(options: argparse.Namespace) -> None:
    handled = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal handled
        facts = {
            "body": message.body.decode(),
            "queueId": message.queue.queue_id,
            "queueOffset": message.queue_offset,
        }
        if options.handle is not None and handled >= options.handle:
            tell("held", **facts)
            await asyncio.Event().wait()
        handled += 1
        tell("got", **facts)

    async with AsyncPushConsumer(
        namesrv=options.namesrv,
        group=options.group,
        subscriptions={options.topic: "*"},
        handler=handle,
        orderly=options.orderly,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        offset_interval_ms=100,
    ):
        tell("started")
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("namesrv", "group", "topic"):
        parser.add_argument(name)
    parser.add_argument("--handle", type=int)
    parser.add_argument("--orderly", action="store_true")
    asyncio.run(main(parser.parse_args()))
