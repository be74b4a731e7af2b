"""A TCP proxy that behaves as bad networks do: it delays, stalls, cuts and swallows."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Self

from flintmq.client.loop_thread import InThread, LoopThread
from flintmq.format.host import parse_address

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from types import TracebackType

CHUNK_SIZE: Final = 64 << 10


class _Link:
    """One connection of a client and the one to the target that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, target: asyncio.StreamWriter) -> None:
        self._writers = (client, target)
        self.is_silent = False
        """Whether bytes were swallowed: nothing more can pass, or the stream would have a hole."""

    def abort(self) -> None:
        """Cut both sides off."""
        for writer in self._writers:
            writer.transport.abort()


class AsyncTcpProxy:
    """Passes connections on to ``target``, and does harm to them when it is told to.

    Use it as an async context manager.  `address` is where clients connect; ``listen`` chooses
    it, and a port of 0 takes a free one.  All faults are off at the start.
    """

    def __init__(self, target: str, *, listen: str = "127.0.0.1:0") -> None:
        self._target = parse_address(target)
        self._listen = parse_address(listen)
        self._links: dict[_Link, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_blackhole = False
        self._delay_ms = 0
        self._answer_room: int | None = None
        self.accepted_count = 0
        """Connections that clients have made so far."""
        self.address = ""
        """Where clients connect."""

    # -- faults ------------------------------------------------------------------------------

    @property
    def connection_count(self) -> int:
        """How many connections are open now."""
        return len(self._links)

    def drop_connections(self) -> int:
        """Cut all connections off, as a peer that dies does; return how many."""
        for link in list(self._links):
            link.abort()
        return len(self._links)

    def forget_connections(self) -> int:
        """Let nothing pass on the connections of now any more, and tell neither side.

        A firewall does this to connections that it has forgotten.  New connections work.
        Return how many were forgotten.
        """
        for link in self._links:
            link.is_silent = True
        return len(self._links)

    @contextlib.contextmanager
    def blackhole(self) -> Iterator[None]:
        """Swallow all bytes of old and new connections inside the block.

        Afterwards new connections work; those that have lost bytes stay silent.
        """
        self._is_blackhole = True
        try:
            yield
        finally:
            self._is_blackhole = False

    @contextlib.contextmanager
    def stall(self) -> Iterator[None]:
        """Read and pass nothing on inside the block, as a process that stands still does."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    @contextlib.contextmanager
    def delay(self, delay_ms: int) -> Iterator[None]:
        """Hold every piece back for so long inside the block, in both directions."""
        self._delay_ms = delay_ms
        try:
            yield
        finally:
            self._delay_ms = 0

    def cut_answers_after(self, size: int) -> None:
        """Pass ``size`` more bytes to clients, then cut the connection that has got the last."""
        self._answer_room = size

    # -- passing on --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        host, port = self._listen
        self._server = await asyncio.start_server(self._accept, host, port)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        self.drop_connections()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted_count += 1
        task = asyncio.create_task(self._serve(reader, writer), name="proxied connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(_end, writer)
            try:
                from_target, to_target = await asyncio.open_connection(*self._target)
            except OSError:
                return
            stack.push_async_callback(_end, to_target)
            link = _Link(writer, to_target)
            self._links[link] = None
            stack.callback(self._links.pop, link)
            with contextlib.suppress(OSError):  # One side has gone, and with it the other.
                await _first_failure(
                    self._pass_on(link, reader, to_target, is_answer=False),
                    self._pass_on(link, from_target, writer, is_answer=True),
                )

    async def _pass_on(
        self,
        link: _Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_answer: bool,
    ) -> None:
        while chunk := await reader.read(CHUNK_SIZE):
            if self._delay_ms:
                await asyncio.sleep(self._delay_ms / 1000)
            await self._flowing.wait()
            link.is_silent |= self._is_blackhole
            if link.is_silent:
                continue
            room = self._answer_room if is_answer else None
            if room is not None:
                self._answer_room = room - len(chunk)
                chunk = chunk[:room]
            if writer.is_closing():
                return  # uvloop raises an error that no socket has.
            writer.write(chunk)
            await writer.drain()
            if room is not None and self._answer_room is not None and self._answer_room <= 0:
                self._answer_room = None
                await _sent(writer)
                raise ConnectionAbortedError
        if link.is_silent:
            # Nobody is told that the other side has gone.
            await asyncio.get_running_loop().create_future()
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()


async def _first_failure(*works: Coroutine[Any, Any, None]) -> None:
    """Run all until they end or the first one fails; nothing of them is left running."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end(writer: asyncio.StreamWriter) -> None:
    """Cut a connection off and wait until its socket is closed."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _sent(writer: asyncio.StreamWriter) -> None:
    """Wait until nothing is left to write."""
    writer.transport.set_write_buffer_limits(high=0)
    await writer.drain()


class TcpProxy(InThread[AsyncTcpProxy]):
    """`AsyncTcpProxy` for tests without asyncio: it runs in a thread of its own."""

    _noun = "proxy"

    def __init__(self, target: str, *, listen: str = "127.0.0.1:0") -> None:
        super().__init__(lambda: AsyncTcpProxy(target, listen=listen))

    @classmethod
    def attached(cls, proxy: AsyncTcpProxy, thread: LoopThread) -> TcpProxy:
        """Return a face of a proxy that runs in the loop of a thread already."""
        face = cls(proxy.address)
        face._thread, face._member = thread, proxy
        return face

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self._opened()[1].address

    @property
    def accepted_count(self) -> int:
        """Connections that clients have made so far."""
        return self._opened()[1].accepted_count

    @property
    def connection_count(self) -> int:
        """How many connections are open now."""
        return self._opened()[1].connection_count

    def drop_connections(self) -> int:
        """Cut all connections off; return how many."""
        return self._call(AsyncTcpProxy.drop_connections)

    def forget_connections(self) -> int:
        """Let nothing pass on the connections of now any more; return how many."""
        return self._call(AsyncTcpProxy.forget_connections)

    def cut_answers_after(self, size: int) -> None:
        """Pass ``size`` more bytes to clients, then cut the connection."""
        self._call(AsyncTcpProxy.cut_answers_after, size)

    @contextlib.contextmanager
    def blackhole(self) -> Iterator[None]:
        """Swallow all bytes of old and new connections inside the block."""
        with self._faulty(self._opened()[1].blackhole()):
            yield

    @contextlib.contextmanager
    def stall(self) -> Iterator[None]:
        """Read and pass nothing on inside the block."""
        with self._faulty(self._opened()[1].stall()):
            yield

    @contextlib.contextmanager
    def delay(self, delay_ms: int) -> Iterator[None]:
        """Hold every piece back for so long inside the block."""
        with self._faulty(self._opened()[1].delay(delay_ms)):
            yield

    @contextlib.contextmanager
    def _faulty(self, block: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        """Enter and leave a block of the member in its own loop."""
        self._call(lambda _: block.__enter__())
        try:
            yield
        finally:
            self._call(lambda _: block.__exit__(None, None, None))
