"""Pieces of bytes that are scattered over a file: checked, compared, copied together."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from flintmq.kernels.compiled import (
    Bools,
    Bytes,
    Ints,
    Longs,
    as_bytes,
    copy_bytes,
    kernel,
    load_byte,
    load_word,
    trailing_zeros,
)

NULL: Final = -1
"""The size of a piece that is not there."""

_NO_BYTES: Final = as_bytes(b"")
_FNV_START: Final = np.uint64(0xCBF29CE484222325)
_FNV_PRIME: Final = np.uint64(0x100000001B3)
_ONES: Final = np.uint64(0x0101010101010101)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)


class Pieces(NamedTuple):
    """A piece of bytes for each row: where it starts and how long it is.

    A negative start is the complement of an index into ``side``, which holds the pieces that
    are not in the file as they are.  A negative size means that there is none.
    """

    at: Longs
    size: Ints
    side: Bytes = _NO_BYTES

    def replaced(self, rows: npt.NDArray[np.intp], values: list[bytes | None]) -> "Pieces":
        """Return the pieces with others in some rows; nothing may be at the side yet."""
        assert len(self.side) == 0
        at, size = self.at.copy(), self.size.copy()
        sizes = np.array([NULL if value is None else len(value) for value in values], np.int32)
        ends = np.cumsum(np.maximum(sizes, 0), dtype=np.int64)
        at[rows] = ~(ends - np.maximum(sizes, 0))
        size[rows] = sizes
        return Pieces(at, size, as_bytes(b"".join(value for value in values if value)))


class Gathered(NamedTuple):
    """Pieces one behind the other: n + 1 offsets, the bytes, and which of them are there.

    ``valid`` is None if all are.
    """

    offsets: Ints
    data: Bytes
    valid: Bools | None


def gather(data: Bytes, pieces: Pieces) -> Gathered:
    """Copy pieces together; they must have less than 2^31 bytes in all."""
    is_there = pieces.size >= 0
    valid = None if is_there.all() else is_there
    size = pieces.size if valid is None else np.maximum(pieces.size, 0)
    offsets = np.zeros(len(size) + 1, np.int32)
    total = int(size.sum(dtype=np.int64))
    assert total < 1 << 31, total
    np.cumsum(size, out=offsets[1:])
    gathered = np.empty(total, np.uint8)
    _gather(data, pieces.side, pieces.at, offsets, gathered)
    return Gathered(offsets, gathered, valid)


@kernel
def _gather(data: Bytes, side: Bytes, at: Longs, offsets: Ints, gathered: Bytes) -> None:
    for row in range(len(at)):
        start = at[row]
        to = offsets[row]
        size = offsets[row + 1] - to
        if start >= 0:
            copy_bytes(gathered, to, data, start, size)
        else:
            copy_bytes(gathered, to, side, ~start, size)


@kernel
def _zero_bytes(word: np.uint64) -> np.uint64:
    """Return a word whose lowest set bit marks the first byte of ``word`` that is zero."""
    return (word - _ONES) & ~word & _HIGH_BITS


@kernel
def find_byte(data: Bytes, start: int, end: int, byte: int) -> int:
    """Return the first index from ``start`` on with this byte, or ``end``."""
    at = start
    pattern = np.uint64(byte) * _ONES
    while end - at >= 8:
        found = _zero_bytes(load_word(data, at) ^ pattern)
        if found:
            return at + (trailing_zeros(found) >> 3)
        at += 8
    while at < end and load_byte(data, at) != byte:
        at += 1
    return at


@kernel
def is_ascii(data: Bytes, start: int, end: int) -> bool:
    """Whether no byte has its highest bit set."""
    at = start
    while end - at >= 8:
        if load_word(data, at) & _HIGH_BITS:
            return False
        at += 8
    bits = 0
    while at < end:
        bits |= load_byte(data, at)
        at += 1
    return bits < 0x80


@kernel
def is_utf8(data: Bytes, start: int, end: int) -> bool:
    """Whether bytes are UTF-8 as Python decodes it: shortest forms, no surrogates."""
    if is_ascii(data, start, end):
        return True
    at = start
    while at < end:
        first = load_byte(data, at)
        if first < 0x80:
            at += 1
            continue
        # The second byte has bounds of its own, so that there is one form for each character.
        low, high = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            size = 2
        elif 0xE0 <= first <= 0xEF:
            size = 3
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            size = 4
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        else:
            return False
        if end - at < size or not low <= load_byte(data, at + 1) <= high:
            return False
        for further in range(at + 2, at + size):
            if load_byte(data, further) & 0xC0 != 0x80:
                return False
        at += size
    return True


@kernel
def first_not_utf8(data: Bytes, at: Longs, size: Ints) -> int:
    """Return the first row whose piece is not UTF-8; the number of rows if all are."""
    for row in range(len(at)):
        if not is_utf8(data, at[row], at[row] + size[row]):
            return row
    return len(at)


@kernel
def are_equal(data: Bytes, at: int, others: Bytes, other_at: int, size: int) -> bool:
    """Whether two pieces of one size have the same bytes."""
    done = 0
    while size - done >= 8:
        if load_word(data, at + done) != load_word(others, other_at + done):
            return False
        done += 8
    while done < size:
        if load_byte(data, at + done) != load_byte(others, other_at + done):
            return False
        done += 1
    return True


def is_one_of(data: Bytes, at: Longs, size: Ints, wanted: frozenset[bytes]) -> Bools:
    """Return for each row whether its piece is among ``wanted``."""
    values = sorted(wanted)
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    found = np.zeros(len(at), np.bool_)
    _find(data, at, size, as_bytes(b"".join(values)), ends, found)
    return found


@kernel
def _find(data: Bytes, at: Longs, size: Ints, values: Bytes, ends: Longs, found: Bools) -> None:
    for row in range(len(at)):
        # Neighbours are often alike, so the answer for the row before is tried first.
        if (
            row
            and size[row] == size[row - 1]
            and are_equal(data, at[row], data, at[row - 1], size[row])
        ):
            found[row] = found[row - 1]
            continue
        for number in range(len(ends) - 1):
            start = ends[number]
            if ends[number + 1] - start == size[row] and are_equal(
                data, at[row], values, start, size[row]
            ):
                found[row] = True
                break


@kernel
def find_differing(
    data: Bytes, at: Longs, size: Longs, others: Bytes, others_at: Longs, found: Bools
) -> None:
    """Note for each row whether its piece is another than the one in ``others``."""
    for row in range(len(at)):
        start = others_at[row]
        found[row] = others_at[row + 1] - start != size[row] or not are_equal(
            data, at[row], others, start, size[row]
        )


@kernel
def fnv_hashes(data: Bytes, at: Longs, size: Longs, hashes: npt.NDArray[np.uint64]) -> None:
    """Put down the FNV-1a hash of 64 bits of each piece."""
    for row in range(len(at)):
        value = _FNV_START
        for index in range(at[row], at[row] + size[row]):
            value = (value ^ np.uint64(load_byte(data, index))) * _FNV_PRIME
        hashes[row] = value
