"""The replication port of a broker: slaves connect, and get the log as it grows.

Here slaves are let in; `slave_connection` streams to each of them, and is loaded with the first.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from flintmq.remoting import allow_reuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from flintmq.broker.replication.slave_connection import SlaveConnection
    from flintmq.broker.replication.slave_table import SlaveTable
    from flintmq.broker.replication.tls_stream import TlsStream
    from flintmq.broker.waiting.cold_loads import ColdLoads
    from flintmq.remoting.tls_files import WatchedContext
    from flintmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

SLAVE_COUNT_MAX: Final = 32
"""Connections of slaves; more are closed at once."""
SLAVE_COUNT_OF_HOST_MAX: Final = 16
"""Connections from one address: nobody alone can take the places of all slaves."""
LOOK_MS: Final = 100
"""How often a master looks after its slaves though nobody wakes it."""
BACKLOG: Final = 16
HANDSHAKE_TIMEOUT_S: Final = 10.0


class HaServer:
    """Listens for slaves and streams the log to them.  Use `listen`."""

    def __init__(
        self,
        store: MessageStore,
        slaves: SlaveTable,
        *,
        cold_loads: ColdLoads,
        now_ms: Callable[[], int],
        tls: WatchedContext | None = None,
        may_follow: Callable[[str], bool] = lambda host: True,
    ) -> None:
        self._may_follow = may_follow
        self.store = store
        self.slaves = slaves
        self.cold_loads = cold_loads
        self.now_ms = now_ms
        self._tls = tls
        self._connections: dict[SlaveConnection, None] = {}
        self._greetings: dict[asyncio.Task[None], str] = {}
        """Handshakes that are under way, and with which host."""

    @classmethod
    @asynccontextmanager
    async def listen(
        cls,
        bound: socket.socket,
        store: MessageStore,
        slaves: SlaveTable,
        *,
        cold_loads: ColdLoads,
        now_ms: Callable[[], int],
        tls: WatchedContext | None = None,
        may_follow: Callable[[str], bool] = lambda host: True,
    ) -> AsyncIterator[HaServer]:
        """Serve slaves on a bound socket while the context lasts, with ``tls`` by TLS only.

        ``may_follow`` says from which addresses they may come.
        """
        server = cls(
            store, slaves, cold_loads=cold_loads, now_ms=now_ms, tls=tls, may_follow=may_follow
        )
        bound.listen(BACKLOG)
        allow_reuse(bound)
        tasks = [
            asyncio.create_task(server._accept_forever(bound), name="slaves"),
            asyncio.create_task(server._look_forever(), name="slave housekeeping"),
        ]
        try:
            yield server
        finally:
            tasks += server._greetings
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for connection in list(server._connections):
                connection.close("this broker stops")

    async def _accept_forever(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, address = await loop.sock_accept(bound)
            except OSError as error:
                logger.warning("slave not accepted: reason=%s", error)
                await asyncio.sleep(LOOK_MS / 1000)
                continue
            peer = f"{address[0]}:{address[1]}"
            if not self._may_follow(address[0]):
                logger.warning("slave refused, not of haSlaveAddresses: peer=%s", peer)
                connected.close()
                continue
            if not self._has_place_for(address[0]):
                logger.warning("slave refused, there are too many: peer=%s", peer)
                connected.close()
                continue
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                self._admit(connected, peer)
                continue
            greeting = loop.create_task(self._greet(connected, peer, self._tls), name="greet slave")
            self._greetings[greeting] = address[0]
            greeting.add_done_callback(self._greetings.pop)

    def _admit(self, connected: socket.socket | TlsStream, peer: str) -> None:
        # Few brokers have slaves.
        from flintmq.broker.replication.slave_connection import SlaveConnection

        logger.info("slave connected: peer=%s", peer)
        self._connections[SlaveConnection(self, connected, peer)] = None

    async def _greet(self, connected: socket.socket, peer: str, tls: WatchedContext) -> None:
        """Stream to a slave that shows what this master trusts; refuse any other."""
        from flintmq.broker.replication.tls_stream import shake_hands

        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                stream = await shake_hands(connected, await tls.current())
        except (OSError, TimeoutError) as error:
            connected.close()
            reason = getattr(error, "reason", None) or str(error) or "it took too long"
            logger.warning("slave refused: peer=%s reason=%s (see haUseTLS)", peer, reason)
        else:
            self._admit(stream, peer)

    def _has_place_for(self, host: str) -> bool:
        hosts = [*(one.host for one in self._connections), *self._greetings.values()]
        return len(hosts) < SLAVE_COUNT_MAX and hosts.count(host) < SLAVE_COUNT_OF_HOST_MAX

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            for connection in list(self._connections):
                connection.look()

    def wake(self) -> None:
        """Send slaves what has become readable."""
        for connection in list(self._connections):
            connection.go_on()

    def forget(self, connection: SlaveConnection) -> None:
        """Take out a connection that was closed."""
        self._connections.pop(connection, None)
