"""One connection: frames in and out, requests in both directions, bounded buffers.

Everything that one read of the socket brought is handled before anything is written, and then
written at once.  Small requests can have large answers, so a peer that has much unread waits in
mid-read until it has caught up.  The same class serves both ends: a server answers requests and
may ask its clients, a client asks and may be asked.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from flintmq.format.codes import ResponseCode
from flintmq.format.command import (
    ONE_WAY_FLAG,
    Command,
    command_of_members,
    decode_command,
    encode_command,
    json_members,
)
from flintmq.format.frame import FrameDecoder, HeaderType
from flintmq.format.remoting_errors import RemoteProtocolError
from flintmq.remoting.errors import (
    AnswerTimeoutError,
    ConnectionLostError,
    TooManyInFlightError,
)
from flintmq.remoting.processors import Answer, ProcessorTable, failed, send_answer

if TYPE_CHECKING:
    from flintmq.format.frame import Frame
    from flintmq.format.headers.codec import Header
    from flintmq.remoting.half_frames import HalfFrames
    from flintmq.remoting.limits import Limits
    from flintmq.remoting.processors import Outcome

logger = logging.getLogger(__name__)

_OPAQUE_MASK: Final = 0x7FFFFFFF
_GATHERED_SIZE_MAX: Final = 16 << 10
"""Bytes of requests that wait for the end of a turn of the loop."""


class Gatherer(Protocol):
    """Takes requests of one kind out of a read, to handle them together.

    What it took is handled before whatever comes behind it, and at the end of the read.
    """

    def take(
        self, connection: Connection, members: dict[str, Any], header: bytes, body: bytes
    ) -> bool:
        """Take a frame over, whose JSON header has these members; return whether it did."""
        ...

    def finish(self) -> None:
        """Handle all that was taken."""
        ...


class Endpoint(Protocol):
    """Whoever owns connections: a server or a client."""

    limits: Limits
    processors: ProcessorTable
    gatherer: Gatherer | None
    half_frames: HalfFrames[Connection] | None

    def opened(self, connection: Connection) -> None:
        """Learn of a new connection."""
        ...

    def closed(self, connection: Connection) -> None:
        """Learn that a connection has ended, for whatever reason."""
        ...

    def end_of_read(self) -> None:
        """Learn that what one read brought was handled; the answers are not written yet."""
        ...

    def prepare(self, command: Command) -> None:
        """Finish a request of ours before it is sent."""
        ...


class Connection(asyncio.Protocol):
    """A connection to a peer.

    ``context`` is a place for its owner, who may keep there what belongs to the peer.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._processors = endpoint.processors
        self._gatherer = endpoint.gatherer
        self._half_frames = endpoint.half_frames
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(frame_size_max=self._limits.frame_size_max)
        self._half_size = 0
        """Bytes of a frame that is not whole yet, as they were taken down."""
        self._transport: asyncio.Transport | None = None
        self._corked = False
        self._out: list[bytes] = []
        self._out_size = 0
        self._is_paused = False
        self._unhandled: Iterator[Frame] | None = None
        """What was read from a peer that has too much unread itself."""
        self._in_flight: dict[int, asyncio.Future[Command]] = {}
        self._next_opaque = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_failed = False
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection has ended."""
        self.context: Any = None
        self.peer: tuple[str, int] = ("", 0)
        """Address and port of the other side."""
        self.local: tuple[str, int] = ("", 0)
        self.last_active = self._loop.time()
        """When bytes last went either way, on the loop's clock."""

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<Connection {self.peer_text} {state}>"

    @property
    def peer_text(self) -> str:
        """The other side as RocketMQ writes addresses."""
        return f"{self.peer[0]}:{self.peer[1]}"

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._transport is None or self._transport.is_closing()

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """The peer's requests under way whose processors are coroutines."""
        return frozenset(self._tasks)

    @property
    def in_flight_count(self) -> int:
        """Requests of ours that wait for answers."""
        return len(self._in_flight)

    @property
    def unread_size(self) -> int:
        """Bytes that the peer has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # -- transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport."""
        # A transport of uvloop does everything of one without being one by its class.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=self._limits.write_pause_size)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        # A peer that has gone already has no name.
        self.peer = (peer[0], peer[1]) if peer else self.peer
        self.local = (local[0], local[1]) if local else self.local
        self._endpoint.opened(self)

    def data_received(self, data: bytes) -> None:
        """Handle all that one read brought, then write all answers at once."""
        self.last_active = self._loop.time()
        frames = self._decoder.frames(data)
        if self._unhandled is not None:
            self._unhandled = itertools.chain(self._unhandled, frames)
        else:
            self._handle(frames)
            self._note_half_frame(self._half_size + len(data))

    def _note_half_frame(self, unfinished_size: int) -> None:
        """Take down what is held; unless it is ``unfinished_size``, a frame was whole meanwhile."""
        size = self._decoder.pending_size
        if self._half_frames is not None and (size or self._half_size):
            self._half_size = size
            self._half_frames.note(self, size, is_new=size != unfinished_size)

    def _handle(self, frames: Iterator[Frame]) -> None:
        self._corked = True
        pause_size = self._limits.write_pause_size
        try:
            for frame in frames:
                self._take_frame(frame)
                if self._out_size > pause_size:
                    self._endpoint.end_of_read()
                    self._write_out()
                if self._is_paused:
                    self._unhandled = frames
                    break
        except RemoteProtocolError as error:
            self._fail(str(error))
        finally:
            if self._gatherer is not None:
                self._gatherer.finish()
            self._corked = False
            self._endpoint.end_of_read()
            self._write_out()
            if self._is_failed:
                self.close()

    def eof_received(self) -> bool:
        """Close: a peer that has stopped sending gets nothing more."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits for answers and tell the owner."""
        self._transport = None
        self._out.clear()
        self._unhandled = None
        if self._half_frames is not None:
            self._half_frames.note(self, 0, is_new=True)
        reason = f"connection to {self.peer_text} lost"
        for future in self._in_flight.values():
            if not future.done():
                future.set_exception(ConnectionLostError(reason))
        self._in_flight.clear()
        for task in self._tasks:
            task.cancel()
        self.lost.set_result(None)
        self._endpoint.closed(self)

    def pause_writing(self) -> None:
        """Read nothing more from a peer that does not read."""
        self._is_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with what was read already, then read again."""
        self._is_paused = False
        frames, self._unhandled = self._unhandled, None
        if frames is not None:
            self._handle(frames)
            self._note_half_frame(0)
        if not (self._is_paused or self.is_closed):
            assert self._transport is not None
            self._transport.resume_reading()

    def close(self) -> None:
        """Close after what was written has left."""
        self._write_out()
        if self._transport is not None:
            self._transport.close()

    def drop(self, reason: str) -> None:
        """Close now and log why."""
        self._fail(reason)
        self.abort()

    def abort(self) -> None:
        """Close now; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: str) -> None:
        if not self._is_failed:
            self._is_failed = True
            logger.warning("connection closed: peer=%s reason=%s", self.peer_text, reason)

    # -- what the peer asks ------------------------------------------------------------------

    def _take_frame(self, frame: Frame) -> None:
        """Let the gatherer have a frame, or handle it behind what was gathered."""
        gatherer = self._gatherer
        if gatherer is None:
            self.handle(decode_command(frame))
            return
        header_type, header, body = frame
        members = json_members(header) if header_type is HeaderType.JSON else None
        if members is None:
            command = decode_command(frame)
        elif gatherer.take(self, members, header, body):
            return
        else:
            command = command_of_members(members, header, body)
        gatherer.finish()
        self.handle(command)

    def handle(self, command: Command) -> None:
        """Handle a command of the peer: an answer to us, or a request."""
        if command.is_response:
            future = self._in_flight.pop(command.opaque, None)
            if future is None:
                logger.debug("answer to nothing: peer=%s", self.peer_text)
            elif not future.done():
                future.set_result(command)
            return
        outcome = self._processors.handle(self, command)
        if isinstance(outcome, Answer):
            send_answer(self, command, outcome)
        elif outcome is not None:
            self._start(command, outcome)

    def _start(self, command: Command, work: Awaitable[Outcome]) -> None:
        if len(self._tasks) >= self._limits.waiting_count_max:
            if asyncio.iscoroutine(work):
                work.close()
            remark = f"[OVERLOAD]{len(self._tasks)} requests of this connection are waiting"
            send_answer(self, command, Answer(ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        task = self._loop.create_task(self._finish(command, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, command: Command, work: Awaitable[Outcome]) -> None:
        try:
            answer = await work
        except Exception as error:
            answer = failed(command, error)
        if answer is not None:
            send_answer(self, command, answer)

    # -- what we ask -------------------------------------------------------------------------

    async def call(
        self, code: int, header: Header | None = None, body: bytes = b"", *, timeout_ms: int
    ) -> Command:
        """Send a request and return the answer, whatever its code.

        Raises:
            AnswerTimeoutError: nothing came in time.
            ConnectionLostError: the connection ended before.
            TooManyInFlightError: too many requests wait already.
        """
        return await self.exchange(self._request(code, header, body), timeout_ms=timeout_ms)

    async def exchange(self, command: Command, *, timeout_ms: int) -> Command:
        """Send a request that is made already, with an opaque of its own; return the answer."""
        if len(self._in_flight) >= self._limits.in_flight_count_max:
            raise TooManyInFlightError(f"{len(self._in_flight)} requests wait on {self!r}")
        future: asyncio.Future[Command] = self._loop.create_future()
        self._in_flight[command.opaque] = future
        timer = self._loop.call_later(
            timeout_ms / 1000, self._expire, future, command.code, timeout_ms
        )
        try:
            self._send(command)
            return await future
        finally:
            timer.cancel()
            self._in_flight.pop(command.opaque, None)

    def _expire(self, future: asyncio.Future[Command], code: int, timeout_ms: int) -> None:
        if not future.done():
            asked = f"request {code} within {timeout_ms} ms"
            future.set_exception(AnswerTimeoutError(f"no answer of {self.peer_text} to {asked}"))

    def tell(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send a one-way request."""
        command = self._request(code, header, body)
        command.flag = ONE_WAY_FLAG
        self._send(command)

    def _request(self, code: int, header: Header | None, body: bytes) -> Command:
        self._next_opaque = (self._next_opaque + 1) & _OPAQUE_MASK
        return Command(
            code=code,
            opaque=self._next_opaque,
            ext_fields={} if header is None else header.encode(),
            body=body,
            serialize_type=HeaderType.JSON,
        )

    def _send(self, command: Command) -> None:
        if self.is_closed:
            raise ConnectionLostError(f"connection to {self.peer_text} is closed")
        self._endpoint.prepare(command)
        self.send(encode_command(command))
        if not self._corked:
            # The first of our requests leaves at once, those of the same turn of the loop together.
            self._corked = True
            self._loop.call_soon(self._uncork)
        elif self._out_size > _GATHERED_SIZE_MAX:
            # The peer can begin while the rest is still made.
            self._write_out()

    def _uncork(self) -> None:
        self._corked = False
        self._write_out()

    # -- writing -----------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Send a whole frame, together with the others that one read leads to."""
        self._out.append(frame)
        self._out_size += len(frame)
        if not self._corked:
            self._write_out()

    def send_all(self, frames: Sequence[bytes]) -> None:
        """Send several whole frames."""
        self._out += frames
        self._out_size += sum(map(len, frames))
        if not self._corked:
            self._write_out()

    def _write_out(self) -> None:
        if not self._out:
            return
        out, self._out, self._out_size = self._out, [], 0
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(out[0] if len(out) == 1 else b"".join(out))
        self.last_active = self._loop.time()
        unread = transport.get_write_buffer_size()
        if unread > self._limits.write_drop_size:
            self.drop(f"{unread} bytes were not read")
