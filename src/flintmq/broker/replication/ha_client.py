"""The connection of a slave to the replication port of its master."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Final

from flintmq.broker.replication.errors import ReplicationError
from flintmq.format.host import parse_address
from flintmq.format.wire.ha_stream import encode_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.replication.master_link import MasterLink
    from flintmq.broker.replication.tls_stream import TlsStream
    from flintmq.remoting.tls_files import WatchedContext

logger = logging.getLogger(__name__)

CHUNK_SIZE: Final = 1 << 20
"""Bytes that are taken from the socket in one turn of the loop."""
FLOOD_SIZE: Final = 128 << 10
"""So much does not come at once unless more is on its way."""
CONNECT_TIMEOUT_S: Final = 5
LOOK_MS: Final = 100
"""How often a slave looks whether a report is due though nothing has come."""


class StreamEndedError(ReplicationError):
    """The connection to the master is gone."""


class HaClient:
    """Takes in what the master sends and reports how far the slave is, until the stream ends."""

    def __init__(
        self,
        link: MasterLink,
        *,
        on_append: Callable[[], None],
        tls: WatchedContext | None = None,
    ) -> None:
        self._link = link
        self._tls = tls
        self._on_append = on_append
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(CHUNK_SIZE))
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._is_flooded = False
        self._unsent = b""
        """What is left of a report that the socket would not take."""

    async def run(self, address: str, first_report: int) -> None:
        """Connect and stream; return never.

        Raises:
            ReplicationError: the stream has ended, or must not go on.
            FlintError: the master sends what is no stream, or the store cannot take it.
        """
        with socket.socket(_family(address), socket.SOCK_STREAM) as connected:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._loop.sock_connect(connected, parse_address(address))
                    stream = await self._encrypted(connected, address)
            except (OSError, TimeoutError) as error:
                raise StreamEndedError(f"{address} cannot be connected to: {error}") from error
            with contextlib.closing(stream):
                await self._run(stream, first_report)

    async def _encrypted(self, connected: socket.socket, address: str) -> socket.socket | TlsStream:
        """Return the connection, by TLS if that is wanted."""
        if self._tls is None:
            return connected
        from flintmq.broker.replication.tls_stream import shake_hands

        host, _ = parse_address(address)
        return await shake_hands(connected, await self._tls.current(), host=host)

    async def _run(self, stream: socket.socket | TlsStream, first_report: int) -> None:
        self._socket = stream
        self._send(first_report)
        self._loop.add_reader(stream.fileno(), self._readable)
        ticker = asyncio.create_task(self._look_forever(), name="reports to the master")
        try:
            await self._ended
        finally:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)
            self._loop.remove_reader(stream.fileno())

    @property
    def is_flooded(self) -> bool:
        """Whether the master sends faster than this slave reads."""
        return self._is_flooded

    def report(self) -> None:
        """Tell the master how far this slave is, if that is due."""
        if self._ended.done():
            return
        due = self._link.due_report()
        if due is not None:
            self._send(due)

    def _readable(self) -> None:
        if self._ended.done():
            return
        try:
            size = self._socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(StreamEndedError(str(error)))
            return
        if not size:
            self._end(StreamEndedError("the master has closed the stream"))
            return
        try:
            self._link.received(self._buffer[:size])
        except Exception as error:
            # What is left of the chunk is lost: the next one would be taken for what it is not.
            self._end(error)
            return
        if size == len(self._buffer):
            self._loop.call_soon(self._readable)  # There may be more that the loop does not see.
        self._is_flooded = size >= FLOOD_SIZE
        self._on_append()
        self.report()

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            if self._link.is_silent:
                self._end(StreamEndedError("nothing was heard of it for haHousekeepingInterval"))
                return
            self._is_flooded = False
            self._on_append()
            self.report()

    def _send(self, offset: int) -> None:
        """Send a report.  Of one that does not fit the socket, the rest goes with the next one."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            try:
                if self._unsent:
                    sent = self._socket.send(self._unsent)
                    self._unsent = self._unsent[sent:]
                if not self._unsent:
                    report = encode_report(offset)
                    self._unsent = report
                    self._unsent = report[self._socket.send(report) :]
            except OSError as error:
                if isinstance(error, BlockingIOError | InterruptedError):
                    raise
                self._end(StreamEndedError(str(error)))

    def _end(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)


def _family(address: str) -> socket.AddressFamily:
    host, _ = parse_address(address)
    return socket.AF_INET6 if ":" in host else socket.AF_INET
