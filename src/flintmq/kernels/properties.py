"""Properties texts taken apart, by the rules of ``flintmq.format.properties``.

A text that is not UTF-8, has a name twice or very many pairs is special: it counts as
empty here, and `decode_properties` is for it.
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
)
from flintmq.kernels.dispatch_fields import NAME_END, PAIR_END, find_dispatched
from flintmq.kernels.texts import NULL, Pieces, are_equal, find_byte, is_utf8
from flintmq.model import property_names

PAIRS_MAX: Final = 64
"""Each name is compared with those before it, which takes long for very many."""

_COLUMNS: Final = (property_names.TAGS, property_names.KEYS, property_names.UNIQ_KEY)
"""The dispatched properties have a column of their own."""

_PAIR_SIZE_MIN: Final = 4
"""A name, a value and the separators behind them."""


class Pairs(NamedTuple):
    """All properties of all rows; those of row n are from ``offsets[n]`` to ``offsets[n + 1]``."""

    offsets: Ints
    names: Pieces
    values: Pieces


class PropertyTable(NamedTuple):
    """The properties of some records; ``pairs`` only if they were asked for."""

    dispatched: dict[str, Pieces]
    pairs: Pairs | None


def read_properties(data: Bytes, at: Longs, size: Ints, *, with_pairs: bool) -> PropertyTable:
    """Take properties texts apart: find the dispatched ones, and all pairs if asked for."""
    count = len(at)
    value_at = np.zeros((len(_COLUMNS), count), np.int64)
    value_size = np.full((len(_COLUMNS), count), NULL, np.int32)
    is_special = np.zeros(count, np.bool_)
    offsets = np.zeros(count + 1, np.int32)
    # Memory that is never written to is never taken.
    capacity = int(size.sum(dtype=np.int64)) // _PAIR_SIZE_MIN + count if with_pairs else 0
    starts = np.empty((2, capacity), np.int64)
    sizes = np.empty((2, capacity), np.int32)
    _read(data, at, size, with_pairs, value_at, value_size, is_special, offsets, starts, sizes)
    total = int(offsets[-1])
    dispatched = {name: Pieces(value_at[n], value_size[n]) for n, name in enumerate(_COLUMNS)}
    pairs = None
    if with_pairs:
        names = Pieces(starts[0, :total], sizes[0, :total])
        pairs = Pairs(offsets, names, Pieces(starts[1, :total], sizes[1, :total]))
    special_rows = np.flatnonzero(is_special)
    if not len(special_rows):
        return PropertyTable(dispatched, pairs)
    texts = [data[at[row] : at[row] + size[row]].tobytes() for row in special_rows]
    return _with_special(
        dispatched, pairs, special_rows, [decode_properties(text) for text in texts]
    )


def _with_special(
    dispatched: dict[str, Pieces],
    pairs: Pairs | None,
    rows: npt.NDArray[np.intp],
    maps: list[dict[str, str]],
) -> PropertyTable:
    """Return the table with the properties of special rows, which have none yet."""
    for name, pieces in dispatched.items():
        values = [one[name].encode() if name in one else None for one in maps]
        dispatched[name] = pieces.replaced(rows, values)
    if pairs is None:
        return PropertyTable(dispatched, None)
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
    return PropertyTable(dispatched, merged)


def _inserted(pieces: Pieces, where: Ints, values: list[bytes]) -> Pieces:
    size = np.array([len(value) for value in values], np.int32)
    at = ~(np.cumsum(size, dtype=np.int64) - size)
    return Pieces(
        np.insert(pieces.at, where, at),
        np.insert(pieces.size, where, size),
        as_bytes(b"".join(values)),
    )


@kernel
def has_name(data: Bytes, starts: Longs, sizes: Ints, first: int, last: int) -> bool:
    """Whether the name of the last pair is that of one before it."""
    size = sizes[last]
    for pair in range(first, last):
        if sizes[pair] == size and are_equal(data, starts[pair], data, starts[last], size):
            return True
    return False


@kernel
def _read(
    data: Bytes,
    at: Longs,
    size: Ints,
    with_pairs: bool,
    value_at: Longs,
    value_size: Ints,
    is_special: Bools,
    offsets: Ints,
    starts: Longs,
    sizes: Ints,
) -> None:
    total = 0
    for row in range(len(at)):
        first = total
        start = at[row]
        end = start + size[row]
        special = not is_utf8(data, start, end)
        while with_pairs and start < end and not special:
            pair_end = find_byte(data, start, end, PAIR_END)
            name_end = find_byte(data, start, pair_end, NAME_END)
            if start < name_end and name_end + 1 < pair_end:
                starts[0, total] = start
                sizes[0, total] = name_end - start
                starts[1, total] = name_end + 1
                sizes[1, total] = pair_end - name_end - 1
                special = total - first >= PAIRS_MAX or has_name(
                    data, starts[0], sizes[0], first, total
                )
                total += 1
            start = pair_end + 1
        if special:
            is_special[row] = True
            total = first
        else:
            values = find_dispatched(data, at[row], end)
            _note_value(value_at, value_size, 0, row, values.tags_at, values.tags_end)
            _note_value(value_at, value_size, 1, row, values.keys_at, values.keys_end)
            _note_value(value_at, value_size, 2, row, values.unique_at, values.unique_end)
        offsets[row + 1] = total


@kernel
def _note_value(
    value_at: Longs, value_size: Ints, column: int, row: int, start: int, end: int
) -> None:
    """Note where a value stands, if there is one: columns are in the order of `_COLUMNS`."""
    if end > start:
        value_at[column, row] = start
        value_size[column, row] = end - start
