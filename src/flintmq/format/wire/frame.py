"""Frames: how one command after the other travels over a connection.

All integers are big-endian:

    at  size  field        meaning
     0     4  frame_size   bytes that follow this field
     4     1  header_type  0 = JSON, 1 = ROCKETMQ (binary)
     5     3  header_size  bytes of the header, unsigned
     8     H  header       see flintmq.format.wire.command
   8+H     B  body         what is left of frame_size; none is the same as an empty one

Of the limit on frames RocketMQ counts the size field too.
"""

import math
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, NoReturn

from flintmq.format.buffer import Buffer
from flintmq.format.wire.partial_frame import PartialFrame
from flintmq.format.wire.remoting_errors import FrameError, LocalProtocolError

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of the largest frame, its size field included, unless a peer is set up otherwise."""

TLS_HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection; a frame begins with 0, since it is below 16 MiB."""

PREFIX_SIZE: Final = 8

LARGE_FRAME_SIZE: Final = 64 << 10
"""Bytes of a frame whose chunks are joined only when it is whole."""

_PREFIX: Final = struct.Struct(
    ">"
    "i"  # frame_size
    "I"  # header_type in the top byte, header_size below it
)
assert _PREFIX.size == PREFIX_SIZE
_SIZE: Final = struct.Struct(">i")  # frame_size alone
_TYPE_AND_SIZE_FIELD: Final = 4
_HEADER_SIZE_MAX: Final = 0xFFFFFF


class HeaderType(IntEnum):
    """How the header of a frame is written."""

    JSON = 0
    ROCKETMQ = 1


_HEADER_TYPES: Final = {int(member): member for member in HeaderType}


class Frame(NamedTuple):
    """One unit of a connection: a header in one of two notations, and a body."""

    header_type: HeaderType
    header: bytes
    body: bytes = b""


class LargeFrame(Frame):
    """A whole frame whose bytes are still those chunks in which it came; it has nothing of its own.

    To join 16 MiB takes many milliseconds, so whoever serves others meanwhile has a thread do it.
    """

    partial: PartialFrame

    @classmethod
    def of(cls, partial: PartialFrame) -> "LargeFrame":
        """Return the frame of a partial one that is whole now."""
        frame = cls(HeaderType.JSON, b"")
        frame.partial = partial
        return frame

    def joined(self, check: Callable[[Frame], object] | None = None) -> Frame:
        """Return the frame in one piece; once only.

        ``check`` gets it without its body first.  If it raises, the body is never joined: as one
        piece it could only be given back at once, with everybody waiting meanwhile.
        """
        head, body = self.partial.split(None if check is None else lambda head: check(_of(head)))
        return _of(head, body)


def _of(head: bytes, body: bytes = b"") -> Frame:
    """Return the frame whose bytes before the body are given."""
    return Frame(HeaderType(head[_SIZE.size]), head[PREFIX_SIZE:], body)


class FrameDecoder:
    """Turns received chunks into frames.  It performs no I/O and never waits.

    Feed it what the transport delivered, then take frames until there are none: what it holds
    is then less than one frame.  After a FrameError the stream has no known boundary left: close
    the connection; the decoder forgets what it held and only repeats the error.  Frames that came
    in chunks and have ``large_size`` bytes or more come as a LargeFrame.
    """

    def __init__(
        self, *, frame_size_max: int = FRAME_SIZE_MAX, large_size: int | None = None
    ) -> None:
        self._frame_size_max = frame_size_max
        self._large_size = math.inf if large_size is None else large_size
        self._buffer = bytearray()
        self._partial: PartialFrame | None = None
        """The large frame that is not whole yet, if `frames` has met one; nothing follows it."""
        self._failure: str | None = None

    @property
    def pending_size(self) -> int:
        """Bytes that were fed and not yet taken as frames."""
        return len(self._buffer) if self._partial is None else self._partial.size

    def take_pieces(self) -> list[bytes]:
        """Return the pieces of a large frame that is not whole; they are not held any more."""
        partial, self._partial = self._partial, None
        return [] if partial is None else partial.take()

    def feed(self, chunk: Buffer) -> None:
        """Add bytes received from the peer."""
        if self._failure is None:
            self._buffer += chunk

    def whole(self, chunk: bytes, *, pending_size_max: int) -> bytes | None:
        """Return a chunk with what was held before it, which is not held any more.

        None is for what has to go through `frames`: after an error, or where so much is held that
        it should not be moved again and again.
        """
        if self._failure is not None or self.pending_size > pending_size_max:
            return None
        if self._partial is not None:
            partial, self._partial = self._partial, None
            return partial.joined(chunk)
        if not self._buffer:
            return chunk
        joined = bytes(self._buffer) + chunk
        self._buffer.clear()
        return joined

    def frames(self, chunk: bytes) -> Iterator[Frame]:
        """Feed ``chunk`` and yield all frames that are whole now.

        It does in one go what `feed` and `next_frame` do, without moving the bytes of a chunk
        that begins where a frame does, nor those of a large frame before it is whole.  Use either
        it or them.
        """
        if self._partial is not None:
            partial, missing_size = self._partial, self._partial.missing_size
            partial.add(chunk[:missing_size])
            if not partial.is_whole:
                return
            self._partial = None
            frame = LargeFrame.of(partial)
            yield frame if partial.size >= self._large_size else frame.joined()
            chunk = chunk[missing_size:]
        if self._buffer or self._failure is not None:
            self.feed(chunk)
            is_whole = self._has_frame()
            if not (is_whole or self._begins_large(self._buffer)):
                self._expect_more()
                return
            chunk = bytes(self._buffer)
            self._buffer.clear()
            if not is_whole:
                self._begin_partial(chunk)
                return
        at, size = 0, len(chunk)
        while size - at >= PREFIX_SIZE:
            frame_size, type_and_size = _PREFIX.unpack_from(chunk, at)
            header_size = type_and_size & _HEADER_SIZE_MAX
            header_type = _HEADER_TYPES.get(type_and_size >> 24)
            end = at + _SIZE.size + frame_size
            if (
                header_type is None
                or header_size + _TYPE_AND_SIZE_FIELD > frame_size
                or frame_size > self._frame_size_max - _SIZE.size
                or end > size
            ):
                break
            body_start = at + PREFIX_SIZE + header_size
            # NamedTuple's own constructor takes twice the time of the tuple's.
            yield tuple.__new__(
                Frame, (header_type, chunk[at + PREFIX_SIZE : body_start], chunk[body_start:end])
            )
            at = end
        if at < size:
            rest = chunk[at:]
            if self._begins_large(rest):
                self._begin_partial(rest)
                return
            self._buffer += rest
            self._expect_more()

    def _expect_more(self) -> None:
        """Find out whether what is held, which is no whole frame, may be the start of one."""
        frame = self.next_frame()
        assert frame is None

    def _begins_large(self, start: Buffer) -> bool:
        """Whether this is the start of a large frame, whose sizes are possible."""
        if len(start) < PREFIX_SIZE:
            return False
        frame_size, type_and_size = _PREFIX.unpack_from(start)
        return (
            LARGE_FRAME_SIZE <= frame_size <= self._frame_size_max - _SIZE.size
            and type_and_size >> 24 in _HEADER_TYPES
            and (type_and_size & _HEADER_SIZE_MAX) + _TYPE_AND_SIZE_FIELD <= frame_size
        )

    def _begin_partial(self, start: bytes) -> None:
        frame_size, type_and_size = _PREFIX.unpack_from(start)
        self._partial = PartialFrame(
            frame_size=_SIZE.size + frame_size,
            body_at=PREFIX_SIZE + (type_and_size & _HEADER_SIZE_MAX),
        )
        self._partial.add(start)

    def _has_frame(self) -> bool:
        if self._failure is not None:
            raise FrameError(self._failure)
        if len(self._buffer) < _SIZE.size:
            return False
        (frame_size,) = _SIZE.unpack_from(self._buffer)
        # An impossible size is as good as a whole frame: there is nothing to wait for.
        is_possible = _TYPE_AND_SIZE_FIELD <= frame_size <= self._frame_size_max - _SIZE.size
        return not is_possible or len(self._buffer) >= _SIZE.size + frame_size

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, or None while more bytes are needed."""
        if self._failure is not None:
            raise FrameError(self._failure)
        pending_size = len(self._buffer)
        if pending_size < _SIZE.size:
            return None
        # The size is checked as soon as it is there: a peer of another protocol is found out
        # by its first four bytes instead of being waited for.
        (frame_size,) = _SIZE.unpack_from(self._buffer)
        if not _TYPE_AND_SIZE_FIELD <= frame_size <= self._frame_size_max - _SIZE.size:
            if self._buffer[0] == TLS_HANDSHAKE:
                self._fail("a TLS handshake, and there is no TLS here")
            self._fail(f"frame of {frame_size} bytes, the limit is {self._frame_size_max}")
        if pending_size < PREFIX_SIZE:
            return None
        _, type_and_size = _PREFIX.unpack_from(self._buffer)
        header_size = type_and_size & _HEADER_SIZE_MAX
        header_type = _HEADER_TYPES.get(type_and_size >> 24)
        if header_type is None:
            self._fail(f"header type {type_and_size >> 24}")
        if header_size > frame_size - _TYPE_AND_SIZE_FIELD:
            self._fail(f"header of {header_size} bytes in a frame of {frame_size}")
        if pending_size < _SIZE.size + frame_size:
            return None
        return self._cut(header_type, header_size, _SIZE.size + frame_size)

    def _cut(self, header_type: HeaderType, header_size: int, end: int) -> Frame:
        body_start = PREFIX_SIZE + header_size
        # No view may be left at the cut: a bytearray with views has a fixed size.
        with memoryview(self._buffer) as held:
            header = held[PREFIX_SIZE:body_start].tobytes()
            body = held[body_start:end].tobytes()
        del self._buffer[:end]
        return Frame(header_type, header, body)

    def _fail(self, reason: str) -> NoReturn:
        self._failure = reason
        self._buffer = bytearray()
        raise FrameError(reason)


def encode_prefix(
    header_type: HeaderType,
    *,
    header_size: int,
    body_size: int,
    frame_size_max: int = FRAME_SIZE_MAX,
) -> bytes:
    """Return the PREFIX_SIZE bytes before a header; a frame over the limit: LocalProtocolError."""
    frame_size = _TYPE_AND_SIZE_FIELD + header_size + body_size
    if header_size > _HEADER_SIZE_MAX:
        raise LocalProtocolError(f"header of {header_size} bytes, the limit is {_HEADER_SIZE_MAX}")
    if frame_size + _SIZE.size > frame_size_max:
        raise LocalProtocolError(f"frame of {frame_size} bytes, the limit is {frame_size_max}")
    return _PREFIX.pack(frame_size, header_type << 24 | header_size)


def encode_json_prefix(header_size: int, body_size: int, frame_size_max: int) -> bytes:
    """Return what `encode_prefix` does for a JSON header, in a third of the time."""
    frame_size = _TYPE_AND_SIZE_FIELD + header_size + body_size
    if header_size > _HEADER_SIZE_MAX or frame_size + _SIZE.size > frame_size_max:
        return encode_prefix(
            HeaderType.JSON,
            header_size=header_size,
            body_size=body_size,
            frame_size_max=frame_size_max,
        )
    return _PREFIX.pack(frame_size, header_size)  # The type is zero.


def encode_frame(frame: Frame, *, frame_size_max: int = FRAME_SIZE_MAX) -> bytes:
    """Return the bytes of ``frame``; one that is over the limit raises LocalProtocolError."""
    prefix = encode_prefix(
        frame.header_type,
        header_size=len(frame.header),
        body_size=len(frame.body),
        frame_size_max=frame_size_max,
    )
    return b"".join((prefix, frame.header, frame.body))
