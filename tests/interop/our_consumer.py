"""A push consumer of ours in a process of its own, so that it can be killed.

It tells every message as one JSON object a line.  With a number at the end, it handles so many
messages; further ones it takes, and never comes to an end with them.
"""

import asyncio
import json
import sys

from flintmq import AsyncPushConsumer, ConsumeFrom, ReceivedMessage


def tell(kind: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **facts}) + "\n")
    sys.stdout.flush()


async def main(namesrv: str, group: str, topic: str, handled_max: int | None) -> None:
    handled = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal handled
        if handled_max is not None and handled >= handled_max:
            tell("held", body=message.body.decode())
            await asyncio.Event().wait()
        handled += 1
        tell("got", body=message.body.decode())

    async with AsyncPushConsumer(
        namesrv=namesrv,
        group=group,
        subscriptions={topic: "*"},
        handler=handle,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        offset_interval_ms=100,
    ):
        tell("started")
        await asyncio.Event().wait()


if __name__ == "__main__":
    _, namesrv_given, group_given, topic_given, *rest = sys.argv
    limit = int(rest[0]) if rest else None
    asyncio.run(main(namesrv_given, group_given, topic_given, limit))
