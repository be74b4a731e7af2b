"""Listening for peers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from flintmq.remoting.connection import Connection
from flintmq.remoting.errors import BindError
from flintmq.remoting.half_frames import HalfFrames
from flintmq.remoting.limits import Limits
from flintmq.remoting.processors import ProcessorTable

if TYPE_CHECKING:
    from flintmq.format.command import Command
    from flintmq.remoting.connection import Gatherer

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024
DRAIN_TIMEOUT_MS: Final = 3000
_SWEEPS_PER_IDLE_TIMEOUT: Final = 12


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; nobody can connect before it listens.

    A port of 0 takes a free one.  Raises BindError if the address cannot be had.
    """
    # A text would be taken through the codec of international names, which has to be loaded.
    name = host.encode() if host.isascii() else host
    try:
        family, _, _, _, address = socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise BindError(f"{host}:{port}", error.strerror or str(error)) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise BindError(f"{host}:{port}", error.strerror or str(error)) from error
    return bound


class RemotingServer:
    """Listens on one or more ports and answers from a table of processors.

    Use `listen`.  ``on_close`` hears of every connection that ends, ``on_end_of_read`` of every
    read that was handled.
    """

    def __init__(
        self,
        processors: ProcessorTable,
        *,
        limits: Limits,
        gatherer: Gatherer | None = None,
        on_close: Callable[[Connection], None] | None = None,
        on_end_of_read: Callable[[], None] | None = None,
    ) -> None:
        self.processors = processors
        self.gatherer = gatherer
        self.limits = limits
        self.half_frames: HalfFrames[Connection] | None = HalfFrames(
            limits.half_frames_size_max, drop=self._drop_half_frame
        )
        self.connections: set[Connection] = set()
        self.ports: tuple[int, ...] = ()
        self._on_close = on_close
        self._on_end_of_read = on_end_of_read
        self._servers: list[asyncio.Server] = []
        self._refused_count = 0

    @classmethod
    @asynccontextmanager
    async def listen(
        cls,
        processors: ProcessorTable,
        *,
        sockets: Sequence[socket.socket],
        limits: Limits | None = None,
        gatherer: Gatherer | None = None,
        on_close: Callable[[Connection], None] | None = None,
        on_end_of_read: Callable[[], None] | None = None,
    ) -> AsyncIterator[RemotingServer]:
        """Listen while the context lasts; at its end requests under way are finished first.

        The sockets are bound ones, as `bind` gives them; the server closes them.
        """
        server = cls(
            processors,
            limits=limits or Limits(),
            gatherer=gatherer,
            on_close=on_close,
            on_end_of_read=on_end_of_read,
        )
        sweeper: asyncio.Task[None] | None = None
        try:
            for one in sockets:
                await server._open(one)
            sweeper = asyncio.create_task(server._sweep_forever(), name="idle connections")
            yield server
        finally:
            if sweeper is not None:
                sweeper.cancel()
            await server._close()

    async def _open(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self), sock=bound, backlog=BACKLOG)
        self._servers.append(server)
        self.ports += (bound.getsockname()[1],)

    # -- Endpoint ----------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """Take a connection in, or close it when there are too many."""
        if len(self.connections) >= self.limits.connection_count_max:
            self._refused_count += 1
            # The first of each thousand: a flood must not flood the log.
            if self._refused_count % 1000 == 1:
                logger.warning(
                    "connection refused: peer=%s limit=%d refused=%d",
                    connection.peer_text,
                    self.limits.connection_count_max,
                    self._refused_count,
                )
            connection.abort()
            return
        self.connections.add(connection)

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        if connection in self.connections:
            self.connections.discard(connection)
            if self._on_close is not None:
                self._on_close(connection)

    def _drop_half_frame(self, connection: Connection, size: int) -> None:
        connection.drop(
            f"all unfinished frames have more than {self.limits.half_frames_size_max} bytes, "
            f"and its one, of {size} bytes so far, began first"
        )

    def end_of_read(self) -> None:
        """Pass on that a read was handled."""
        if self._on_end_of_read is not None:
            self._on_end_of_read()

    def prepare(self, command: Command) -> None:
        """Send requests of our own as they are."""

    # -- lifetime ----------------------------------------------------------------------------

    async def _sweep_forever(self) -> None:
        period = self.limits.idle_timeout_ms / 1000 / _SWEEPS_PER_IDLE_TIMEOUT
        while True:
            await asyncio.sleep(period)
            self.close_idle()

    def close_idle(self) -> int:
        """Close connections that were idle for too long; return how many."""
        limit = asyncio.get_running_loop().time() - self.limits.idle_timeout_ms / 1000
        idle = [connection for connection in self.connections if connection.last_active < limit]
        for connection in idle:
            logger.info("idle connection closed: peer=%s", connection.peer_text)
            connection.abort()
        return len(idle)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        await self._drain()
        for connection in list(self.connections):
            connection.close()
        if not await self._all_lost():
            # Peers that do not read what is left for them.
            for connection in list(self.connections):
                connection.abort()
            await self._all_lost()
        for server in self._servers:
            await server.wait_closed()

    async def _drain(self) -> None:
        """Let requests under way come to their end."""
        tasks = [task for connection in self.connections for task in connection.tasks]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=DRAIN_TIMEOUT_MS / 1000)
            if late:
                logger.warning("requests cut off at the end: count=%d", len(late))

    async def _all_lost(self) -> bool:
        lost = [connection.lost for connection in self.connections]
        if lost:
            await asyncio.wait(lost, timeout=DRAIN_TIMEOUT_MS / 1000)
        return not self.connections
