"""Listening for connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.frame import HeaderType
from flintmq.remoting.connection import Connection
from flintmq.remoting.errors import BindError
from flintmq.remoting.fair_turns import FairTurns
from flintmq.remoting.half_frames import HalfFrames
from flintmq.remoting.limits import Limits
from flintmq.remoting.paced_log import PacedLog
from flintmq.remoting.refusal_counts import (
    ADDRESS_CONNECTIONS,
    CONNECTIONS,
    HALF_FRAMES,
    UNREAD_ANSWERS,
    RefusalCounts,
)
from flintmq.remoting.request_bytes import RequestBytes
from flintmq.remoting.turn_inbox import TurnInbox
from flintmq.remoting.unread_answers import UnreadAnswers

if TYPE_CHECKING:
    from flintmq.format.wire.command import Command
    from flintmq.remoting.request_table import RequestTable
    from flintmq.remoting.tls_listener import ServerTls, TlsListener

logger = logging.getLogger(__name__)

DRAIN_TIMEOUT_MS: Final = 3000
_SWEEPS_PER_IDLE_TIMEOUT: Final = 12


def bind(host: str, port: int, *, is_free: bool = False) -> socket.socket:
    """Return a socket bound to an address; nobody can connect before it listens.

    A port of 0 takes a free one.  With ``is_free`` a port that was used a moment ago will not do;
    only then, and with 0, nobody else can bind it before it listens: Linux lets many have a port
    for reuse, and the first one to listen wins.  Raises BindError if the address cannot be had.
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
        if port and not is_free:
            allow_reuse(bound)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        is_foreign = error.errno == errno.EADDRNOTAVAIL
        reason = error.strerror or str(error)
        raise BindError(f"{host}:{port}", reason, is_foreign=is_foreign) from error
    return bound


def allow_reuse(bound: socket.socket) -> None:
    """Let the port be bound again while connections of a server that has ended still linger.

    Connections take this from the socket that accepts them, so it is set when that one listens.
    """
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


class RemotingServer:
    """Listens on one or more ports and answers what a table of requests has handlers for.

    Use `listen`.  ``on_close`` hears of every connection that ends, ``on_end_of_read`` of every
    read that was handled.  ``turns`` is for those who share the time of the loop with it.  With
    ``tls`` each connection may begin with a handshake.  ``refused`` counts those that are closed.
    ``header_type`` is the notation of requests to clients.
    """

    def __init__(
        self,
        requests: RequestTable,
        *,
        limits: Limits,
        on_close: Callable[[Connection], None] | None = None,
        on_end_of_read: Callable[[], None] | None = None,
        turns: FairTurns | None = None,
        tls: ServerTls | None = None,
        refused: RefusalCounts | None = None,
        header_type: HeaderType = HeaderType.JSON,
    ) -> None:
        self._header_type = header_type
        self.requests = requests
        self.limits = limits
        self.half_frames: HalfFrames[Connection] | None = HalfFrames(
            limits.half_frames_size_max, drop=self._drop_half_frame
        )
        self.turns: FairTurns | None = turns or FairTurns()
        self.unread_answers: UnreadAnswers | None = UnreadAnswers(
            own_pause_size=limits.write_pause_size,
            pause_size=limits.unread_answers_pause_size,
            size_max=limits.unread_answers_size_max,
            on_drop=lambda: self.refused.note(UNREAD_ANSWERS),
        )
        self.inbox: TurnInbox | None = None
        """Has what a turn of the loop brought handled together; None: each read by itself."""
        self.connections: set[Connection] = set()
        self.ports: tuple[int, ...] = ()
        self._on_close = on_close
        self._on_end_of_read = on_end_of_read
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._listeners: list[TlsListener] = []
        self._by_address: Counter[str] = Counter()
        self.refused = requests.refused = refused or RefusalCounts()
        self.request_bytes: RequestBytes | None = RequestBytes(
            size_max=limits.request_bytes_max,
            peer_size_max=limits.peer_request_bytes_max,
            refused=self.refused,
        )
        self._rejected_log: PacedLog[str] = PacedLog()
        self.rejected_counts: Counter[str] = Counter()
        """Connections that were closed for what their peers did, by the kind of it."""

    @classmethod
    @asynccontextmanager
    async def listen(
        cls,
        requests: RequestTable,
        *,
        sockets: Sequence[socket.socket],
        limits: Limits | None = None,
        on_close: Callable[[Connection], None] | None = None,
        on_end_of_read: Callable[[], None] | None = None,
        turns: FairTurns | None = None,
        tls: ServerTls | None = None,
        refused: RefusalCounts | None = None,
        header_type: HeaderType = HeaderType.JSON,
    ) -> AsyncIterator[RemotingServer]:
        """Listen while the context lasts; at its end requests under way are finished first.

        The sockets are bound ones, as `bind` gives them; the server closes them.
        """
        server = cls(
            requests,
            limits=limits or Limits(),
            on_close=on_close,
            on_end_of_read=on_end_of_read,
            turns=turns,
            tls=tls,
            refused=refused,
            header_type=header_type,
        )
        server.inbox = TurnInbox(server, active_wait_s=(server.limits.active_wait_us or 0) / 1e6)
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
        self.ports += (bound.getsockname()[1],)
        if self._tls is None:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(
                lambda: Connection(self), sock=bound, backlog=self.limits.backlog
            )
            self._servers.append(server)
            allow_reuse(bound)
            return
        # Only who has a certificate needs it.
        from flintmq.remoting.tls_listener import TlsListener

        listener = TlsListener(
            bound,
            self._tls,
            limits=self.limits,
            make=lambda: Connection(self),
            has_room=self._has_room,
            refused=self.refused,
        )
        listener.start()
        allow_reuse(bound)
        self._listeners.append(listener)

    @property
    def waiting_count(self) -> int:
        """Connections that have not said yet whether they speak TLS, or are about to."""
        return sum(listener.count for listener in self._listeners)

    def _has_room(self, host: str) -> bool:
        """Return whether one more connection is allowed, those that are not made yet included."""
        limits, reason = self.limits, ""
        most = limits.address_connection_count_max
        if len(self.connections) + self.waiting_count >= limits.connection_count_max:
            reason = CONNECTIONS
        elif most is not None and self._count_from(host) >= most:
            reason = ADDRESS_CONNECTIONS
        if not reason:
            return True
        count = self.refused.note(reason)
        # The first of each thousand: a flood must not flood the log.
        if count % 1000 == 1:
            logger.warning(
                "connection refused: peer=%s too_many=%s refused=%d", host, reason, count
            )
        return False

    def _count_from(self, host: str) -> int:
        waiting = sum(listener.waiting[host] for listener in self._listeners)
        return waiting + self._by_address[host]

    # -- Endpoint ----------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """Take a connection in, or close it when there are too many."""
        # Where a listener has let it in, there was room, and it is still counted there.
        host = connection.peer[0]
        if self._listeners or self._has_room(host):
            self.connections.add(connection)
            self._by_address[host] += 1
        else:
            connection.abort()

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        if connection in self.connections:
            self.connections.discard(connection)
            host = connection.peer[0]
            self._by_address[host] -= 1
            if not self._by_address[host]:
                del self._by_address[host]
            if self._on_close is not None:
                self._on_close(connection)

    def rejected(self, kind: str) -> int | None:
        """Count a connection that is closed for what its peer did; some of them are logged."""
        self.rejected_counts[kind] += 1
        return self._rejected_log.passes(kind)

    def _drop_half_frame(self, connection: Connection, size: int) -> None:
        self.refused.note(HALF_FRAMES)
        connection.drop(
            f"all unfinished frames have more than {self.limits.half_frames_size_max} bytes, "
            f"and its one, of {size} bytes so far, began first"
        )

    def end_of_read(self) -> None:
        """Pass on that a read was handled."""
        if self._on_end_of_read is not None:
            self._on_end_of_read()

    def prepare(self, command: Command) -> None:
        """Write the header of a request of our own as this server does."""
        command.serialize_type = self._header_type

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
        for listener in self._listeners:
            await listener.close()
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
