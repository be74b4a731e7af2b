"""A server and a client on loopback, for tests of the transport."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.format.wire.headers.clients import ConsumerGroupRequest, NoFields
from flintmq.remoting import (
    Answer,
    BindError,
    Connection,
    Limits,
    RemotingServer,
    Request,
    RequestTable,
    allow_reuse,
    bind,
)
from flintmq.remoting.processors import Processor
from flintmq.remoting.tls_listener import ServerTls

DEADLINE_S: Final = 60
HOST: Final = "127.0.0.1"
ECHO: Final = RequestCode.HEART_BEAT
"""A request without header fields; the server of these tests sends its body back."""
PATIENT_MS: Final = 30_000
"""For calls that shall succeed, however busy the machine is."""

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


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Give a port on which nobody listens, and on which a server of ours may listen later.

    A port that was merely free before may be somebody else's by then.
    """
    with bind(HOST, 0) as held:
        allow_reuse(held)
        yield held.getsockname()[1]


@contextlib.contextmanager
def reserved_broker_port() -> Iterator[int]:
    """Give a port like `reserved_port`, and keep those beside it that a broker takes too."""
    while True:
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(bind(HOST, 0))]
            port = held[0].getsockname()[1]
            try:
                for beside in (port - 2, port + 1):
                    held.append(stack.enter_context(bind(HOST, beside, is_free=True)))
            except BindError:
                continue
            for each in held:
                allow_reuse(each)
            yield port
            return


def echo(request: Request[NoFields]) -> Answer:
    return Answer(parts=[request.body])


@contextlib.asynccontextmanager
async def serving(
    processors: Mapping[Any, Processor] | None = None,
    *,
    limits: Limits | None = None,
    on_close: Callable[[Connection], None] | None = None,
    tls: ServerTls | None = None,
) -> AsyncIterator[RemotingServer]:
    table = RequestTable({ECHO: echo, **(processors or {})})
    async with RemotingServer.listen(
        table, sockets=[bind(HOST, 0)], limits=limits, on_close=on_close, tls=tls
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
    async def connect(
        cls, port: int, *, receive_buffer: int = 0, address: str = ""
    ) -> AsyncIterator["RawClient"]:
        peer = socket.socket()
        if address:
            peer.bind((address, 0))
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
