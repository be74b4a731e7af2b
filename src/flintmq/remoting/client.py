"""Asking other servers: one connection to each address, made when needed and kept."""

from __future__ import annotations

import asyncio
import ssl
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from flintmq.format.errors import HostError
from flintmq.format.host import parse_address
from flintmq.remoting.client_connection import ClientConnection
from flintmq.remoting.errors import ClosedError, ConnectError
from flintmq.remoting.limits import Limits
from flintmq.remoting.request_table import RequestTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.format.wire.command import Command
    from flintmq.format.wire.headers.codec import HeaderFields
    from flintmq.remoting.connection import Connection
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.half_frames import HalfFrames
    from flintmq.remoting.request_bytes import RequestBytes
    from flintmq.remoting.tls_files import WatchedContext
    from flintmq.remoting.turn_inbox import TurnInbox
    from flintmq.remoting.unread_answers import UnreadAnswers

_SWEEPS_PER_IDLE_TIMEOUT: Final = 12
CLOSE_TIMEOUT_S: Final = 1.0


class RemotingClient:
    """Keeps a connection to each address it is asked to talk to.

    ``requests`` says who handles what the other side asks; ``prepare`` may change each request
    of ours before it is sent.  A connection that is lost is made again by the next call.
    """

    def __init__(
        self,
        requests: RequestTable | None = None,
        *,
        limits: Limits | None = None,
        prepare: Callable[[Command], None] | None = None,
        tls: WatchedContext | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self._prepare = prepare
        self._tls = tls
        self.requests = RequestTable({}) if requests is None else requests
        # The servers were chosen, and what they send was asked for.
        self.half_frames: HalfFrames[Connection] | None = None
        self.turns: FairTurns | None = None
        self.inbox: TurnInbox | None = None
        self.unread_answers: UnreadAnswers | None = None
        self.request_bytes: RequestBytes | None = None
        self.limits = limits or Limits()
        self._on_close = on_close
        self._connections: dict[str, asyncio.Task[ClientConnection]] = {}
        """The attempts to connect, those that have ended included."""
        self._made: dict[str, ClientConnection] = {}
        """The last connection to each address that could be made."""
        self._open: set[Connection] = set()
        self._is_closed = False
        self._sweeper: asyncio.Task[None] | None = None

    async def call(
        self,
        address: str,
        code: int,
        header: HeaderFields | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
    ) -> Command:
        """Send a request to ``address`` and return the answer, whatever its code.

        The time includes that for a connection and, while the server reads slowly, for room.
        """
        connection = self.ready(address)
        if connection is None:
            began = time.monotonic()
            connection = await self.connect(address, timeout_ms=timeout_ms)
            timeout_ms = max(timeout_ms - int((time.monotonic() - began) * 1000), 1)
        request = connection.new_request(code, header, body)
        return await connection.exchange(request, timeout_ms=timeout_ms)

    async def tell(
        self,
        address: str,
        code: int,
        header: HeaderFields | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
    ) -> None:
        """Send a one-way request to ``address``; the time is for connection and room."""
        began = time.monotonic()
        connection = await self.connect(address, timeout_ms=timeout_ms)
        left_ms = max(timeout_ms - int((time.monotonic() - began) * 1000), 1)
        await connection.tell_when_room(code, header, body, timeout_ms=left_ms)

    def ready(self, address: str) -> ClientConnection | None:
        """Return the connection to an address if it is open."""
        connection = self._made.get(address)
        return None if connection is None or connection.is_closed else connection

    async def connect(self, address: str, *, timeout_ms: int | None = None) -> ClientConnection:
        """Return the connection to ``address``; all who ask meanwhile share one attempt.

        Raises:
            ConnectError: none could be made, or not in time.
            ClosedError: this client is closed.
        """
        if self._is_closed:
            raise ClosedError(f"this client is closed: {address} is not asked")
        connection = self.ready(address)
        if connection is not None:
            return connection
        task = self._connections.get(address)
        if task is None or task.done():
            task = asyncio.create_task(self._make(address), name=f"connect {address}")
            self._connections[address] = task
        # One caller that gives up must not take the connection from the others.
        await asyncio.wait({task}, timeout=None if timeout_ms is None else timeout_ms / 1000)
        if not task.done():
            raise ConnectError(address, f"nothing came back within {timeout_ms} ms")
        if task.cancelled():
            raise ClosedError(f"this client was closed meanwhile: {address} is not asked")
        return task.result()

    async def _make(self, address: str) -> ClientConnection:
        loop = asyncio.get_running_loop()
        try:
            host, port = parse_address(address)
            async with asyncio.timeout(self.limits.connect_timeout_ms / 1000):
                context = None if self._tls is None else await self._tls.current()
                _, connection = await loop.create_connection(
                    lambda: ClientConnection(self),
                    host,
                    port,
                    ssl=context,
                    server_hostname=host if context is not None else None,
                )
        except TimeoutError:
            reason = f"nothing came back within {self.limits.connect_timeout_ms} ms"
            raise ConnectError(address, reason) from None
        except OSError as error:
            raise ConnectError(address, _reason(error)) from error
        except (HostError, UnicodeError) as error:
            # Somebody has registered a broker with an address that is none.
            raise ConnectError(address, f"that is no address: {error}") from error
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep_forever(), name="idle connections")
        self._made[address] = connection
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

    def rejected(self, kind: str) -> int | None:
        """Have each logged: a client has few servers."""
        return 0

    def end_of_read(self) -> None:
        """Do nothing: a client has nothing to do after a read."""

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
                if connection.unread_size:
                    connection.abort()  # What was not read for so long never will be.
                else:
                    connection.close()

    async def close(self, *, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Close all connections and wait until they are; no more are made.

        What was written has ``timeout_s`` seconds to leave, and never more than one.
        """
        self._is_closed = True
        self._made.clear()
        tasks: list[asyncio.Task[Any]] = list(self._connections.values())
        if self._sweeper is not None:
            tasks.append(self._sweeper)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._connections.clear()
        lost = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.close()
        if lost:
            await asyncio.wait(lost, timeout=min(timeout_s, CLOSE_TIMEOUT_S))
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


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with it: {error.reason or error}"
    return error.strerror or str(error)
