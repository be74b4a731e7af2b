"""A server and a client on loopback, for tests of the transport."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from flintmq.format.codes import RequestCode
from flintmq.format.command import Command, decode_command, encode_command
from flintmq.format.frame import FrameDecoder
from flintmq.format.headers.clients import ConsumerGroupRequest, NoFields
from flintmq.remoting import (
    Answer,
    Connection,
    Limits,
    ProcessorTable,
    RemotingServer,
    Request,
    bind,
)
from flintmq.remoting.processors import Processor

DEADLINE_S: Final = 10
HOST: Final = "127.0.0.1"
ECHO: Final = RequestCode.HEART_BEAT
"""A request without header fields; the server of these tests sends its body back."""

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a test's coroutine, which may not take for ever."""
    return run_within(work, DEADLINE_S)


def run_within(work: Coroutine[Any, Any, _T], deadline_s: float) -> _T:
    """Run a coroutine that may take so long."""

    async def limited() -> _T:
        async with asyncio.timeout(deadline_s):
            return await work

    return asyncio.run(limited())


def echo(request: Request[NoFields]) -> Answer:
    return Answer(parts=[request.body])


@contextlib.asynccontextmanager
async def serving(
    processors: Mapping[Any, Processor] | None = None,
    *,
    limits: Limits | None = None,
    on_close: Callable[[Connection], None] | None = None,
) -> AsyncIterator[RemotingServer]:
    table = ProcessorTable({ECHO: echo, **(processors or {})})
    async with RemotingServer.listen(
        table, sockets=[bind(HOST, 0)], limits=limits, on_close=on_close
    ) as server:
        yield server


class RawClient:
    """A peer that sends exactly the bytes it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._frames: list[Command] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, port: int, *, receive_buffer: int = 0) -> AsyncIterator["RawClient"]:
        peer = socket.socket()
        if receive_buffer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, (HOST, port))
        reader, writer = await asyncio.open_connection(sock=peer)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def send(self, *commands: Command) -> None:
        self.writer.write(b"".join(map(encode_command, commands)))
        await self.writer.drain()

    async def receive(self) -> Command:
        while not self._frames:
            chunk = await self.reader.read(65536)
            if not chunk:
                raise EOFError
            self._frames += map(decode_command, self._decoder.frames(chunk))
        return self._frames.pop(0)

    async def is_cut_off(self) -> bool:
        """Whether the server ends the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except OSError:
            return True
        return True


def request(opaque: int, body: bytes = b"", *, code: int = ECHO, **ext_fields: str) -> Command:
    return Command(code=code, opaque=opaque, body=body, ext_fields=ext_fields)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the test's deadline is the limit."""
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0.001)


GROUP_HEADER: Final = ConsumerGroupRequest(consumer_group="g")
