"""How long a healthy client waits beside bad peers: ``python -m bench.bad_peers``.

A broker runs as a process of its own, and so does the healthy client, which asks for something
small again and again.  Bad peers of one kind after the other do what they do, at a pace that leaves
the machine some time.  What counts is the p99 of the healthy client, beside them and alone; alone
is measured before and after the rows, and the lower one counts.  The broker logs as it does by
default.  Peers that begin with TLS meet two brokers: one that has no TLS, and one with a
certificate, which has rows of its own.
"""

import argparse
import asyncio
import contextlib
import json
import os
import struct
import tempfile
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.scale_server import Server
from bench.turns import little_client
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.sys_flag import COMPRESSED, CompressionType
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command, encode_command
from tests.kits.broker.broker_kit import pull_header, send_header
from tests.kits.broker.tls_kit import Authority
from tests.kits.processes.serve_process import serving

SECONDS: Final = 5.0
HALF_TLS: Final = b"\x16\x03\x01\x00"
PAUSE_S: Final = 0.1
"""Between two rounds of bad peers."""
IDLE_COUNT: Final = 2000
SLOW_COUNT: Final = 100
UNREAD_COUNT: Final = 40
LARGE_COUNT: Final = 8
LARGE_BODY: Final = bytes(4_000_000)
TOPIC: Final = "large"
LOWEST_PRIORITY: Final = 19
"""Of the peers.  They would be on other machines; here they must not take the processor from the
broker and the healthy client, which are processes of their own."""

Writers = list[asyncio.StreamWriter]
Round = Callable[[Writers, int], Awaitable[None]]


class Waits(NamedTuple):
    """What the healthy client waited, in milliseconds, and the memory of the broker."""

    median_ms: float
    p99_ms: float
    memory_mib: float


class BadPeers:
    """Some peers of one kind: how many connections, and what each round does with them."""

    def __init__(self, address: str, count: int, once: Round) -> None:
        host, _, port = address.rpartition(":")
        self._place = host, int(port)
        self._count = count
        self._round = once

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Do what they do until the context ends."""
        task = asyncio.create_task(self._work())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _work(self) -> None:
        writers: Writers = []
        try:
            number = 0
            while True:
                # A broker closes whoever goes too far; others come in its place.
                writers = [writer for writer in writers if not writer.is_closing()]
                while len(writers) < self._count:
                    _, writer = await asyncio.open_connection(*self._place, limit=1)
                    writers.append(writer)
                with contextlib.suppress(ConnectionError):
                    await self._round(writers, number)
                number += 1
                await asyncio.sleep(PAUSE_S)
        finally:
            for writer in writers:
                writer.close()


def frame(code: int, body: bytes = b"", **fields: object) -> bytes:
    """Return a request as it goes over the wire."""
    texts = {name: str(value) for name, value in fields.items()}
    return encode_command(Command(code=code, opaque=7, ext_fields=texts, body=body))


def tls_kinds(address: str) -> dict[str, BadPeers]:
    """Return the kinds of bad peers of a broker with a certificate, by what they do."""
    return {
        f"{SLOW_COUNT} that begin with TLS and stop": BadPeers(
            address, SLOW_COUNT, all_write(HALF_TLS)
        ),
        f"{IDLE_COUNT} idle connections, with a certificate": BadPeers(
            address, IDLE_COUNT, stay_connected
        ),
    }


def all_write(data: bytes) -> Round:
    """Return a round in which each peer writes the same."""

    async def once(writers: Writers, number: int) -> None:
        for writer in writers:
            writer.write(data)

    return once


async def stay_connected(writers: Writers, number: int) -> None:
    """Write nothing."""


def plain_kinds(address: str) -> dict[str, BadPeers]:
    """Return the kinds of bad peers of a broker without TLS, by what they do."""
    small = frame(RequestCode.GET_BROKER_CONFIG)
    pull = encode_command(
        Command(
            code=RequestCode.PULL_MESSAGE,
            opaque=7,
            ext_fields=pull_header(TOPIC, max_msg_nums=1).encode(),
        )
    )
    half_frame = struct.pack(">ii", (16 << 20) - 1000, 100) + bytes(1 << 20)
    deep = frame(RequestCode.HEART_BEAT, b"[" * 60_000)
    bomb = encode_command(
        Command(
            code=RequestCode.SEND_BATCH_MESSAGE,
            opaque=7,
            ext_fields=send_header(
                TOPIC, batch=True, sys_flag=COMPRESSED | CompressionType.ZLIB
            ).encode(),
            body=zlib.compress(encode_batch([BatchItem(0, bytes(100 << 20), b"")]), 9),
        )
    )

    async def byte_by_byte(writers: Writers, number: int) -> None:
        at = number % len(small)
        for writer in writers:
            writer.write(small[at : at + 1])

    return {
        f"{IDLE_COUNT} idle connections": BadPeers(address, IDLE_COUNT, stay_connected),
        f"{SLOW_COUNT} that write a byte at a time": BadPeers(address, SLOW_COUNT, byte_by_byte),
        f"{UNREAD_COUNT} that pull 4 MB and read nothing": BadPeers(
            address, UNREAD_COUNT, all_write(pull)
        ),
        f"{LARGE_COUNT} with unfinished frames of 16 MiB": BadPeers(
            address, LARGE_COUNT, all_write(half_frame)
        ),
        "4 with JSON that nests without end": BadPeers(address, 4, all_write(deep)),
        "4 with batches that would become 100 MiB": BadPeers(address, 4, all_write(bomb)),
        f"{SLOW_COUNT} that begin with TLS, which is not there": BadPeers(
            address, SLOW_COUNT, all_write(HALF_TLS)
        ),
    }


async def measure(server: Server, little: Connection, seconds: float) -> Waits:
    """Return what the healthy client waits in some seconds."""
    little.send(server.address)
    await asyncio.to_thread(little.recv)
    await asyncio.sleep(seconds)
    memory = server.memory_mib
    little.send(True)
    waits = sorted(await asyncio.to_thread(little.recv))
    return Waits(waits[len(waits) // 2], waits[len(waits) * 99 // 100], memory)


async def measure_all(
    server: Server,
    little: Connection,
    kinds: dict[str, BadPeers],
    *,
    seconds: float,
    console: Console,
) -> dict[str, Waits]:
    """Return the waits alone, and beside each kind."""
    await server.ask(RequestCode.SEND_MESSAGE_V2, send_header(TOPIC), LARGE_BODY)
    await measure(server, little, seconds)  # A broker loads machine code in its first seconds.
    before = await measure(server, little, seconds)
    found = {}
    for name, peers in kinds.items():
        console.print(f"measuring: {name}")
        async with peers.at_work():
            await asyncio.sleep(1)
            found[name] = await measure(server, little, seconds)
    await asyncio.sleep(1)  # The last peers are still being closed.
    after = await measure(server, little, seconds)
    await server.client.close()
    # The shorter one: a ratio is never made smaller by what else the machine did meanwhile.
    return {"nobody": min(before, after, key=lambda waits: waits.p99_ms), **found}


class MeasuredBroker(NamedTuple):
    """A broker that runs, its healthy client, and the bad peers that it is measured with."""

    server: Server
    little: Connection
    kinds: dict[str, BadPeers]


@contextlib.contextmanager
def measured_broker(
    kinds: Callable[[str], dict[str, BadPeers]], *settings: str
) -> Iterator[MeasuredBroker]:
    """Run a broker with some settings, and its healthy client."""
    with (
        tempfile.TemporaryDirectory(prefix="flintmq-bad-peers-") as work,
        serving(Path(work, "data"), *settings, small=False) as group,
        little_client() as little,
    ):
        address = group.brokers[0]
        yield MeasuredBroker(Server(group.pid, address), little, kinds(address))


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="flintmq-bad-peers-") as directory,
        contextlib.ExitStack() as stack,
    ):
        certificate = Authority(Path(directory)).issue("broker")
        with_tls = (
            f"--set=tls.server.certPath={certificate.cert}",
            f"--set=tls.server.keyPath={certificate.key}",
        )
        brokers = {
            "no TLS": stack.enter_context(measured_broker(plain_kinds)),
            "a certificate": stack.enter_context(measured_broker(tls_kinds, *with_tls)),
        }
        os.nice(LOWEST_PRIORITY)  # Of this process, where the peers are; the others are started.
        found = {
            name: asyncio.run(measure_all(*broker, seconds=arguments.seconds, console=console))
            for name, broker in brokers.items()
        }
    for name, rows in found.items():
        alone = rows["nobody"]
        table = Table("beside", "median, ms", "p99, ms", "to alone", "broker's memory, MiB")
        table.title = f"a broker with {name}"
        for beside, waits in rows.items():
            times = f"{waits.median_ms:.2f}", f"{waits.p99_ms:.2f}"
            ratio, memory = f"{waits.p99_ms / alone.p99_ms:.2f}", f"{waits.memory_mib:.0f}"
            table.add_row(beside, *times, ratio, memory)
        console.print(table)
    if arguments.json is not None:
        plain = {
            name: {beside: waits._asdict() for beside, waits in rows.items()}
            for name, rows in found.items()
        }
        arguments.json.write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
