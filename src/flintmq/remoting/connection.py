"""One connection: requests in both directions over a stream of frames.

The same class serves both ends: each may ask, and answers what it is asked.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.command import (
    ONE_WAY_FLAG,
    RESPONSE_FLAG,
    decode_command,
    encode_command,
)
from flintmq.remoting.encoded_request import EncodedRequest
from flintmq.remoting.errors import AnswerTimeoutError, ConnectionLostError, TooManyInFlightError
from flintmq.remoting.frame_stream import FrameStream
from flintmq.remoting.in_flight import InFlight
from flintmq.remoting.processors import Answer, send_answer
from flintmq.remoting.received_request import ReceivedRequest, receive
from flintmq.remoting.started_requests import StartedRequests

if TYPE_CHECKING:
    from flintmq.format.wire.command import Command
    from flintmq.format.wire.frame import Frame
    from flintmq.format.wire.headers.codec import HeaderFields
    from flintmq.remoting.endpoint import Endpoint

logger = logging.getLogger(__name__)

_CORKED_SIZE_MAX: Final = 16 << 10
"""Bytes of our own requests that may wait for the end of a turn of the loop."""


class Connection(FrameStream):
    """A connection to a peer that may ask, and be asked."""

    def __init__(self, endpoint: Endpoint[Connection]) -> None:
        super().__init__(endpoint)
        self._in_flight = InFlight(self._loop, self._expire)
        self._started = StartedRequests(
            self,
            self._requests,
            count_max=self._limits.waiting_count_max,
            request_bytes=endpoint.request_bytes,
        )

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """The peer's requests under way whose processors are coroutines."""
        return self._started.tasks

    @property
    def in_flight_count(self) -> int:
        """Requests of ours that wait for answers."""
        return len(self._in_flight)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits for answers and tell the owner."""
        self._in_flight.fail(ConnectionLostError(f"connection to {self.peer_text} lost"))
        self._started.cancel()
        super().connection_lost(error)

    # -- what the peer asks ------------------------------------------------------------------

    def _take_frame(self, frame: Frame) -> None:
        """Have a request handled, or give the answer to one of ours to whoever waits for it."""
        requests = self._requests
        if requests.has_bulk:
            request = receive(frame)
            if not request.flag & RESPONSE_FLAG:
                requests.handle(self, request)
                return
            command = request.command
        else:
            command = decode_command(frame)
            if not command.is_response:
                requests.handle(self, ReceivedRequest.of(command))
                return
        if not self._in_flight.answered(command):
            logger.debug("answer to nothing: peer=%s", self.peer_text)

    def process(self, request: ReceivedRequest) -> None:
        """Have an admitted request handled by its processor, alone."""
        command, began = request.command, self._requests.began
        outcome = self._requests.process(self, command)
        if isinstance(outcome, Answer):
            send_answer(self, command, outcome)
            self._requests.note_answer(command.code, outcome.code, began)
        elif outcome is not None:
            self._started.start(command, outcome, began)
        else:
            # It is answered later.  That takes its number and notation, not what it brought.
            command.body, command.ext_fields = b"", {}

    # -- what we ask -------------------------------------------------------------------------

    async def call(
        self, code: int, header: HeaderFields | None = None, body: bytes = b"", *, timeout_ms: int
    ) -> Command:
        """Send a request and return the answer, whatever its code.

        Raises:
            AnswerTimeoutError: nothing came in time.
            ConnectionLostError: the connection ended before.
            TooManyInFlightError: too many requests wait already.
        """
        return await self.exchange(self.new_request(code, header, body), timeout_ms=timeout_ms)

    def new_request(self, code: int, header: HeaderFields | None, body: bytes) -> Command:
        """Return a request that `exchange` can send."""
        return self._in_flight.new(code, header, body)

    def next_opaque(self) -> int:
        """Return the number of the next request of ours."""
        return self._in_flight.next_opaque()

    async def exchange(self, request: Command | EncodedRequest, *, timeout_ms: int) -> Command:
        """Send a request whose opaque number the caller has chosen; return the answer."""
        in_flight, opaque = self._in_flight, request.opaque
        self._check_count()
        future = in_flight.open(opaque)
        in_flight.limit(opaque, request.code, timeout_ms)
        try:
            self._submit(request, future)
            return await future
        except asyncio.CancelledError:
            self._withdraw(future)
            raise
        finally:
            in_flight.close(opaque)

    def _check_count(self) -> None:
        if len(self._in_flight) >= self._limits.in_flight_count_max:
            raise TooManyInFlightError(f"{self.in_flight_count} requests wait on {self!r}")

    def _submit(self, request: Command | EncodedRequest, future: asyncio.Future[Command]) -> None:
        """Send a request whose answer the future gets."""
        self._send(request)

    def _withdraw(self, future: asyncio.Future[Command]) -> None:
        """Learn that a caller has given up before there was an answer."""

    def _expire(self, future: asyncio.Future[Command], code: int, timeout_ms: int) -> None:
        if not future.done():
            future.set_exception(self._no_answer(code, timeout_ms))

    def _no_answer(self, code: int, timeout_ms: int) -> AnswerTimeoutError:
        asked = f"request {code} within {timeout_ms} ms"
        return AnswerTimeoutError(f"no answer of {self.peer_text} to {asked}")

    def tell(self, code: int, header: HeaderFields | None = None, body: bytes = b"") -> None:
        """Send a one-way request."""
        command = self._in_flight.new(code, header, body)
        command.flag = ONE_WAY_FLAG
        self._send(command)

    def _send(self, request: Command | EncodedRequest) -> None:
        if self.is_closed:
            raise ConnectionLostError(f"connection to {self.peer_text} is closed")
        if isinstance(request, EncodedRequest):
            self.send(request.frame)
        else:
            self._endpoint.prepare(request)
            self.send(encode_command(request))
        if self._corked:
            if self._out_size > _CORKED_SIZE_MAX:
                # The peer can begin while the rest is still made.
                self._write_out()
        elif len(self._in_flight) != 1:
            # The first of our requests leaves at once, those of the same turn of the loop together.
            # One that waits alone for its answer is rarely followed by others before that.
            self._corked = True
            self._loop.call_soon(self._uncork)
