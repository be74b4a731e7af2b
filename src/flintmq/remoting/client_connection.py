"""The connection of a client: it waits for room, goes on reading, and notices silence.

A server stops reading from a peer that does not read.  If a client did the same, both could stand
still for ever; so a client reads always, and its own requests wait while the server reads slowly.
A firewall may drop a connection without telling either side.  So when several answers in a row
are missing and nothing else came, one request is sent as a probe; without an answer to it the
connection is closed, and the next request makes a new one.

A thread that waits for each answer sends its requests by itself (`exchange_in_thread`): if the loop
did that, both threads would have to be woken once more.  The loop and threads take turns with the
socket (`flintmq.remoting.shared_socket`).
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import ONE_WAY_FLAG, Command
from flintmq.format.wire.headers.namesrv import RouteRequest
from flintmq.format.wire.remoting_errors import RemoteProtocolError
from flintmq.model.topics import AUTO_CREATE_TOPIC
from flintmq.remoting.connection import Connection
from flintmq.remoting.errors import NotSentError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flintmq.format.buffer import Buffer
    from flintmq.format.wire.headers.codec import HeaderFields
    from flintmq.remoting.encoded_request import EncodedRequest
    from flintmq.remoting.endpoint import Endpoint
    from flintmq.remoting.shared_socket import SharedSocket

KEEP_ALIVE_OPTIONS: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Seconds of silence before the first probe of the system, between two, and how many of them."""

FOUND_SENDING_MAX: Final = 1000
"""How often the loop may find a thread sending; one that was stopped in mid-frame never ends."""

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
        self._shared: SharedSocket | None = None
        self._is_shared_wanted = False
        self._found_sending_count = 0
        """How often in a row the loop could not write because a thread was sending."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport, and have the system look whether the server is there."""
        _keep_alive(transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Handle what one read brought; whatever it is, the connection lives."""
        self._missing_count = 0
        if self._unhandled is not None:
            return super().data_received(data)
        self.last_active = self._loop.time()
        self.handle_read(data)

    def handle_read(self, data: bytes) -> None:
        """Handle all that a read brought: a client takes no turns, and gathers nothing."""
        self._corked = True
        try:
            for frame in self._decoder.frames(data):
                self._take_frame(frame)
        except RemoteProtocolError as error:
            self._fail(error, error.kind)
        finally:
            self._corked = False
            if self._out:
                self._write_out()
            elif self._shared is not None and self._shared.is_reserved:
                # What was sent before the answers that have come now has mostly left.
                self._release()
            if self._is_failed:
                self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits for answers or for room, and tell the owner."""
        self._unsent.clear()
        if self._probing is not None:
            self._probing.cancel()
        if self._shared is not None:
            # Before all that wait are told: nobody may begin to wait afterwards.
            self._shared.close()
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
        self._release()

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

    # -- threads -----------------------------------------------------------------------------

    def exchange_in_thread(self, request: EncodedRequest, *, timeout_ms: int) -> Command | None:
        """Send a request from a thread other than the loop's, and wait there for the answer.

        None if this cannot be done now: then nothing was sent, and `exchange` has to do it.
        """
        shared = self._shared
        if shared is None:
            if not self._is_shared_wanted:
                self._is_shared_wanted = True
                self._call_in_loop(self._share)
            return None
        self._check_count()
        ends_at = time.monotonic() + timeout_ms / 1000
        in_flight, opaque = self._in_flight, request.opaque
        try:
            waiting = in_flight.open_in_thread(opaque)
            if not shared.send(request.frame):
                return None if in_flight.close_in_thread(opaque) else waiting.wait()
            if shared.has_rest:
                self._call_in_loop(self._write_out)
            now = self.last_active = time.monotonic()
            command = waiting.wait(max(ends_at - now, 0))
        except BaseException:
            # A signal handler may have raised it anywhere, maybe while a part had left.
            if shared.has_rest:
                self._call_in_loop(self._write_out)
            if in_flight.close_in_thread(opaque):
                self._call_in_loop(self._note_missing)
            raise
        if command is not None:
            return command
        if not in_flight.close_in_thread(opaque):
            return waiting.wait()
        self._call_in_loop(self._note_missing)
        raise self._no_answer(request.code, timeout_ms)

    def _call_in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            # The loop has ended, and this connection with it; or a signal handler has raised it.
            if not self._loop.is_closed():
                raise

    def _share(self) -> None:
        # Several threads may have asked for it at once, and the socket has to be the same for all.
        if self._shared is None and self._transport is not None and not self.is_closed:
            # Only blocking clients have threads that send by themselves.
            from flintmq.remoting.shared_socket import share_socket

            self._shared = share_socket(self._transport)
            self._release()

    def _release(self) -> None:
        """Let threads send if nothing is left that has to leave before."""
        if self._shared is not None and not (self.is_closed or self._out or self.unread_size):
            self._shared.release()

    def _write_through(self, pieces: Sequence[Buffer]) -> int:
        """Leave all to the transport: threads write to the socket too."""
        return 0

    def _write_out(self) -> None:
        if self._shared is None:
            return super()._write_out()
        if not (self._out or self._shared.has_rest):
            return
        if self._shared.reserve():
            self._found_sending_count = 0
            if rest := self._shared.take_rest():
                self._out.insert(0, rest)
                self._out_size += len(rest)
            super()._write_out()
            self._release()
            return
        self._found_sending_count += 1
        if self._found_sending_count > FOUND_SENDING_MAX:
            self.drop("a thread was stopped while it sent a request")
        else:
            self._loop.call_soon(self._write_out)

    def close(self) -> None:
        """Close after what was written has left; threads send nothing more."""
        if self._shared is None or self._shared.close():
            super().close()
        else:
            self.drop("a thread was stopped while it sent a request")

    def abort(self) -> None:
        """Close now; what was not sent is lost."""
        if self._shared is not None:
            self._shared.close()
        super().abort()

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
