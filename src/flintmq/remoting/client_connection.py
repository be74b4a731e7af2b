"""The connection of a client: it waits for room, goes on reading, and notices silence.

A server stops reading from a peer that does not read.  If a client did the same, both could stand
still for ever; so a client reads always, and its own requests wait while the server reads slowly.
A firewall may drop a connection without telling either side.  So when several answers in a row
are missing and nothing else came, one request is sent as a probe; without an answer to it the
connection is closed, and the next request makes a new one.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import ONE_WAY_FLAG, Command
from flintmq.format.wire.headers.namesrv import RouteRequest
from flintmq.format.wire.remoting_errors import RemoteProtocolError
from flintmq.model.topics import AUTO_CREATE_TOPIC
from flintmq.remoting.connection import Connection
from flintmq.remoting.errors import NotSentError, RemotingError

if TYPE_CHECKING:
    from flintmq.format.wire.headers.codec import HeaderFields
    from flintmq.remoting.encoded_request import EncodedRequest
    from flintmq.remoting.endpoint import Endpoint

KEEP_ALIVE_OPTIONS: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Seconds of silence before the first probe of the system, between two, and how many of them."""

PROBE: Final = RouteRequest(topic=AUTO_CREATE_TOPIC)
"""Name servers answer this, and brokers answer that they cannot."""


class ClientConnection(Connection):
    """A connection to a server that is asked."""

    def __init__(self, endpoint: Endpoint[Connection]) -> None:
        super().__init__(endpoint)
        self._is_full = False
        self._unsent: dict[asyncio.Future[Command], Command | EncodedRequest] = {}
        """Requests that wait until the server has read more, the oldest first."""
        self._missing_count = 0
        """Answers that did not come in time since anything was read last."""
        self._probing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport, and have the system look whether the server is there."""
        _keep_alive(transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Handle what one read brought; whatever it is, the connection lives."""
        self._missing_count = 0
        super().data_received(data)

    def handle_read(self, data: bytes) -> None:
        """Handle all that a read brought: a client takes no turns, and gathers nothing."""
        self._corked = True
        try:
            for frame in self._decoder.frames(data):
                self._take_frame(frame)
        except RemoteProtocolError as error:
            self._fail(error, error.kind)
        finally:
            self._uncork()
            if self._is_failed:
                self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits for answers or for room, and tell the owner."""
        self._unsent.clear()
        if self._probing is not None:
            self._probing.cancel()
        super().connection_lost(error)

    # -- room --------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Let further requests wait.  Reading goes on: answers must not wait for requests."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Send requests that wait, as many as there is room for."""
        self._is_full = False
        while self._unsent and not (self._is_full or self.is_closed):
            future = next(iter(self._unsent))
            request = self._unsent.pop(future)
            if future.done():
                continue  # The caller has given up.
            self._send(request)
            if isinstance(request, Command) and request.flag & ONE_WAY_FLAG:
                future.set_result(request)

    def _submit(self, request: Command | EncodedRequest, future: asyncio.Future[Command]) -> None:
        if self._is_full:
            self._unsent[future] = request
        else:
            self._send(request)

    async def tell_when_room(
        self, code: int, header: HeaderFields | None, body: bytes, *, timeout_ms: int
    ) -> None:
        """Send a one-way request; NotSentError if there is no room for it in time."""
        if not self._is_full:
            self.tell(code, header, body)
            return
        command = self._in_flight.new(code, header, body)
        command.flag = ONE_WAY_FLAG
        await self.exchange(command, timeout_ms=timeout_ms)

    # -- silence -----------------------------------------------------------------------------

    def _expire(self, future: asyncio.Future[Command], code: int, timeout_ms: int) -> None:
        if future.done():
            return
        if self._unsent.pop(future, None) is not None:
            reason = f"{self.peer_text} has read nothing more for {timeout_ms} ms"
            future.set_exception(NotSentError(f"request {code} was not sent: {reason}"))
        else:
            super()._expire(future, code, timeout_ms)
        self._note_missing()

    def _withdraw(self, future: asyncio.Future[Command]) -> None:
        # What waits for room may be large, and nobody wants it any more.
        self._unsent.pop(future, None)
        self._note_missing()

    def _note_missing(self) -> None:
        """Count an answer that did not come in time, or before its caller gave up."""
        self._missing_count += 1
        if self.is_closed:
            return
        if self._missing_count >= self._limits.missing_count_max and self._probing is None:
            self._probing = self._loop.create_task(self._probe(), name=f"probe {self.peer_text}")

    async def _probe(self) -> None:
        """Ask once more, ahead of all that waits; close if nothing at all comes back."""
        unread_size = self.unread_size
        probe = self._in_flight.new(RequestCode.GET_ROUTEINFO_BY_TOPIC, PROBE, b"")
        answer = self._in_flight.open(probe.opaque)
        try:
            self._send(probe)
            async with asyncio.timeout(self._limits.probe_timeout_ms / 1000):
                await answer
        except (TimeoutError, RemotingError):
            # Who still reads is slow, not gone.
            if self._missing_count and self.unread_size >= unread_size:
                self.drop(
                    f"{self._missing_count} answers in a row are missing, and that to a probe"
                )
        finally:
            self._in_flight.close(probe.opaque)
            self._probing = None
            self._missing_count = 0


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is None:
        return  # A transport of a test.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE_OPTIONS:
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
