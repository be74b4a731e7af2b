"""Known pulls recognised by machine code, where numba is installed.

A pull whose header was seen before is cut from what a socket brought, and its numbers are taken
out, without a Python object for its frame, its header or its fields.  Whatever is not recognised
goes the ordinary way, and is learned there.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np

from flintmq.broker.pulling.copied_answers import CopiedAnswers
from flintmq.broker.sending.known_headers import HeaderPiece, SlotNames, header_pieces
from flintmq.format.wire.frame import FRAME_SIZE_MAX
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.group_buffers import SEND_COLUMN_COUNT
from flintmq.kernels.pull_walk import (
    NO_PULL,
    PULL_AT,
    PULL_IS_BINARY,
    PULL_NUMBER,
    PULL_OPAQUE,
    KnownPullHeaders,
    walk_pulls,
)
from flintmq.kernels.request_walk import (
    PULL_COMMIT_OFFSET,
    PULL_QUEUE_OFFSET,
    SLOT_COMMIT_OFFSET,
    SLOT_QUEUE_ID,
    SLOT_QUEUE_OFFSET,
    WALKED_QUEUES_MAX,
)

if TYPE_CHECKING:
    from flintmq.broker.pulling.known_pull import KnownPull
    from flintmq.format.wire.frame import HeaderType

WALKED_PULLS_MAX: Final = 256
"""Pulls of one walk."""
KNOWN_HEADERS_MAX: Final = 64
"""Kinds of headers that are compared with each that comes; clients can make up many."""
KNOWN_PULLS_MAX: Final = 1024

_SLOTS: Final = {
    b"queueId": SLOT_QUEUE_ID,
    b"queueOffset": SLOT_QUEUE_OFFSET,
    b"commitOffset": SLOT_COMMIT_OFFSET,
}
PULL_SLOTS: Final = SlotNames(_SLOTS, frozenset(_SLOTS.values()))
"""In what pulls of one kind differ."""

_PICKED: Final = (
    PULL_NUMBER,
    PULL_QUEUE_OFFSET,
    PULL_AT,
    PULL_COMMIT_OFFSET,
    PULL_OPAQUE,
    PULL_IS_BINARY,
)
"""The columns of a row that make a `WalkedPull`, in their order."""
_ROW: Final = struct.Struct(
    "".join("q" if column in _PICKED else "8x" for column in range(SEND_COLUMN_COUNT))
)
assert list(_PICKED) == sorted(_PICKED), "a row is picked from its beginning on"

WalkedPull: TypeAlias = tuple[int, int, int, int, int, int]
"""A pull that a walk has found.

It is the number of the known pull, the offset that is asked for, how many bytes of the read stand
before it, the offset to commit, the opaque number, and whether the header is binary.
"""


class CompiledPulls:
    """Known headers of pulls, and the kernel that recognises them; loaded and ready."""

    def __init__(self) -> None:
        self._headers: dict[tuple[HeaderPiece, ...], int] = {}
        self.pulls: list[KnownPull] = []
        """By their numbers."""
        self._pull_of: dict[tuple[int, int], int] = {}
        """The number of the pull of a known header and queue."""
        self._has_changed = True
        self.answers = CopiedAnswers()
        self._table = np.empty((WALKED_PULLS_MAX, SEND_COLUMN_COUNT), np.int64)
        self._rows = self._table.data.cast("B")
        self._known = self._tables()
        # Loaded, or compiled where it never was.
        self.walk(b"\0" * 16)

    @property
    def has_room(self) -> bool:
        """Whether more can be learned."""
        return len(self._headers) < KNOWN_HEADERS_MAX and len(self.pulls) < KNOWN_PULLS_MAX

    @property
    def is_empty(self) -> bool:
        """Whether nothing was learned, so that no pull can be recognised."""
        return not self.pulls

    def forget(self) -> None:
        """Forget all headers: what their admission depends on has changed."""
        self._headers.clear()
        self.pulls.clear()
        self._pull_of.clear()
        self._has_changed = True

    def learn(self, header_type: HeaderType, header: bytes, known: KnownPull) -> None:
        """Learn from a pull that was admitted what others of its kind look like."""
        if not 0 <= known.queue_id < WALKED_QUEUES_MAX or not self.has_room:
            return
        pieces = header_pieces(header_type, header, PULL_SLOTS)
        if pieces is None:
            return
        # The pieces of the two notations are never the same: one begins with a brace.
        number = self._headers.setdefault(pieces, len(self._headers))
        place = number, known.queue_id
        if place not in self._pull_of or self.pulls[self._pull_of[place]] is not known:
            self._pull_of[place] = len(self.pulls)
            self.pulls.append(known)
            self._has_changed = True

    def _tables(self) -> KnownPullHeaders:
        """Return what was learned as kernels have it."""
        self._has_changed = False
        data = bytearray()
        headers: list[tuple[int, int, int]] = []
        pieces: list[tuple[int, int, int]] = []
        for pieces_of in self._headers:
            is_binary = not pieces_of[0].data.startswith(b"{")
            headers.append((is_binary, len(pieces), len(pieces) + len(pieces_of)))
            for piece in pieces_of:
                pieces.append((len(data), len(piece.data), piece.slot))
                data += piece.data
        numbers = np.full((len(headers), WALKED_QUEUES_MAX), NO_PULL, np.int64)
        for (header, queue_id), number in self._pull_of.items():
            numbers[header, queue_id] = number
        known = KnownPullHeaders(
            np.array(headers, np.int64).reshape((-1, 3)),
            np.array(pieces, np.int64).reshape((-1, 3)),
            as_bytes(bytes(data)),
            numbers,
        )
        # Machine code looks at a plain tuple in half the time.
        return cast(KnownPullHeaders, tuple(known))

    def walk(self, data: bytes) -> tuple[list[WalkedPull], int]:
        """Cut known pulls from the beginning of a read; return them, and where they end."""
        if self._has_changed:
            self._known = self._tables()
        count, end = walk_pulls(
            np.frombuffer(data, np.uint8), self._known, FRAME_SIZE_MAX, self._table
        )
        return [_ROW.unpack_from(self._rows, row * _ROW.size) for row in range(count)], end
