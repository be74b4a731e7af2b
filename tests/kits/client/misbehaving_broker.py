"""A broker that misbehaves on request: it does its work, and spoils what it answers.

A real name server and a real broker stand behind it; between them and their clients every answer
is taken apart, and passed on as a broken, slow or malicious server would.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from enum import Enum
from types import TracebackType
from typing import Final, Self

from flintmq import AsyncProducer, Message
from flintmq.client.loop_thread import InThread
from flintmq.format.host import parse_address
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.command import Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder
from flintmq.testing import AsyncEmbeddedCluster
from flintmq.testing.embedded_brokers import BROKER_HOST, PROXY_HOST

CHUNK_SIZE: Final = 64 << 10
SLOW_S: Final = 0.15
OFFSET_FIELDS: Final = ("nextBeginOffset", "offset", "minOffset", "maxOffset", "queueOffset")


class Fault(Enum):
    """What is done to answers."""

    SILENT = "they never come"
    SLOW = "each one comes late"
    HALF = "the first half comes, and nothing more on this connection"
    CUT = "the first half comes, then the connection ends"
    RESET = "the connection ends instead"
    SWAPPED = "they come out of order"
    TWICE = "each one comes twice"
    STRANGE_NUMBER = "they belong to other requests"
    REFUSED = "all say that the server is busy"
    UNKNOWN_CODE = "all have a code that nobody knows"
    NO_FIELDS = "they have no header fields and no body"
    BACKWARD = "offsets in them go back"
    GARBAGE = "bytes come that are no frame"
    DEAF = "requests are not even read"


class Misbehaving:
    """The server between clients and a real one."""

    def __init__(self, target: str, *, listen: str) -> None:
        self._target = parse_address(target)
        self._listen = parse_address(listen)
        self._tasks: set[asyncio.Task[None]] = set()
        self.fault: Fault | None = None
        self.address = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._accept, *self._listen)
        self.address = "{}:{}".format(*server.sockets[0].getsockname())
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # The task may be cancelled before it has begun, or before it has reached the real server.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(*self._target)
        pumps: list[asyncio.Task[None]] = []
        try:
            pumps = [
                asyncio.create_task(self._pass_requests(reader, forth)),
                asyncio.create_task(_Answers(self, writer).pass_all(back)),
            ]
            with contextlib.suppress(OSError):
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for one in (writer, forth):
                one.transport.abort()
                with contextlib.suppress(OSError):
                    await one.wait_closed()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(CHUNK_SIZE):
            while self.fault is Fault.DEAF:  # noqa: ASYNC110 - the test's thread sets no event
                await asyncio.sleep(0.01)
            writer.write(chunk)
            await writer.drain()


class _Answers:
    """What one connection of a client gets."""

    def __init__(self, owner: Misbehaving, writer: asyncio.StreamWriter) -> None:
        self._owner = owner
        self._writer = writer
        self._held: list[bytes] = []

    async def pass_all(self, reader: asyncio.StreamReader) -> None:
        decoder = FrameDecoder()
        while chunk := await reader.read(CHUNK_SIZE):
            for frame in decoder.frames(chunk):
                command = decode_command(frame)
                fault = self._owner.fault if command.is_response else None
                await self._pass_on(command, fault)
            await self._writer.drain()

    async def _pass_on(self, command: Command, fault: Fault | None) -> None:
        frame = encode_command(command)
        match fault:
            case None:
                self._release(frame)
            case Fault.SILENT | Fault.DEAF:
                pass
            case Fault.SLOW:
                await asyncio.sleep(SLOW_S)
                self._release(frame)
            case Fault.HALF:
                self._writer.write(frame[: len(frame) // 2])
                await asyncio.get_running_loop().create_future()
            case Fault.CUT:
                self._writer.write(frame[: len(frame) // 2])
                await self._writer.drain()
                raise ConnectionAbortedError
            case Fault.RESET:
                raise ConnectionAbortedError
            case Fault.SWAPPED:
                self._held.insert(0, frame)
                asyncio.get_running_loop().call_later(SLOW_S, self._release)
            case Fault.TWICE:
                self._release(frame + frame)
            case Fault.GARBAGE:
                self._writer.write(os.urandom(len(frame)))
            case _:
                self._release(encode_command(_changed(command, fault)))

    def _release(self, frame: bytes = b"") -> None:
        held, self._held = self._held, []
        self._writer.write(b"".join(held) + frame)


def _changed(command: Command, fault: Fault) -> Command:
    match fault:
        case Fault.STRANGE_NUMBER:
            command.opaque += 100_000
        case Fault.REFUSED:
            command.code, command.remark = ResponseCode.SYSTEM_BUSY, "by a test"
        case Fault.UNKNOWN_CODE:
            command.code = 4711
        case Fault.NO_FIELDS:
            command.ext_fields, command.body = {}, b""
        case Fault.BACKWARD:
            fields = dict(command.ext_fields)
            for name in OFFSET_FIELDS:
                if fields.get(name, "").isdigit():
                    fields[name] = str(max(0, int(fields[name]) - 2))
            command.ext_fields = fields
    return command


class AsyncBadSite:
    """A cluster whose name server and broker misbehave when they are told to."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.mq = await stack.enter_async_context(
                AsyncEmbeddedCluster(bindAddress=BROKER_HOST, brokerIP1=PROXY_HOST)
            )
            # Its heartbeats would meet the faults too, and make connections that no test made.
            await self.mq._producer.close()
            broker = self.mq.broker
            self._broker = await stack.enter_async_context(
                Misbehaving(f"{BROKER_HOST}:{broker.port}", listen=broker.address).serving()
            )
            self._namesrv = await stack.enter_async_context(
                Misbehaving(self.mq.namesrv, listen=f"{BROKER_HOST}:0").serving()
            )
            self.namesrv = self._namesrv.address
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.behave()
        await self._stack.aclose()

    def behave(self) -> None:
        self._broker.fault = self._namesrv.fault = None

    @contextlib.contextmanager
    def misbehaving(self, fault: Fault, *, namesrv: bool = False) -> Iterator[None]:
        """Have the broker, or the name server, misbehave inside the block."""
        (self._namesrv if namesrv else self._broker).fault = fault
        try:
            yield
        finally:
            self.behave()


class BadSite(InThread[AsyncBadSite]):
    """`AsyncBadSite` in a thread of its own: clients of any loop and thread can use it."""

    _noun = "site"

    def __init__(self) -> None:
        super().__init__(AsyncBadSite)

    @property
    def site(self) -> AsyncBadSite:
        return self._opened()[1]

    @property
    def namesrv(self) -> str:
        return self.site.namesrv

    def misbehaving(
        self, fault: Fault, *, namesrv: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        # Faults are looked at by the loop and may be set from any thread.
        return self.site.misbehaving(fault, namesrv=namesrv)

    def ensure(self, topic: str, queue_count: int) -> None:
        self._call(lambda site: site.mq.broker.context.topics.ensure(topic, queue_count))

    def send(self, topic: str, *bodies: bytes) -> None:
        async def send(site: AsyncBadSite) -> None:
            async with AsyncProducer(namesrv=site.mq.namesrv) as producer:
                for body in bodies:
                    await producer.send(Message(topic=topic, body=body))

        self._await(send)
