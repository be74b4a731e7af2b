"""The beginning of a large frame, collected read by read until the frame is whole.

A buffer that grows with every read is moved again and again, 16 MiB of it.  So the chunks of a
large frame are kept as they came, and joined once, when the last of them is there.  Nothing is
reserved for what a peer has only announced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_SIZE_MIN: Final = 16 << 10
"""Bytes of a chunk that is kept as it came: an object of its own costs little beside them."""
TAIL_SIZE_MAX: Final = 64 << 10
"""Bytes of smaller chunks that are gathered, which takes a copy, before they are one piece."""


class PartialFrame:
    """Collects the chunks of one frame whose whole size is known.

    A byte of a frame is copied at most twice: into the tail if it came with a small chunk, and into
    the header or the body.
    """

    def __init__(self, *, frame_size: int, body_at: int) -> None:
        self._frame_size = frame_size
        """Bytes of the whole frame, its size field included."""
        self._body_at = body_at
        self._pieces: list[bytes] = []
        self._tail = bytearray()
        """Small chunks that came after the last piece."""
        self.size = 0
        """Bytes that are there."""

    @property
    def is_whole(self) -> bool:
        """Whether the last byte is there."""
        return self.size == self._frame_size

    @property
    def missing_size(self) -> int:
        """Bytes that are still to come."""
        return self._frame_size - self.size

    @property
    def piece_count(self) -> int:
        """Objects that hold what is there."""
        return len(self._pieces) + bool(self._tail)

    def add(self, chunk: bytes) -> None:
        """Take in the next bytes of the frame."""
        assert len(chunk) <= self.missing_size, "what follows a frame is not its own"
        self.size += len(chunk)
        if len(chunk) >= PIECE_SIZE_MIN:
            self._end_tail()
            self._pieces.append(chunk)
            return
        self._tail += chunk
        if len(self._tail) >= TAIL_SIZE_MAX:
            self._end_tail()

    def _end_tail(self) -> None:
        if self._tail:
            self._pieces.append(bytes(self._tail))
            self._tail = bytearray()

    def split(self, check: Callable[[bytes], object] | None = None) -> tuple[bytes, bytes]:
        """Return the whole frame up to its body, and the body; nothing is held then.

        ``check`` may raise because of what comes before the body, which is not joined then.
        """
        assert self.is_whole
        pieces = self.take()
        head: list[bytes] = []
        missing, number = self._body_at, 0
        for number, piece in enumerate(pieces):
            head.append(piece[:missing])
            missing -= len(head[-1])
            if not missing:
                pieces[number] = piece[len(head[-1]) :]
                break
        del pieces[:number]
        start = b"".join(head)
        try:
            if check is not None:
                check(start)
            return start, b"".join(pieces)
        finally:
            # To give back so much memory takes long too, and in between others may have their turn.
            while pieces:
                pieces.pop()

    def joined(self, chunk: bytes) -> bytes:
        """Return what is there and a chunk behind it; nothing is held then."""
        return b"".join([*self.take(), chunk])

    def take(self) -> list[bytes]:
        """Return what is there, piece by piece; nothing is held then."""
        self._end_tail()
        pieces, self._pieces = self._pieces, []
        return pieces
