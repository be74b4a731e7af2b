"""What the views get of a message: its tags code and its index keys, in machine code.

This is the rule of ``flintmq.format.stored.dispatch_fields``.  It knows ASCII text only; tags or
keys with other text are *special* here, and so are delayed messages: Python is asked for them.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from flintmq.format.stored.dispatch_fields import KEYS, TAGS, UNIQ_KEY
from flintmq.kernels.compiled import (
    Bytes,
    Ints,
    Longs,
    inlined,
    kernel,
    load_byte,
    load_int,
    load_long,
    load_word,
)
from flintmq.kernels.texts import are_equal, find_byte
from flintmq.model import property_names

Flags = npt.NDArray[np.uint8]

NAME_END: Final = 1
PAIR_END: Final = 2
"""What ends a name, and what ends a pair of a name and a value."""

IS_SPECIAL: Final = 1
"""Tags code and keys of the record are to be found in Python."""

IS_MULTI: Final = 2
"""The record has the property of messages that enter several queues."""

# The dispatched names as big-endian numbers.
_TAGS: Final = int.from_bytes(TAGS)
_KEYS: Final = int.from_bytes(KEYS)
_UNIQ_KEY: Final = int.from_bytes(UNIQ_KEY)
_SHORT_NAME_SIZE: Final = 4
_LONG_NAME_SIZE: Final = 8
assert len(TAGS) == len(KEYS) == _SHORT_NAME_SIZE
assert len(UNIQ_KEY) == _LONG_NAME_SIZE

_MULTI_DISPATCH: Final = np.frombuffer(
    property_names.INNER_MULTI_DISPATCH.encode() + bytes([NAME_END]), np.uint8
)
_SPACE: Final = 32
_ASCII_END: Final = 128
_MASK: Final = 0xFFFFFFFF

# For the hash of eight letters: the powers of its factor, and every other byte, pair and four.
_WORD_SIZE: Final = 8
_POWER_1: Final = np.uint64(31)
_POWER_2: Final = np.uint64(31**2)
_POWER_4: Final = np.uint64(31**4)
_POWER_8: Final = 31**8 & _MASK
_BYTES: Final = np.uint64(0x00FF00FF00FF00FF)
_PAIRS: Final = np.uint64(0x0000FFFF0000FFFF)
_FOURS: Final = np.uint64(0x00000000FFFFFFFF)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_SIGN: Final = 1 << 31


class DispatchedValues(NamedTuple):
    """Where the values of the dispatched properties stand; empty where there is none."""

    tags_at: int
    tags_end: int
    keys_at: int
    keys_end: int
    unique_at: int
    unique_end: int
    is_multi: bool
    """Whether the message enters several queues."""


@kernel
def find_dispatched(data: Bytes, at: int, end: int) -> DispatchedValues:
    """Find the dispatched properties in a properties text."""
    tags_at = tags_end = keys_at = keys_end = unique_at = unique_end = at
    is_multi = False
    while at < end:
        pair_end = find_byte(data, at, end, PAIR_END)
        # Of two pairs with one name the later counts, and a pair without a value does not.
        if pair_end - at > _SHORT_NAME_SIZE + 1 and (
            load_byte(data, at + _SHORT_NAME_SIZE) == NAME_END
        ):
            name = load_int(data, at)
            if name == _TAGS:
                tags_at, tags_end = at + _SHORT_NAME_SIZE + 1, pair_end
            elif name == _KEYS:
                keys_at, keys_end = at + _SHORT_NAME_SIZE + 1, pair_end
        elif pair_end - at > _LONG_NAME_SIZE + 1 and (
            load_byte(data, at + _LONG_NAME_SIZE) == NAME_END
        ):
            if load_long(data, at) == _UNIQ_KEY:
                unique_at, unique_end = at + _LONG_NAME_SIZE + 1, pair_end
        elif pair_end - at >= len(_MULTI_DISPATCH) and are_equal(
            data, at, _MULTI_DISPATCH, 0, len(_MULTI_DISPATCH)
        ):
            is_multi = True
        at = pair_end + 1
    return DispatchedValues(tags_at, tags_end, keys_at, keys_end, unique_at, unique_end, is_multi)


@inlined
def _java_hash(data: Bytes, at: int, end: int, start: int) -> int:
    """Return the unsigned Java hash of a text that continues one of hash ``start``.

    It is -1 for text that is not ASCII.
    """
    found = start
    bits = np.uint64(0)
    while end - at >= _WORD_SIZE:
        word = np.uint64(load_word(data, at))
        bits |= word
        # What its letters add by themselves: of pairs, then of fours, then of all of them.
        pairs = (word & _BYTES) * _POWER_1 + (word >> np.uint64(8) & _BYTES)
        fours = (pairs & _PAIRS) * _POWER_2 + (pairs >> np.uint64(16) & _PAIRS)
        all_eight = (fours & _FOURS) * _POWER_4 + (fours >> np.uint64(32))
        found = (found * _POWER_8 + int(np.int64(all_eight))) & _MASK
        at += _WORD_SIZE
    every = 0
    while at < end:
        byte = load_byte(data, at)
        every |= byte
        found = (found * 31 + byte) & _MASK
        at += 1
    return -1 if every >= _ASCII_END or bits & _HIGH_BITS else found


@inlined
def index_hash(unsigned: int) -> int:
    """Return the hash that the key index stores for an unsigned Java hash."""
    return unsigned if unsigned < _SIGN else (_MASK + 1 - unsigned) & (_SIGN - 1)


@inlined
def key_count_max(values: DispatchedValues) -> int:
    """Return how many keys there can be at most."""
    return (values.keys_end - values.keys_at) // 2 + 2


@inlined
def tags_code(data: Bytes, values: DispatchedValues) -> tuple[int, bool]:
    """Return the tags code, and whether it is special: then Python has to find it."""
    code = _java_hash(data, values.tags_at, values.tags_end, 0)
    return (code if code < _SIGN else code - (_MASK + 1)), code < 0


@inlined
def put_key_hashes(
    data: Bytes, values: DispatchedValues, prefix: int, hashes: Ints, at: int
) -> tuple[int, bool]:
    """Store the index hashes of the keys; return where they end, and whether one is special.

    ``prefix`` is the hash of what stands before each key.
    """
    is_special = False
    if values.unique_end > values.unique_at:
        found = _java_hash(data, values.unique_at, values.unique_end, prefix)
        is_special |= found < 0
        hashes[at] = index_hash(found)
        at += 1
    start = values.keys_at
    while start < values.keys_end:
        stop = find_byte(data, start, values.keys_end, _SPACE)
        if stop > start:
            found = _java_hash(data, start, stop, prefix)
            is_special |= found < 0
            hashes[at] = index_hash(found)
            at += 1
        start = stop + 1
    return at, is_special


class DispatchTable(NamedTuple):
    """What a kernel fills in for the records of a table."""

    tags_codes: Longs
    key_counts: Ints
    flags: Flags
    """IS_SPECIAL and IS_MULTI."""
    hashes: Ints
    """The index hashes of the keys, one record after the other."""


@kernel
def dispatch_records(
    data: Bytes,
    properties_at: Longs,
    properties_size: Ints,
    queues: Ints,
    prefixes: Longs,
    columns: DispatchTable,
    start: int,
    hash_count: int,
) -> tuple[int, int]:
    """Find tags code and key hashes of the records from ``start`` on.

    ``prefixes`` has for each queue the hash of its topic and ``#``, -1 where its records are
    for Python.  Return how many records and hashes are done; fewer records than there are when
    there is no space for more hashes.
    """
    codes, key_counts, flags, hashes = columns
    capacity = len(hashes)
    for row in range(start, len(properties_at)):
        prefix = prefixes[queues[row]]
        at = properties_at[row]
        values = find_dispatched(data, at, at + properties_size[row])
        flag = IS_MULTI if values.is_multi else 0
        if hash_count + key_count_max(values) > capacity:
            return row, hash_count
        hash_end = hash_count
        is_special = prefix < 0
        if not is_special:
            codes[row], is_special_code = tags_code(data, values)
            hash_end, is_special_key = put_key_hashes(data, values, prefix, hashes, hash_count)
            is_special = is_special_code or is_special_key
        if is_special:
            flag |= IS_SPECIAL
            hash_end = hash_count
        key_counts[row] = hash_end - hash_count
        flags[row] = flag
        hash_count = hash_end
    return len(properties_at), hash_count
