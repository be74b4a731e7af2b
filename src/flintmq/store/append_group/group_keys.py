"""The keys of an append group, and how their entries come into an index file all at once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from flintmq.format.hash_batch import index_hashes
from flintmq.format.stored.index_file import (
    ENTRY_FIELD_COUNT,
    ENTRY_SIZE,
    ENTRY_TABLE,
    HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PACK_COUNT_MAX: Final = 64
"""Entries written at once."""

_read_slot: Final = SLOT.unpack_from
_write_slot: Final = SLOT.pack_into


class GroupKeys:
    """The keys of an append group in log order."""

    __slots__ = ("keys", "physical_offsets", "prefixes")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.physical_offsets: list[int] = []
        """The physical offset of the message of each key."""
        self.prefixes: list[tuple[int, int]] = []
        """The hash of what stands before a key, and how many keys in a row have that."""

    def add(self, prefix: int, keys: Sequence[bytes], physical_offset: int) -> None:
        """Add the keys of a message; ``prefix`` is the hash of what stands before each."""
        count = len(keys)
        self.keys += keys
        self.physical_offsets += (physical_offset,) * count
        self.prefixes.append((prefix, count))

    @property
    def count(self) -> int:
        """How many keys these are."""
        return len(self.keys)

    @property
    def last_offset(self) -> int:
        """The physical offset of the last message with a key."""
        return self.physical_offsets[-1]

    def kept(self) -> GroupKeys:
        """Return these keys, which nobody changes."""
        return self

    def insert(self, view: memoryview, *, slots: int, first: int, seconds: int) -> int:
        """Write the entries from number ``first`` on; return how many slots are new.

        Entries stand behind each other, so they are written at once, and a slot only gets the
        number of the last entry that is in it.
        """
        prefixes = [prefix for prefix, count in self.prefixes for _ in range(count)]
        hashes = index_hashes(prefixes, self.keys)
        newest: dict[int, int] = {}
        fields: list[int] = []
        number, new_slots = first, 0
        for key_hash, physical_offset in zip(hashes, self.physical_offsets, strict=True):
            slot = key_hash % slots
            previous = newest.get(slot)
            if previous is None:
                previous = _read_slot(view, HEADER_SIZE + slot * SLOT_SIZE)[0]
                if previous <= 0 or previous > first:
                    previous = 0
                    new_slots += 1
            fields += (key_hash, physical_offset, seconds, previous)
            newest[slot] = number
            number += 1
        at = HEADER_SIZE + slots * SLOT_SIZE + first * ENTRY_SIZE
        for start in range(0, len(fields), PACK_COUNT_MAX * ENTRY_FIELD_COUNT):
            some = fields[start : start + PACK_COUNT_MAX * ENTRY_FIELD_COUNT]
            _entries(len(some) // ENTRY_FIELD_COUNT).pack_into(view, at, *some)
            at += PACK_COUNT_MAX * ENTRY_SIZE
        for slot, number in newest.items():
            _write_slot(view, HEADER_SIZE + slot * SLOT_SIZE, number)
        return new_slots


_entries: Final = functools.lru_cache(maxsize=PACK_COUNT_MAX)(ENTRY_TABLE.repeated)
"""The layout of so many entries one behind the other."""
