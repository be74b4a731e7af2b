"""Property texts taken apart, by the rules of ``flintmq.format.properties``.

A text that is not UTF-8, has a name twice or very many pairs is odd: it counts as empty here,
and `decode_properties` is for it.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from flintmq.format.properties import decode_properties
from flintmq.kernels.compiled import (
    Bools,
    Bytes,
    Ints,
    Longs,
    as_bytes,
    kernel,
    load_byte,
    load_int,
    load_long,
    load_word,
    trailing_zeros,
)
from flintmq.kernels.texts import NULL, Pieces, are_equal, is_utf8
from flintmq.model import property_names

PAIRS_MAX: Final = 64
"""Each name is compared with those before it, which takes long for very many."""

SOUGHT: Final = (property_names.TAGS, property_names.KEYS, property_names.UNIQ_KEY)
"""The properties that have a column of their own."""

_NAME_END: Final = 1
_PAIR_END: Final = 2
_PAIR_SIZE_MIN: Final = 4
"""A name, a value and the separators behind them."""

_TAGS: Final = int.from_bytes(b"TAGS", "big")
_KEYS: Final = int.from_bytes(b"KEYS", "big")
_UNIQ_KEY: Final = int.from_bytes(b"UNIQ_KEY", "big")
assert [name.encode() for name in SOUGHT] == [b"TAGS", b"KEYS", b"UNIQ_KEY"]

_ONES: Final = np.uint64(0x0101010101010101)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)


class Pairs(NamedTuple):
    """All properties of all rows; those of row n are from ``offsets[n]`` to ``offsets[n + 1]``."""

    offsets: Ints
    names: Pieces
    values: Pieces


class PropertyTable(NamedTuple):
    """The properties of some records; ``pairs`` only if they were asked for."""

    sought: dict[str, Pieces]
    pairs: Pairs | None


def read_properties(data: Bytes, at: Longs, size: Ints, *, with_pairs: bool) -> PropertyTable:
    """Take property texts apart: find the sought ones, and all pairs if asked for."""
    count = len(at)
    sought_at = np.zeros((len(SOUGHT), count), np.int64)
    sought_size = np.full((len(SOUGHT), count), NULL, np.int32)
    is_odd = np.zeros(count, np.bool_)
    offsets = np.zeros(count + 1, np.int32)
    # Memory that is never written to is never taken.
    capacity = int(size.sum(dtype=np.int64)) // _PAIR_SIZE_MIN + count if with_pairs else 0
    places = np.empty((2, capacity), np.int64)
    sizes = np.empty((2, capacity), np.int32)
    _read(data, at, size, with_pairs, sought_at, sought_size, is_odd, offsets, places, sizes)
    total = int(offsets[-1])
    sought = {name: Pieces(sought_at[n], sought_size[n]) for n, name in enumerate(SOUGHT)}
    pairs = None
    if with_pairs:
        names = Pieces(places[0, :total], sizes[0, :total])
        pairs = Pairs(offsets, names, Pieces(places[1, :total], sizes[1, :total]))
    odd_rows = np.flatnonzero(is_odd)
    if not len(odd_rows):
        return PropertyTable(sought, pairs)
    texts = [data[at[row] : at[row] + size[row]].tobytes() for row in odd_rows]
    return _with_odd(sought, pairs, odd_rows, [decode_properties(text) for text in texts])


def _with_odd(
    sought: dict[str, Pieces],
    pairs: Pairs | None,
    rows: npt.NDArray[np.intp],
    maps: list[dict[str, str]],
) -> PropertyTable:
    """Return the table with the properties of odd rows, which have none yet."""
    for name, pieces in sought.items():
        values = [one[name].encode() if name in one else None for one in maps]
        sought[name] = pieces.replaced(rows, values)
    if pairs is None:
        return PropertyTable(sought, None)
    lengths = np.array([len(one) for one in maps], np.int32)
    where = np.repeat(pairs.offsets[rows], lengths)
    added = np.diff(pairs.offsets)
    added[rows] = lengths
    offsets = np.zeros_like(pairs.offsets)
    np.cumsum(added, out=offsets[1:])
    names = [name.encode() for one in maps for name in one]
    texts = [text.encode() for one in maps for text in one.values()]
    merged = Pairs(
        offsets, _inserted(pairs.names, where, names), _inserted(pairs.values, where, texts)
    )
    return PropertyTable(sought, merged)


def _inserted(pieces: Pieces, where: Ints, values: list[bytes]) -> Pieces:
    size = np.array([len(value) for value in values], np.int32)
    at = ~(np.cumsum(size, dtype=np.int64) - size)
    return Pieces(
        np.insert(pieces.at, where, at),
        np.insert(pieces.size, where, size),
        as_bytes(b"".join(values)),
    )


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
def _sought_number(data: Bytes, at: int, size: int) -> int:
    """Return the number of a sought name, -1 if it is another."""
    if size == 4:
        name = load_int(data, at)
        if name == _TAGS:
            return 0
        if name == _KEYS:
            return 1
    elif size == 8 and load_long(data, at) == _UNIQ_KEY:
        return 2
    return -1


@kernel
def _has_name(data: Bytes, places: Longs, sizes: Ints, first: int, last: int) -> bool:
    """Whether the name of the last pair is that of one before it."""
    size = sizes[last]
    for pair in range(first, last):
        if sizes[pair] == size and are_equal(data, places[pair], data, places[last], size):
            return True
    return False


@kernel
def _read(
    data: Bytes,
    at: Longs,
    size: Ints,
    with_pairs: bool,
    sought_at: Longs,
    sought_size: Ints,
    is_odd: Bools,
    offsets: Ints,
    places: Longs,
    sizes: Ints,
) -> None:
    total = 0
    for row in range(len(at)):
        first = total
        start = at[row]
        end = start + size[row]
        odd = not is_utf8(data, start, end)
        while start < end and not odd:
            pair_end = find_byte(data, start, end, _PAIR_END)
            name_end = find_byte(data, start, pair_end, _NAME_END)
            value_at = name_end + 1
            if start < name_end and value_at < pair_end:
                number = _sought_number(data, start, name_end - start)
                if number >= 0:
                    sought_at[number, row] = value_at
                    sought_size[number, row] = pair_end - value_at
                if with_pairs:
                    places[0, total] = start
                    sizes[0, total] = name_end - start
                    places[1, total] = value_at
                    sizes[1, total] = pair_end - value_at
                    odd = total - first >= PAIRS_MAX or _has_name(
                        data, places[0], sizes[0], first, total
                    )
                    total += 1
            start = pair_end + 1
        if odd:
            is_odd[row] = True
            total = first
            for number in range(len(sought_at)):
                sought_size[number, row] = NULL
        offsets[row + 1] = total
