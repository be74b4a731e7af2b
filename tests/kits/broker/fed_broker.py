"""A broker that is fed with what reads of a socket bring, without a socket."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker import Broker, housekeeping, read_settings, run_broker
from flintmq.broker import broker as broker_module
from flintmq.broker.processors.table import processors
from flintmq.broker.tables.state_keeper import StateKeeper
from flintmq.format.wire.command import Command, encode_command
from flintmq.format.wire.frame import HeaderType
from flintmq.remoting import RequestTable
from flintmq.testing import ManualClock
from tests.kits.broker.hostile_peer import MemoryTransport, fed_connection, inbox_connection

START_MS: Final = 1_800_000_000_000
PEER_PORT: Final = 5000
NEVER_MS: Final = 1 << 40
READ_MS: Final = 700
"""Passes between two reads."""


class FedBroker:
    """A broker with one connection, or more of them whose reads are handled together."""

    def __init__(
        self, broker: Broker, clock: ManualClock, peers: Sequence[str], *, inbox: bool
    ) -> None:
        self.broker = broker
        self._clock = clock
        self._connections = [
            inbox_connection(broker.server) if inbox else fed_connection(broker.server)
            for _ in peers
        ]
        self._transports = [
            MemoryTransport(one, PEER_PORT, host=host)
            for one, host in zip(self._connections, peers, strict=True)
        ]
        for connection, transport in zip(self._connections, self._transports, strict=True):
            connection.connection_made(transport)

    def read(self, chunk: bytes, number: int = 0) -> None:
        """Have a connection read some bytes, as part of a turn of the loop."""
        if not self._transports[number].is_closing():
            self._connections[number].data_received(chunk)

    def feed(self, chunk: bytes) -> None:
        """Have the first connection read some bytes, which are handled now."""
        self.read(chunk)
        self._handle()
        self._end_read()

    def _handle(self) -> None:
        if self.broker.server.inbox is not None:
            self.broker.server.inbox.handle()

    async def feed_and_wait(self, chunk: bytes) -> None:
        """Have the first connection read, and wait until the disk has what that brought."""
        self.read(chunk)
        await self.end_turn()

    async def end_turn(self) -> None:
        """Have what was read handled, and wait until the disk has it."""
        self._handle()
        await self.broker.context.puts.idle()
        self._end_read()

    def _end_read(self) -> None:
        # What a read changed is on the disk before the next one comes, whatever the machine does.
        for table in (self.broker.context.topics, self.broker.context.groups):
            table.keeper.save_now()
        self._clock.advance(READ_MS)

    @property
    def answers(self) -> bytes:
        """All that was written to the first connection."""
        return self.answers_to(0)

    def answers_to(self, number: int) -> bytes:
        """Return all that was written to a connection."""
        return b"".join(self._transports[number].written)


@asynccontextmanager
async def fed_broker(
    root: Path,
    settings: Mapping[str, str],
    *,
    gather: bool = True,
    inbox: bool = False,
    peers: Sequence[str] = ("127.0.0.1",),
) -> AsyncIterator[FedBroker]:
    """Run a broker; without ``gather`` every request goes to its processor.

    With ``inbox`` reads wait for the end of their turn, and machine code may have them first.
    """
    clock = ManualClock(START_MS)
    config, store = read_settings(
        {"longTurnMillis": "0", **settings, "storePathRootDir": str(root)}
    )
    with pytest.MonkeyPatch.context() as patch:
        # Delayed messages would be delivered, or not, by how long the machine takes for a read.
        patch.setattr(housekeeping, "TICK_MS", NEVER_MS)
        # A file that is late would make sends wait.
        patch.setattr(broker_module, "ROLL_WAIT_MS", None)
        # Answers that wait for a table would leave in another order by how long the disk takes.
        patch.setattr(StateKeeper, "changed", _save_at_once)
        async with run_broker(config, store, clock=clock) as broker:
            if not gather:
                broker.server.requests = RequestTable(processors(broker.context))
            yield FedBroker(broker, clock, peers, inbox=inbox)


def _save_at_once(keeper: StateKeeper) -> None:
    keeper.version += 1
    keeper.save_now()


def chunks_of(reads: list[list[dict[str, Any]]], header_type: HeaderType) -> list[bytes]:
    """Return what each read of the socket brings."""
    opaque = 0
    chunks = []
    for read in reads:
        frames = []
        for one in read:
            opaque += 1
            frames.append(encode_command(Command(opaque=opaque, serialize_type=header_type, **one)))
        chunks.append(b"".join(frames))
    return chunks


def without_host(host: bytes, answers: bytes) -> bytes:
    """Return answers without the port that the system has chosen."""
    return answers.replace(host, b"HOST").replace(host.hex().upper().encode(), b"HOST")
