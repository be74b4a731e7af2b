"""Answers to pulls whose messages are copied by machine code, where numba is installed.

There is one buffer: the messages of a pull are copied into it, and what stands before them in the
frame is written before them (`flintmq.broker.pulling.pulled_answer` does the same in Python).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from flintmq.broker.pulling.pulled_answer import binary_pieces, json_pieces
from flintmq.format.wire.frame import PREFIX_SIZE
from flintmq.kernels.answers import (
    SLOT_EXT_SIZE,
    SLOT_NOTHING,
    SLOT_OPAQUE,
    SLOT_RAW_OPAQUE,
    SLOT_SIZED,
)
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.pulled_heads import (
    NUMBER_SIZE_MAX,
    SIZE_SIZE,
    SLOT_BROKER,
    SLOT_END,
    SLOT_LEAST,
    SLOT_NEXT,
    put_pulled_head,
)
from flintmq.store.results import CopiedMessages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.kernels.compiled import Bytes
    from flintmq.kernels.group_buffers import Table

COPIED_SIZE_MAX: Final = 256 << 10
"""Bytes of the messages of one pull that are copied: as many as it brings, unless that is changed.

Where queues are filled side by side, the messages of one lie apart from each other.  Views of them
take as long to make as a copy, and the system reads the copy from the processor's caches.
"""

_NUMBERS: Final = (SLOT_BROKER, SLOT_NEXT, SLOT_LEAST, SLOT_END)
_JSON_SLOTS: Final = (*_NUMBERS, SLOT_OPAQUE, SLOT_NOTHING)
_BINARY_SLOTS: Final = (
    SLOT_RAW_OPAQUE,
    SLOT_EXT_SIZE,
    *(SLOT_SIZED | slot for slot in _NUMBERS),
    SLOT_NOTHING,
)


class CopiedAnswers:
    """The buffer in which answers to pulls that found messages are made; loaded and ready."""

    def __init__(self) -> None:
        self._heads = _table(json_pieces(), _JSON_SLOTS), _table(binary_pieces(), _BINARY_SLOTS)
        self._body_at = max(
            PREFIX_SIZE + len(data) + len(table) * (NUMBER_SIZE_MAX + SIZE_SIZE)
            for table, data in self._heads
        )
        buffer = bytearray(self._body_at + COPIED_SIZE_MAX)
        self._view, self._buffer = memoryview(buffer), np.frombuffer(buffer, np.uint8)
        self.room = self._buffer[self._body_at :]
        """Where the messages of a pull are copied to."""
        self.frame_of(CopiedMessages(0, 0, 0, 0, 0), 0, 0, is_binary=False)

    def frame_of(
        self, copied: CopiedMessages, opaque: int, broker_id: int, *, is_binary: bool
    ) -> memoryview:
        """Return the frame of an answer with the messages that were copied last.

        It is good until others are copied.
        """
        _, size, next_offset, least, end = copied
        body_at, (table, data) = self._body_at, self._heads[is_binary]
        numbers = broker_id, next_offset, least, end, opaque
        start = put_pulled_head(self._buffer, body_at, size, table, data, is_binary, *numbers)
        return self._view[start : body_at + size]


def _table(pieces: Sequence[bytes], slots: Sequence[int]) -> tuple[Table, Bytes]:
    """Return pieces and what follows each of them as kernels have them."""
    rows, data = [], b""
    for piece, slot in zip(pieces, slots, strict=True):
        rows.append((len(data), len(piece), slot))
        data += piece
    return np.array(rows, np.int64), as_bytes(data)
