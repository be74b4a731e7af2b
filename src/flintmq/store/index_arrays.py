"""Entries of many keys for an index file, worked out in arrays.

A key goes to the front of the chain of its slot.  Of keys that share a slot each but the first
is chained to the one before it, which a stable sort by slot brings side by side.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from flintmq.format.hash_arrays import key_hashes, without_sign
from flintmq.format.index_file import ENTRY_SIZE, HEADER_SIZE

_ENTRY: Final = np.dtype(
    [("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
_SLOT: Final = np.dtype(">i4")
assert _ENTRY.itemsize == ENTRY_SIZE


def insert_keys(
    view: memoryview,
    prefixes: Sequence[int],
    keys: Sequence[bytes],
    physical_offsets: Sequence[int],
    *,
    slots: int,
    first: int,
    seconds: int,
) -> int:
    """Write the entries of many keys from number ``first`` on; return how many slots are new."""
    hashes = without_sign(key_hashes(prefixes, keys))
    count = len(hashes)
    table = np.frombuffer(view, _SLOT, slots, HEADER_SIZE)
    slot_numbers = hashes % slots
    order = np.argsort(slot_numbers, kind="stable")
    in_order = slot_numbers[order]
    is_first = np.empty(count, np.bool_)
    is_first[0] = True
    np.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
    numbers = order + first
    chained = np.empty(count, np.int64)
    chained[1:] = numbers[:-1]
    before = table[in_order[is_first]].astype(np.int64)
    before[(before < 0) | (before > first)] = 0
    chained[is_first] = before
    previous = np.empty(count, np.int64)
    previous[order] = chained
    start = HEADER_SIZE + slots * _SLOT.itemsize + first * ENTRY_SIZE
    entries = np.frombuffer(view, _ENTRY, count, start)
    entries["hash"] = hashes
    entries["offset"] = physical_offsets
    entries["seconds"] = seconds
    entries["previous"] = previous
    is_last = np.empty(count, np.bool_)
    is_last[-1] = True
    is_last[:-1] = is_first[1:]
    table[in_order[is_last]] = numbers[is_last]
    return int(np.count_nonzero(before == 0))
