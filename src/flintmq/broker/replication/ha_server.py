"""The replication port of a broker: slaves connect, and get the log as it grows.

The log goes from its mapped pages to the socket: the kernel copies it, and nothing in between.
Each slave gets a bounded slice in a turn of the loop.  What is not in memory is loaded by a
thread first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from flintmq.broker.replication.errors import ReplicationError
from flintmq.broker.replication.slave_link import SlaveLink
from flintmq.format.wire.ha_stream import TRANSFER_SIZE_MAX, encode_transfer_header
from flintmq.format.wire.remoting_errors import RemoteProtocolError
from flintmq.remoting import allow_reuse
from flintmq.store.reading.cold_reads import RECENT_SIZE, ColdRange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from flintmq.broker.replication.slave_table import SlaveTable
    from flintmq.broker.replication.tls_stream import TlsStream
    from flintmq.broker.waiting.cold_loads import ColdLoads
    from flintmq.remoting.tls_files import WatchedContext
    from flintmq.store.files.mapped_file import Slice
    from flintmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

SLAVE_COUNT_MAX: Final = 32
"""Connections of slaves; more are closed at once."""
SLAVE_COUNT_OF_HOST_MAX: Final = 16
"""Connections from one address: nobody alone can take the places of all slaves."""
SLICE_SIZE: Final = 1 << 20
"""Bytes of the log that one slave is sent before others have their turn."""
TRANSFER_COUNT_MAX: Final = 64
"""Transfers that are handed to the kernel together."""
LOOK_MS: Final = 100
"""How often a master looks after its slaves though nobody wakes it."""
REPORTS_SIZE: Final = 64 << 10
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
        self.transfer_size = min(store.config.ha_transfer_batch_size, TRANSFER_SIZE_MAX)
        self._tls = tls
        self._connections: dict[_SlaveConnection, None] = {}
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
        logger.info("slave connected: peer=%s", peer)
        self._connections[_SlaveConnection(self, connected, peer)] = None

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

    def forget(self, connection: _SlaveConnection) -> None:
        """Take out a connection that was closed."""
        self._connections.pop(connection, None)


class _SlaveConnection:
    """The socket of one slave."""

    def __init__(self, server: HaServer, connected: socket.socket | TlsStream, peer: str) -> None:
        config = server.store.config
        self.host = peer.rpartition(":")[0]
        self._server = server
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._link = SlaveLink(
            peer,
            now_ms=server.now_ms,
            heartbeat_ms=config.ha_heartbeat_interval_ms,
            silence_ms=config.ha_housekeeping_interval_ms,
        )
        server.slaves.add(self._link)
        self._unsent: deque[memoryview] = deque()
        self._held: list[Slice] = []
        """Parts of the log that the socket has not taken yet."""
        self._is_writing = False
        """Whether the loop tells when the socket takes more."""
        self._loading: asyncio.Task[None] | None = None
        self._resident_end = 0
        """Up to where the kernel has said that the log is in memory."""
        self._is_closed = False
        self._loop.add_reader(connected.fileno(), self._readable)

    # -- reports -----------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._is_closed:
            return
        log, link = self._server.store.log, self._link
        try:
            chunk = self._socket.recv(REPORTS_SIZE)
            if not chunk:
                self.close("the slave has closed it")
                return
            was_streaming = link.is_streaming
            is_further = link.received(
                chunk, log_start=log.min_offset, log_end=max(log.end_offset, log.min_offset)
            )
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, RemoteProtocolError, ReplicationError) as error:
            self.close(str(error))
            return
        if link.is_streaming and not was_streaming:
            self._tell_of_request()
        if len(chunk) == REPORTS_SIZE:
            self._loop.call_soon(self._readable)  # There may be more that the loop does not see.
        if is_further:
            self._server.slaves.advanced(link)
        self.go_on()

    def _tell_of_request(self) -> None:
        link = self._link
        logger.info(
            "slave begins: peer=%s requested=%d from=%d",
            link.peer,
            link.requested,
            link.next_offset,
        )
        if link.requested is not None and 1 < link.requested < link.next_offset:
            logger.warning(
                "slave was too slow for the retention of this master: peer=%s lost=%d",
                link.peer,
                link.next_offset - link.requested,
            )

    # -- transfers ---------------------------------------------------------------------------

    def look(self) -> None:
        """Do what is due: a sign of life, or the end of a slave that gives none."""
        if self._link.is_silent:
            self.close("nothing was heard of the slave for haHousekeepingInterval")
            return
        self.go_on()
        if self._link.is_heartbeat_due and not self._unsent and not self._is_closed:
            self._unsent.append(memoryview(encode_transfer_header(self._link.next_offset, 0)))
            self._link.transferred(0)
            self._send()

    def go_on(self) -> None:
        """Send what there is to send, unless the socket is full: then the loop goes on."""
        if self._is_writing or self._is_closed or self._loading is not None:
            return
        self._fill()
        if self._unsent:
            self._send()

    def _fill(self) -> None:
        """Take the next transfers out of the log, as many as one turn allows."""
        if not self._link.is_streaming:
            return
        log, link = self._server.store.log, self._link
        size = 0
        for _ in range(TRANSFER_COUNT_MAX):
            if size >= SLICE_SIZE:
                return
            part = log.read_range(link.next_offset, self._server.transfer_size)
            if part is None:
                if link.is_overtaken(log.min_offset):
                    self.close("the retention of this master was faster than the slave")
                return
            if self._is_cold(part):
                return
            self._held.append(part)
            self._unsent.append(memoryview(encode_transfer_header(part.start, part.size)))
            self._unsent.append(part.view)
            link.transferred(part.size)
            size += part.size

    def _is_cold(self, part: Slice) -> bool:
        """Whether a part has to be loaded first; if so, that is begun and the part given up."""
        log = self._server.store.log
        part_end = part.start + part.size
        if part_end <= self._resident_end or part.start >= log.readable_end - RECENT_SIZE:
            return False
        file = log.files.find(part.start)
        if file is None:
            return False
        start = part.start - file.first_offset
        size = min(SLICE_SIZE, file.readable - start)
        if file.region.is_resident(start, size):
            self._resident_end = part.start + size
            return False
        part.release()
        self._loading = self._loop.create_task(
            self._load(ColdRange(file, start, size)), name="cold log for a slave"
        )
        return True

    async def _load(self, cold: ColdRange) -> None:
        asked = [[cold], []]
        try:
            await self._server.cold_loads.load(lambda: asked.pop(0))
        finally:
            self._loading = None
        self.go_on()

    def _send(self) -> None:
        try:
            sent = self._socket.sendmsg(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.close(str(error))
            return
        while sent:
            first = self._unsent[0]
            if len(first) > sent:
                self._unsent[0] = first[sent:]
                break
            sent -= len(first)
            self._unsent.popleft()
        if not self._unsent:
            self._release()
        self._write_later(is_wanted=bool(self._unsent) or self._has_more)

    @property
    def _has_more(self) -> bool:
        return (
            self._link.is_streaming
            and self._loading is None
            and self._link.next_offset < self._server.store.log.readable_end
        )

    def _write_later(self, *, is_wanted: bool) -> None:
        if is_wanted and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._socket.fileno(), self._writable)
        elif not is_wanted and self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket.fileno())

    def _writable(self) -> None:
        if not self._unsent:
            self._fill()
        if self._unsent:
            self._send()
        else:
            self._write_later(is_wanted=False)

    def _release(self) -> None:
        held, self._held = self._held, []
        for part in held:
            part.release()

    def close(self, reason: str) -> None:
        """End the stream."""
        if self._is_closed:
            return
        self._is_closed = True
        logger.info("slave disconnected: peer=%s reason=%s", self._link.peer, reason)
        if self._loading is not None:
            self._loading.cancel()
        self._write_later(is_wanted=False)
        self._loop.remove_reader(self._socket.fileno())
        with contextlib.suppress(OSError):
            self._socket.close()
        self._unsent.clear()
        self._release()
        self._server.slaves.remove(self._link)
        self._server.forget(self)
