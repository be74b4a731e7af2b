"""Asking other servers: one connection to each address, made when needed and kept."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from flintmq.format.host import parse_address
from flintmq.remoting.connection import Connection, Gatherer
from flintmq.remoting.errors import ConnectError
from flintmq.remoting.limits import Limits
from flintmq.remoting.processors import ProcessorTable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from flintmq.format.command import Command
    from flintmq.format.headers.codec import Header
    from flintmq.remoting.half_frames import HalfFrames

_SWEEPS_PER_IDLE_TIMEOUT: Final = 12
_CLOSE_TIMEOUT_MS: Final = 1000


class RemotingClient:
    """Keeps a connection to each address it is asked to talk to.

    ``processors`` handle what the other side asks, ``prepare`` may change each request before it
    is sent.  A connection that is lost is made again by the next call.
    """

    def __init__(
        self,
        processors: ProcessorTable | None = None,
        *,
        limits: Limits | None = None,
        prepare: Callable[[Command], None] | None = None,
        tls: ssl.SSLContext | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self._prepare = prepare
        self._tls = tls
        self.processors = processors or ProcessorTable({})
        self.gatherer: Gatherer | None = None
        # The servers were chosen, and what they send was asked for.
        self.half_frames: HalfFrames[Connection] | None = None
        self.limits = limits or Limits()
        self._on_close = on_close
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        self._open: set[Connection] = set()
        self._sweeper: asyncio.Task[None] | None = None

    async def call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
    ) -> Command:
        """Send a request to ``address`` and return the answer, whatever its code."""
        connection = await self.connect(address)
        return await connection.call(code, header, body, timeout_ms=timeout_ms)

    async def tell(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> None:
        """Send a one-way request to ``address``."""
        (await self.connect(address)).tell(code, header, body)

    async def connect(self, address: str) -> Connection:
        """Return the connection to ``address``; all who ask meanwhile share one attempt."""
        task = self._connections.get(address)
        if task is not None and task.done() and not _is_useless(task):
            return task.result()
        if task is None or task.done():
            task = asyncio.create_task(self._make(address), name=f"connect {address}")
            self._connections[address] = task
        # One caller that gives up must not take the connection from the others.
        return await asyncio.shield(task)

    async def _make(self, address: str) -> Connection:
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.limits.connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: Connection(self),
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname=host if self._tls is not None else None,
                )
        except TimeoutError:
            reason = f"nothing came back within {self.limits.connect_timeout_ms} ms"
            raise ConnectError(address, reason) from None
        except OSError as error:
            raise ConnectError(address, error.strerror or str(error)) from error
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep_forever(), name="idle connections")
        return connection

    # -- Endpoint ----------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """Keep a new connection."""
        self._open.add(connection)

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._open.discard(connection)
        if self._on_close is not None:
            self._on_close(connection)

    def end_of_read(self) -> None:
        """Nothing is to be done after a read."""

    def prepare(self, command: Command) -> None:
        """Let the owner finish a request: its language, its signature."""
        if self._prepare is not None:
            self._prepare(command)

    # -- lifetime ----------------------------------------------------------------------------

    async def _sweep_forever(self) -> None:
        period = self.limits.idle_timeout_ms / 1000
        while True:
            await asyncio.sleep(period / _SWEEPS_PER_IDLE_TIMEOUT)
            limit = asyncio.get_running_loop().time() - period
            for connection in [one for one in self._open if one.last_active < limit]:
                connection.close()

    async def close(self) -> None:
        """Close all connections and wait until they are."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in self._connections.values():
            if not task.done():
                task.cancel()
        await asyncio.gather(*self._connections.values(), return_exceptions=True)
        self._connections.clear()
        lost = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.close()
        if lost:
            await asyncio.wait(lost, timeout=_CLOSE_TIMEOUT_MS / 1000)
        for connection in list(self._open):
            connection.abort()
        await asyncio.gather(*lost)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _is_useless(task: asyncio.Task[Connection]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().is_closed
