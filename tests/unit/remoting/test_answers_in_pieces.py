"""Large answers are written from where their pieces are, and nobody can tell."""

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
import uvloop

from flintmq.format.buffer import Buffer
from flintmq.remoting import Answer, Limits, Request
from tests.kits.broker.hostile_peer import MemoryTransport, fed_connection
from tests.kits.broker.remoting_kit import ECHO, RawClient, eventually, request, serving

SIZES: Final = (0, 1, 700, 40_000, (64 << 10) - 1, 64 << 10, 250_000, 900_000)
LOOPS: Final = [asyncio.new_event_loop, uvloop.new_event_loop]
REQUESTS: Final = 60


def pieces_of(number: int, size: int) -> list[bytes]:
    """Return what the answer to a request has: pieces of all sizes, each request others."""
    chosen = random.Random(number)
    data = chosen.randbytes(min(size, 4096)) * (size // 4096 + 1)
    cuts = sorted(chosen.randint(0, size) for _ in range(chosen.choice((0, 1, 5))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, size], strict=True)]


def in_pieces(ask: Request[Any]) -> Answer:
    """Answer with views of memory that is used for something else as soon as it is released."""
    number, size = map(int, ask.body.split())
    memory = [bytearray(piece) for piece in pieces_of(number, size)]

    def release() -> None:
        for one in memory:
            one[:] = bytes(len(one))

    return Answer(parts=[memoryview(one) for one in memory], release=release)


class Writes:
    """Stands before the system's call, which it may tell to take less, or nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int | None = None) -> None:
        self.sizes: list[int] = []
        self._room = room
        self._writev = os.writev
        monkeypatch.setattr(os, "writev", self)

    def __call__(self, descriptor: int, pieces: Sequence[Buffer]) -> int:
        if self._room == 0:
            raise BlockingIOError
        if self._room is not None:
            pieces = [b"".join(pieces)[: self._room]]
        self.sizes.append(self._writev(descriptor, pieces))
        return self.sizes[-1]


def with_loop(loop: Any, work: Any) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(work, 60))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("room", [None, 0, 1, 100_000])
@pytest.mark.parametrize("receive_buffer", [0, 4096])
def test_answers_of_all_sizes_come_whole_and_in_order(
    monkeypatch: pytest.MonkeyPatch, loop: Any, room: int | None, receive_buffer: int
) -> None:
    """The peer has asked for all of it before it reads any."""
    writes = Writes(monkeypatch, room)
    asked = [(number, SIZES[number * 5 % len(SIZES)]) for number in range(REQUESTS)]

    async def talk() -> None:
        limits = Limits(write_pause_size=64 << 20, write_drop_size=128 << 20)
        async with (
            serving({ECHO: in_pieces}, limits=limits) as server,
            RawClient.connect(server.ports[0], receive_buffer=receive_buffer) as peer,
        ):
            await peer.send(*[request(one, b"%d %d" % (one, size)) for one, size in asked])
            (connection,) = server.connections
            await eventually(lambda: connection.unread_size > 0)
            for number, size in asked:
                answer = await peer.receive()
                assert (answer.opaque, answer.body) == (number, b"".join(pieces_of(number, size)))

    with_loop(loop, talk())
    assert bool(writes.sizes) == (room != 0)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_peer_that_reads_gets_large_answers_without_a_copy(
    monkeypatch: pytest.MonkeyPatch, loop: Any
) -> None:
    writes = Writes(monkeypatch)

    async def talk() -> None:
        async with serving({ECHO: in_pieces}) as server, RawClient.connect(server.ports[0]) as peer:
            for number, size in enumerate(SIZES * 3):
                await peer.send(request(number, b"%d %d" % (number, size)))
                assert (await peer.receive()).body == b"".join(pieces_of(number, size))

    with_loop(loop, talk())
    # The header counts too.
    assert len(writes.sizes) == 3 * sum(size >= (64 << 10) - 1 for size in SIZES)


async def test_a_peer_that_is_gone_costs_nothing() -> None:
    async with serving({ECHO: in_pieces}) as server:
        async with RawClient.connect(server.ports[0]) as peer:
            await peer.send(*[request(one, b"%d 900000" % one) for one in range(9)])
            peer.writer.transport.abort()
        await eventually(lambda: not server.connections)
        async with RawClient.connect(server.ports[0]) as other:
            await other.send(request(1, b"1 900000"))
            assert len((await other.receive()).body) == 900_000


async def test_more_pieces_than_the_system_takes_at_once_leave_too() -> None:
    def many(ask: Request[Any]) -> Answer:
        return Answer(parts=[b"%08d" % number * 16 for number in range(2000)])

    async with serving({ECHO: many}) as server, RawClient.connect(server.ports[0]) as peer:
        await peer.send(request(1))
        expected = b"".join(b"%08d" % number * 16 for number in range(2000))
        assert (await peer.receive()).body == expected


async def test_a_connection_without_a_socket_gets_them_joined() -> None:
    async with serving() as server:
        connection = fed_connection(server)
        transport = MemoryTransport(connection, 5000)
        connection.connection_made(transport)
        connection.send_pieces([b"head", bytes(100_000)])
        assert transport.written == [b"head" + bytes(100_000)]
        connection.connection_lost(None)
