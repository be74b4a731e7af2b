"""Finding the next record behind damage, and what is not zero behind the end of a log."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from flintmq.format.record import BLANK_MAGIC, BLANK_SIZE, MESSAGE_MAGIC, RECORD_SIZE_MIN

CHUNK_SIZE: Final = 1 << 20

_MAGIC_AT: Final = 4
_PHYSICAL_OFFSET: Final = struct.Struct(">q")
_PHYSICAL_OFFSET_AT: Final = 28
_SIZE: Final = struct.Struct(">i")
_MAGICS: Final = tuple(struct.pack(">i", magic) for magic in (MESSAGE_MAGIC, BLANK_MAGIC))

Ranges = Iterable[tuple[int, int]]
"""Where the bytes of a file may differ from zero; the rest are holes."""


def find_record(view: memoryview, ranges: Ranges, limit: int, base: int) -> int | None:
    """Return the first position in ``ranges`` where a record or blank starts, None without any.

    ``base`` is the physical offset of ``view``.  A record starts where the magic code is in its
    place and the record claims to stand just there; a blank where it reaches to ``limit``.
    """
    for begin, end in ranges:
        for at in range(begin, min(end, limit), CHUNK_SIZE):
            # The overlap finds what lies across two chunks.
            chunk = bytes(view[at : min(at + CHUNK_SIZE + _MAGIC_AT + 3, limit)])
            for position in sorted(at + hit - _MAGIC_AT for hit in _hits(chunk)):
                if position >= begin and _starts_here(view, position, limit, base):
                    return position
    return None


def _hits(chunk: bytes) -> Iterator[int]:
    for magic in _MAGICS:
        hit = chunk.find(magic)
        while hit >= 0:
            yield hit
            hit = chunk.find(magic, hit + 1)


def _starts_here(view: memoryview, position: int, limit: int, base: int) -> bool:
    left = limit - position
    magic = bytes(view[position + _MAGIC_AT : position + _MAGIC_AT + 4])
    if magic == _MAGICS[1]:
        return left >= BLANK_SIZE and _SIZE.unpack_from(view, position) == (left,)
    if left < RECORD_SIZE_MIN:
        return False
    (claimed,) = _PHYSICAL_OFFSET.unpack_from(view, position + _PHYSICAL_OFFSET_AT)
    return bool(claimed == base + position)


def written_bounds(view: memoryview, ranges: Ranges, limit: int) -> tuple[int, int] | None:
    """Return where the first byte in ``ranges`` that is not zero stands, and the end of the last.

    None when all are zero.
    """
    first: int | None = None
    last = 0
    zeros = bytes(CHUNK_SIZE)
    for begin, end in ranges:
        for at in range(begin, min(end, limit), CHUNK_SIZE):
            chunk = bytes(view[at : min(at + CHUNK_SIZE, end, limit)])
            if chunk == zeros or not chunk.strip(b"\0"):
                continue
            if first is None:
                first = at + len(chunk) - len(chunk.lstrip(b"\0"))
            last = at + len(chunk.rstrip(b"\0"))
    return None if first is None else (first, last)
