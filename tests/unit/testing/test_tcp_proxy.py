"""The proxy for tests of bad networks: each fault does what it says, and nothing else."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from flintmq.testing import AsyncTcpProxy, TcpProxy
from tests.kits.broker.remoting_kit import HOST, eventually
from tests.kits.leftovers import LEAVES_NOTHING

pytestmark = pytest.mark.usefixtures(LEAVES_NOTHING)


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    ended: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(4096):
                writer.write(chunk)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.create_task(serve(reader, writer)))

    async with await asyncio.start_server(accept, HOST, 0) as server:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    await asyncio.gather(*ended)


class Peer:
    """A client of the echo server, by way of the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, address: str) -> AsyncIterator["Peer"]:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def send(self, text: bytes) -> None:
        self.writer.write(text)

    async def echo(self, text: bytes) -> bytes:
        self.send(text)
        return await self.reader.readexactly(len(text))

    async def hears(self) -> bool:
        """Whether anything comes back soon, be it the end of the connection."""
        try:
            async with asyncio.timeout(0.1):
                await self.reader.read(1)
        except TimeoutError:
            return False
        except OSError:
            return True
        return True


async def test_bytes_pass_both_ways_and_so_does_the_end() -> None:
    async with echoing() as target, AsyncTcpProxy(target) as proxy:
        async with Peer.connect(proxy.address) as peer:
            assert await peer.echo(b"x" * 300_000) == b"x" * 300_000
            peer.writer.write_eof()
            assert await peer.reader.read() == b""
        await eventually(lambda: proxy.connection_count == 0)
        assert proxy.accepted_count == 1


async def test_forgotten_connections_are_silent_and_new_ones_work() -> None:
    async with (
        echoing() as target,
        AsyncTcpProxy(target) as proxy,
        Peer.connect(proxy.address) as old,
        Peer.connect(proxy.address) as second,
    ):
        await old.echo(b"a")
        await second.echo(b"a")
        assert proxy.forget_connections() == 2
        old.send(b"b")
        assert not await old.hears()
        async with Peer.connect(proxy.address) as new:
            assert await new.echo(b"c") == b"c"


async def test_a_black_hole_swallows_old_and_new_and_does_not_give_back() -> None:
    async with (
        echoing() as target,
        AsyncTcpProxy(target) as proxy,
        Peer.connect(proxy.address) as old,
        Peer.connect(proxy.address) as idle,
    ):
        await old.echo(b"a")
        await idle.echo(b"a")
        with proxy.blackhole():
            old.send(b"b")
            async with Peer.connect(proxy.address) as inside:
                inside.send(b"c")
                assert not await inside.hears()
        old.send(b"d")
        assert not await old.hears(), "the stream would have a hole"
        assert await idle.echo(b"e") == b"e", "it has lost nothing"


async def test_a_stall_loses_nothing() -> None:
    async with (
        echoing() as target,
        AsyncTcpProxy(target) as proxy,
        Peer.connect(proxy.address) as peer,
    ):
        await peer.echo(b"a")
        with proxy.stall():
            peer.send(b"late")
            assert not await peer.hears()
        assert await peer.reader.readexactly(4) == b"late"


async def test_a_delay_holds_every_piece_back() -> None:
    async with (
        echoing() as target,
        AsyncTcpProxy(target) as proxy,
        Peer.connect(proxy.address) as peer,
    ):
        await peer.echo(b"a")
        began = asyncio.get_running_loop().time()
        with proxy.delay(50):
            await peer.echo(b"b")
        assert asyncio.get_running_loop().time() - began >= 0.1


async def test_an_answer_is_cut_in_the_middle() -> None:
    async with echoing() as target, AsyncTcpProxy(target) as proxy:
        async with Peer.connect(proxy.address) as peer:
            await peer.echo(b"a")
            proxy.cut_answers_after(3)
            peer.send(b"12345")
            assert await peer.reader.readexactly(3) == b"123"
            with contextlib.suppress(OSError):
                assert await peer.reader.read() == b""
        async with Peer.connect(proxy.address) as peer:
            assert await peer.echo(b"67890") == b"67890"


async def test_dropped_connections_are_told() -> None:
    async with echoing() as target, AsyncTcpProxy(target) as proxy:
        async with Peer.connect(proxy.address) as peer:
            await peer.echo(b"a")
            assert proxy.drop_connections() == 1
            assert await peer.hears()
        await eventually(lambda: proxy.connection_count == 0)


@pytest.fixture
def blocking_echo() -> Iterator[str]:
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = server.accept()
                    with peer:
                        while chunk := peer.recv(4096):
                            peer.sendall(chunk)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield "{}:{}".format(*server.getsockname())
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_the_blocking_face_has_the_same_faults(blocking_echo: str) -> None:
    with TcpProxy(blocking_echo) as proxy:
        host, _, port = proxy.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as peer:
            peer.sendall(b"a")
            assert peer.recv(1) == b"a"
            assert proxy.connection_count == proxy.accepted_count == 1
            with proxy.delay(1), proxy.stall():
                peer.sendall(b"b")
            assert peer.recv(1) == b"b"
            with proxy.blackhole():
                peer.sendall(b"c")
                peer.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    peer.recv(1)
            proxy.cut_answers_after(1)
            assert proxy.forget_connections() == 1
            assert proxy.drop_connections() == 1
