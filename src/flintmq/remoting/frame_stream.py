"""One connection as a stream of frames: read in turns, written together, with bounded buffers.

Everything that a turn of the loop brought is handled before anything is written, and then all
answers of a connection are written at once (`flintmq.remoting.turn_inbox`).  Small requests can
have large answers, so a peer that has much unread waits in mid-read until it has caught up.  What
frames mean is the business of `flintmq.remoting.connection`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from flintmq.format.wire.command import decode_command
from flintmq.format.wire.frame import FrameDecoder, LargeFrame
from flintmq.format.wire.remoting_errors import RemoteProtocolError
from flintmq.remoting.fair_turns import LARGE_HEADER_WEIGHT, PLAIN_HEADER_SIZE, SLICE_BODY_SIZE
from flintmq.remoting.half_frames import HalfFrame
from flintmq.remoting.refusal_counts import TOO_MUCH, UNREAD_ANSWERS

if TYPE_CHECKING:
    from flintmq.format.buffer import Buffer
    from flintmq.format.wire.command import Command
    from flintmq.format.wire.frame import Frame
    from flintmq.format.wire.headers.codec import HeaderFields
    from flintmq.remoting.endpoint import Endpoint
    from flintmq.remoting.fair_turns import FairTurns
    from flintmq.remoting.received_request import ReceivedRequest

logger = logging.getLogger(__name__)

_JOINED_SIZE_MAX: Final = 64 << 10
"""Bytes of a half frame that is joined to each read and moved once more by it."""
_WRITTEN_THROUGH_SIZE_MIN: Final = 64 << 10
"""Bytes of a frame in pieces that is not joined: smaller ones cost less in one piece."""
_WRITTEN_PIECES_MAX: Final = 1024
"""Pieces that the system takes at once."""
_HAS_WRITEV: Final = hasattr(os, "writev")
_LARGE_SIZE: Final = 1 << 20
"""Bytes of a frame that a thread joins: to copy so much lets go of the interpreter."""


class FrameStream(asyncio.Protocol, ABC):
    """A connection to a peer, without what is said on it."""

    def __init__(self, endpoint: Endpoint[Any]) -> None:
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._requests = endpoint.requests
        self._half_frame = HalfFrame(endpoint.half_frames, self)
        self._turns = endpoint.turns
        self._inbox = endpoint.inbox
        self._unread_answers = endpoint.unread_answers
        self._loop = asyncio.get_running_loop()
        large = None if self._turns is None else _LARGE_SIZE
        self._decoder = FrameDecoder(frame_size_max=self._limits.frame_size_max, large_size=large)
        self._transport: asyncio.Transport | None = None
        self._descriptor: int | None = None
        """The socket's, if bytes may be written to it as they are; good while it is open."""
        self._corked = False
        self._out: list[bytes] = []
        self._out_size = 0
        self._unread = 0
        """Bytes that were unread when this was last looked at."""
        self._is_paused = False
        self._unhandled: Iterator[Frame] | None = None
        """Frames that wait for a later turn, or until the peer has read more of its answers."""
        self._is_postponed = False
        """Whether this connection waits for a later turn of the loop."""
        self._works: set[asyncio.Future[Any]] = set()
        """What has to be done before anything more is handled."""
        self._waits_since: float | None = None
        """Since when, by the busy time of the loop, what is unhandled has waited for it."""
        self._waiting_for_room: list[Callable[[], None]] = []
        self._is_failed = False
        self.unknown_reads, self.pull_reads, self.reads_large = 0, 0, False
        self.has_finished_frame = False
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection has ended."""
        self.peer: tuple[str, int] = ("", 0)
        """Address and port of the other side."""
        self.local: tuple[str, int] = ("", 0)
        self.last_active = self._loop.time()
        """When bytes last went either way, on the loop's clock."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.peer_text} {'closed' if self.is_closed else 'open'}>"

    @property
    def peer_text(self) -> str:
        """The other side as RocketMQ writes addresses."""
        return f"{self.peer[0]}:{self.peer[1]}"

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._transport is None or self._transport.is_closing()

    @property
    def is_lost(self) -> bool:
        """Whether it has ended, and everybody was told."""
        return self._transport is None

    @property
    def unread_size(self) -> int:
        """Bytes that were written and that the peer has not read yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def has_room(self) -> bool:
        """Whether the peer has read enough to be sent more than it just asked for."""
        return not self._is_paused

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once the peer has read enough; never if the connection ends before."""
        assert self._is_paused, "there is room already"
        self._waiting_for_room.append(callback)

    def pause_above(self, size: int) -> None:
        """Pause whenever more than ``size`` bytes are unread, at once if they are already."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.set_write_buffer_limits(high=size)

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
        sock = transport.get_extra_info("socket")
        if _HAS_WRITEV and sock is not None and not transport.get_extra_info("sslcontext"):
            self._descriptor = sock.fileno()
        self._endpoint.opened(self)

    def data_received(self, data: bytes) -> None:
        """Have what a read brought handled: at the end of this turn of the loop, or now."""
        self.last_active = self._loop.time()
        self._half_frame.fed_size += len(data)
        if self._unhandled is not None:
            self._put_off(data)
        elif self._inbox is not None:
            self._inbox.add(self, data)
        else:
            self.handle_read(data)

    def handle_read(self, data: bytes) -> None:
        """Handle all that a read brought, and answer."""
        self._handle(self._decoder.frames(data))

    def _put_off(self, data: bytes) -> None:
        """Keep a read behind what waits already."""
        assert self._unhandled is not None
        self._unhandled = itertools.chain(self._unhandled, self._decoder.frames(data))
        self._waits_since = None  # Nothing counts as older than it is.
        # Its turn mostly comes before more does; now it has not, and one read more is enough.
        self.pause_reading()

    def _handle(self, frames: Iterator[Frame]) -> None:
        """Handle frames and all that was gathered of them, and write the answers."""
        try:
            self._take(frames)
        finally:
            self._requests.finish()
            self._endpoint.end_of_read()
            self.finish_read()
            if self._turns is not None:
                self._turns.end(self._requests.last_code)

    def open_read(self, data: bytes) -> bytes | None:
        """Return a read from where a frame begins, for who handles several reads together.

        What is left of it comes back by `take_read`.  None: all of it has to go that way.
        """
        if self._unhandled is not None or self._is_paused or self._is_failed:
            return None
        self._corked = True
        return self._decoder.whole(data, pending_size_max=_JOINED_SIZE_MAX)

    def take_read(self, data: bytes) -> None:
        """Handle what a read brought; what is gathered of it and its answers wait.

        Whoever calls this has gathered requests finished, and calls `finish_read` then.
        """
        if self._unhandled is not None:
            self._put_off(data)
        else:
            self._take(self._decoder.frames(data))

    def pause_reading(self) -> None:
        """Have nothing more read until `read_on`, or until what was read is handled."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def read_on(self) -> bool:
        """Read again, unless something that was read is left; return whether that is done."""
        if self._unhandled is not None or self._is_paused or self.is_closed:
            return False
        assert self._transport is not None
        self._transport.resume_reading()
        return True

    def finish_read(self) -> None:
        """Write what the requests of a read have led to."""
        self._corked = False
        if self._out:
            self._write_out()
        if self._is_failed:
            self.close()
        if self._unhandled is None:
            self._half_frame.note(self._decoder.pending_size)

    def _take(self, frames: Iterator[Frame]) -> None:
        """Handle frames for as long as this connection may go on in this turn."""
        turns, slice_end, body_size, has_finished = self._turns, 0.0, 0, False
        if turns is not None and not (slice_end := turns.begin()):
            return self._postpone(frames, turns)
        self._corked = True
        if self._unread:
            self._note_unread(self.unread_size)
        try:
            for frame in frames:
                has_finished = True
                if type(frame) is LargeFrame:
                    frames = itertools.chain(self._join(frame), frames)
                else:
                    self._take_frame(frame)
                # What is unread already counts, or many small writes would leave too much.
                if self._out_size + self._unread > self._limits.write_pause_size:
                    self._endpoint.end_of_read()
                    self._write_out()
                if self._is_paused or self._works:
                    self._unhandled, self._waits_since = frames, None
                    break
                body_size += len(frame.body)
                if len(frame.header) > PLAIN_HEADER_SIZE:
                    body_size += LARGE_HEADER_WEIGHT * len(frame.header)
                if turns is not None and (turns.now() >= slice_end or body_size > SLICE_BODY_SIZE):
                    self._postpone(frames, turns)
                    break
        except RemoteProtocolError as error:
            self._fail(error, error.kind)
        self.has_finished_frame = has_finished

    def _postpone(self, frames: Iterator[Frame], turns: FairTurns) -> None:
        """Leave frames to a later turn of the loop."""
        self._unhandled = frames
        self._is_postponed = True
        if self._waits_since is None:
            self._waits_since = turns.busy_time
        turns.postpone(self)

    def go_on(self) -> None:
        """Go on with what an earlier turn had no time for."""
        self._is_postponed = False
        try:
            if not (self._is_paused or self._works):
                self._go_on()
        except Exception:
            logger.exception("requests could not be handled: peer=%s", self.peer_text)
            self.abort()

    def _go_on(self) -> None:
        """Handle what was read already; read again once all of it is handled."""
        frames, self._unhandled = self._unhandled, None
        if frames is not None and not self.is_closed:
            with self._requests.late_by(self._turns, self._waits_since):
                self._handle(frames)
        if self._unhandled is None:
            self._waits_since = None
        if self.reads_large and self._inbox is not None:
            self._inbox.read_on_later(self)
        else:
            self.read_on()

    def _join(self, frame: LargeFrame) -> Iterator[Frame]:
        """Have a frame joined by a thread; return what yields it when that is done."""
        joining = self._loop.run_in_executor(None, frame.joined, decode_command)
        self.wait_for(joining)
        # If the connection ends before, nobody asks any more.
        joining.add_done_callback(lambda joined: joined.cancelled() or joined.exception())
        return (joining.result() for _ in range(1))

    def wait_for(self, work: asyncio.Future[Any]) -> None:
        """Handle nothing that was sent since before some work is done."""
        self._works.add(work)
        if self._unhandled is None:
            self._unhandled = iter(())  # What comes now is kept behind it.
        work.add_done_callback(self._work_done)

    def _work_done(self, work: asyncio.Future[Any]) -> None:
        self._works.discard(work)
        if self._works or self._is_postponed or self._is_paused or self._unhandled is None:
            return
        if self._turns is not None:
            return self._postpone(self._unhandled, self._turns)
        self._go_on()

    def eof_received(self) -> bool:
        """Close: a peer that has stopped sending gets nothing more."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Let everything go that was kept for the peer, and tell the owner."""
        # What refers to each other is collected late, and a half frame may have megabytes.
        half_frame = self._decoder.take_pieces()
        self._transport, self._unhandled, self._decoder = None, None, FrameDecoder()
        self._out.clear()
        self._waiting_for_room.clear()
        if self._unread_answers is not None:
            self._unread_answers.forget(self)
        self._half_frame.release(half_frame)
        self.lost.set_result(None)
        self._endpoint.closed(self)

    def pause_writing(self) -> None:
        """Read nothing more from a peer that does not read."""
        self._is_paused = True
        self.pause_reading()

    def resume_writing(self) -> None:
        """Go on with what was read already and with what waits for room, then read again."""
        self._is_paused = False
        self._note_unread(self.unread_size)
        if not self._is_postponed and not self._works:
            self._go_on()
        while self._waiting_for_room and not self._is_paused:
            waiting, self._waiting_for_room = self._waiting_for_room, []
            for callback in waiting:
                callback()

    def close(self) -> None:
        """Close after what was written has left."""
        self._write_out()
        if self._transport is not None:
            self._transport.close()

    def drop(self, reason: str) -> None:
        """Close now and log why."""
        self._fail(reason, TOO_MUCH)
        self.abort()

    def abort(self) -> None:
        """Close now; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: str | RemoteProtocolError, kind: str) -> None:
        if self._is_failed:
            return
        self._is_failed = True
        not_logged = self._endpoint.rejected(kind)
        if not_logged is not None:
            logger.warning(
                "connection closed: peer=%s reason=%s not_logged=%d",
                self.peer_text,
                reason,
                not_logged,
            )

    # -- what a peer and we say, which a stream does not know ----------------------------------

    @abstractmethod
    def _take_frame(self, frame: Frame) -> None:
        """Have a request handled, or give the answer to one of ours to whoever waits for it."""

    @abstractmethod
    def process(self, request: ReceivedRequest) -> None:
        """Have an admitted request handled by its processor, alone."""

    @abstractmethod
    async def call(
        self, code: int, header: HeaderFields | None = None, body: bytes = b"", *, timeout_ms: int
    ) -> Command:
        """Send a request and return the answer, whatever its code."""

    @abstractmethod
    def tell(self, code: int, header: HeaderFields | None = None, body: bytes = b"") -> None:
        """Send a one-way request."""

    # -- writing -----------------------------------------------------------------------------

    def _uncork(self) -> None:
        self._corked = False
        self._write_out()

    def send(self, frame: bytes) -> None:
        """Send a whole frame, together with the others that one read leads to."""
        self._out.append(frame)
        self._out_size += len(frame)
        if not self._corked or self._out_size > self._limits.write_pause_size:
            self._write_out()

    def send_all(self, frames: Sequence[bytes]) -> None:
        """Send several whole frames."""
        self._out += frames
        self._out_size += sum(map(len, frames))
        if not self._corked or self._out_size > self._limits.write_pause_size:
            self._write_out()

    def write_now(self) -> None:
        """Let what was sent so far leave now, and not at the end of the turn."""
        self._write_out()

    def send_pieces(self, pieces: Sequence[Buffer]) -> None:
        """Send a whole frame in pieces, which need not be good any more when this returns.

        Of a large frame only that is copied which the peer is not ready for: a copy of some 100 KB
        is memory that the system has to find, fill with zeros and take back, for each answer.
        """
        size, sent = sum(map(len, pieces)), 0
        if size >= _WRITTEN_THROUGH_SIZE_MIN:
            self._write_out()
            sent = self._write_through(pieces)
        if sent == 0:
            self.send(b"".join(pieces))
        elif sent < size:
            self.send(b"".join(_behind(pieces, sent)))

    def _write_through(self, pieces: Sequence[Buffer]) -> int:
        """Write as much as the socket has room for, without a copy; return how many bytes."""
        transport = self._transport
        if self._descriptor is None or transport is None or transport.is_closing():
            return 0
        if transport.get_write_buffer_size():
            return 0  # What was sent before has to leave first.
        try:
            sent = os.writev(self._descriptor, pieces[:_WRITTEN_PIECES_MAX])
        except OSError:
            return 0  # There is no room, or the transport learns why not.
        self.last_active = self._loop.time()
        return sent

    def _write_out(self) -> None:
        if not self._out:
            return
        out, size, self._out, self._out_size = self._out, self._out_size, [], 0
        if (transport := self._transport) is None or transport.is_closing():
            return
        account = self._unread_answers
        if account is not None and size > account.free_size:
            account.make_room(size)
            if transport.is_closing():
                return  # It was this one that had the most.
        transport.write(out[0] if len(out) == 1 else b"".join(out))
        self.last_active = self._loop.time()
        unread = transport.get_write_buffer_size()
        if unread or self._unread:
            self._note_unread(unread)

    def _note_unread(self, size: int) -> None:
        self._unread = size
        if self._unread_answers is not None:
            self._unread_answers.note(self, size)
        if size > self._limits.write_drop_size:
            self._requests.refused.note(UNREAD_ANSWERS)
            self.drop(f"{size} bytes were not read")


def _behind(pieces: Sequence[Buffer], start: int) -> Iterator[Buffer]:
    """Yield what pieces have behind so many bytes of all of them."""
    for piece in pieces:
        if start < len(piece):
            yield memoryview(piece)[start:] if start else piece
        start = max(start - len(piece), 0)
