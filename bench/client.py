"""Benchmarks of the client: ``python -m bench.client``, or ``make bench-client``.

One broker process serves both clients in turn: ours, and the C++ client of PyPI's ``rocketmq``
package where that is installed.  What counts is the ratio of one run.
"""

import argparse
import asyncio
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flintmq import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Message, Producer

BODY = b"x" * 128
READY = re.compile(r"ready: namesrv=(\S+)")
BATCH_COUNT = 32
IN_FLIGHT = 256


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages a second of one client in one discipline."""

    client: str
    what: str
    per_second: float


@contextmanager
def broker() -> Iterator[str]:
    """Run a broker in a process of its own; give the address of its name server."""
    with tempfile.TemporaryDirectory(prefix="flintmq-bench-") as data:
        command = [sys.executable, "-m", "flintmq", "serve", "--data", data]
        command += ["--namesrv-port", "0", "--broker-port", "0", "--log-level", "warning"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            found = READY.search(process.stdout.readline())
            assert found is not None, "the broker did not start"
            try:
                yield found[1]
            finally:
                process.terminate()


def timed(client: str, what: str, count: int, work: Callable[[], object]) -> Rate:
    began = time.perf_counter()
    work()
    return Rate(client, what, count / (time.perf_counter() - began))


# -- ours --------------------------------------------------------------------------------------


def our_sync(namesrv: str, count: int) -> Rate:
    with Producer(namesrv=namesrv, group="bench") as producer:
        message = Message(topic="sync", body=BODY)
        producer.send(message)
        return timed(
            "flintmq",
            "send one by one",
            count,
            lambda: [producer.send(message) for _ in range(count)],
        )


def our_async(namesrv: str, count: int) -> Rate:
    async def main() -> Rate:
        async with AsyncProducer(namesrv=namesrv, group="bench") as producer:
            message = Message(topic="async", body=BODY)
            await producer.send(message)
            began = time.perf_counter()

            async def sender() -> None:
                for _ in range(count // IN_FLIGHT):
                    await producer.send(message)

            await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))
            sent = count // IN_FLIGHT * IN_FLIGHT
            return Rate("flintmq", "send, 256 in flight", sent / (time.perf_counter() - began))

    return asyncio.run(main())


def our_batches(namesrv: str, count: int) -> Rate:
    async def main() -> Rate:
        async with AsyncProducer(namesrv=namesrv, group="bench") as producer:
            batch = [Message(topic="batch", body=BODY)] * BATCH_COUNT
            await producer.send_batch(batch)
            began = time.perf_counter()
            for _ in range(count // BATCH_COUNT):
                await producer.send_batch(batch)
            elapsed = time.perf_counter() - began
            return Rate("flintmq", "batches of 32", count / elapsed)

    return asyncio.run(main())


def our_consumption(namesrv: str, topic: str, count: int) -> Rate:
    async def main() -> Rate:
        done, seen = asyncio.Event(), 0

        async def handle(messages: list[object]) -> None:
            nonlocal seen
            seen += len(messages)
            if seen >= count:
                done.set()

        began = time.perf_counter()
        async with AsyncPushConsumer(
            namesrv=namesrv,
            group="bench-consumers",
            subscriptions={topic: "*"},
            handler=handle,
            batch_size=32,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await done.wait()
            return Rate("flintmq", "push consumption", seen / (time.perf_counter() - began))

    return asyncio.run(main())


# -- the C++ client ----------------------------------------------------------------------------


def their_rates(namesrv: str, count: int, topic: str, held: int) -> list[Rate]:
    from rocketmq.client import Message as TheirMessage
    from rocketmq.client import Producer as TheirProducer
    from rocketmq.client import PushConsumer as TheirConsumer

    producer = TheirProducer("their-bench")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    message = TheirMessage("their-sync")
    message.set_body(BODY)
    producer.send_sync(message)
    rates = [
        timed(
            "rocketmq (C++)",
            "send one by one",
            count,
            lambda: [producer.send_sync(message) for _ in range(count)],
        )
    ]
    producer.shutdown()
    done, seen = threading.Event(), 0

    def handle(_: object) -> int:
        nonlocal seen
        seen += 1
        if seen >= held:
            done.set()
        return 0

    consumer = TheirConsumer("their-consumers")
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, handle)
    began = time.perf_counter()
    consumer.start()
    done.wait(120)
    rates.append(Rate("rocketmq (C++)", "push consumption", seen / (time.perf_counter() - began)))
    consumer.shutdown()
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    count = arguments.messages
    with broker() as namesrv:
        rates = [
            our_sync(namesrv, count // 10),
            our_async(namesrv, count),
            our_batches(namesrv, count * 4),
            our_consumption(namesrv, "batch", count * 4),
        ]
        if importlib.util.find_spec("rocketmq") is not None:
            rates += their_rates(namesrv, count // 10, "batch", count * 4)
    table = Table("client", "what", "messages/s")
    for rate in rates:
        table.add_row(rate.client, rate.what, f"{rate.per_second:,.0f}")
    Console().print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(rate) for rate in rates], indent=1))


if __name__ == "__main__":
    main()
