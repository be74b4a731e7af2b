"""Checking one index file in itself: its header, its chains and its slots."""

import sys
from array import array
from typing import Final

from flintmq.format.errors import CorruptIndexError
from flintmq.format.index_file import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexHeader,
    entry_position,
    file_size,
)
from flintmq.offline.findings import Findings, Kind
from flintmq.offline.index_geometry import IndexGeometry
from flintmq.offline.layout import DataFile, StoreLayout

CHUNK_COUNT: Final = 65_536
"""So many entries are copied out of a file at a time."""


class IndexFiles:
    """The index files that can be read, oldest first."""

    def __init__(self, layout: StoreLayout, geometry: IndexGeometry) -> None:
        self.slots = geometry.slots
        self.entries = geometry.entries
        self.layer = layout.files
        self.name_of = layout.name_of
        size = file_size(geometry.slots, geometry.entries)
        self.files = [file for file in layout.index_files if file.size == size]
        self.wrong_size = [file for file in layout.index_files if file.size != size]


class IndexStructure:
    """One index file in itself: header, chains and slots."""

    def __init__(self, file: DataFile, index: IndexFiles, findings: Findings) -> None:
        self._name = index.name_of(file.path)
        self._slots = index.slots
        self._entries = index.entries
        self._findings = findings
        self.header = IndexHeader(0, 0, 0, 0, 0, 1)

    def report(self, kind: Kind, offset: int | None, reason: str) -> None:
        """Add a problem of this file."""
        self._findings.problem(kind, self._name, offset, reason)

    def check(self, view: memoryview, *, may_grow: bool) -> bool:
        """Check the file; return whether its entries are worth looking at."""
        try:
            self.header = header = IndexHeader.unpack_from(view)
        except CorruptIndexError as error:
            self.report(Kind.INDEX_HEADER, None, error.reason)
            return False
        if header.index_count > self._entries:
            reason = f"{header.index_count} entries where {self._entries} have room"
            self.report(Kind.INDEX_HEADER, None, reason)
            return False
        newest = array("i", bytes(4 * self._slots))
        chain_starts, first_offset, last_offset = self._check_chains(view, newest)
        if header.index_count > 1:
            if header.begin_offset != first_offset or header.end_offset != last_offset:
                self.report(
                    Kind.INDEX_HEADER,
                    None,
                    f"speaks of the records {header.begin_offset} to {header.end_offset}, its "
                    f"entries of {first_offset} to {last_offset}",
                )
            if header.slot_count != chain_starts:
                reason = f"{header.slot_count} used slots, its entries use {chain_starts}"
                self.report(Kind.INDEX_HEADER, None, reason)
        self._check_slots(view, newest, may_grow=may_grow)
        return True

    def _check_chains(self, view: memoryview, newest: "array[int]") -> tuple[int, int, int]:
        """Follow the entries as they were inserted; leave in ``newest`` what the slots must hold.

        Return how many chains begin, and the offsets of the first and last entry.
        """
        slots, index_count = self._slots, self.header.index_count
        base = entry_position(slots, 0)
        chain_starts = first_offset = offset = 0
        number = 1
        while number < index_count:
            last = min(number + CHUNK_COUNT, index_count)
            chunk = bytes(view[base + number * ENTRY_SIZE : base + last * ENTRY_SIZE])
            for key_hash, offset, _, previous in ENTRY.iter_unpack(chunk):
                if number == 1:
                    first_offset = offset
                slot = key_hash % slots
                if previous != newest[slot] or key_hash < 0:
                    reason = f"continues at entry {previous} instead of {newest[slot]}"
                    self.report(Kind.INDEX_CHAIN, number, reason)
                if not previous:
                    chain_starts += 1
                newest[slot] = number
                number += 1
        return chain_starts, first_offset, offset

    def _check_slots(self, view: memoryview, newest: "array[int]", *, may_grow: bool) -> None:
        stored = array("i", bytes(view[HEADER_SIZE : HEADER_SIZE + 4 * self._slots]))
        if sys.byteorder == "little":
            stored.byteswap()
        if stored == newest:
            return
        index_count = self.header.index_count
        for slot, (found, expected) in enumerate(zip(stored, newest, strict=True)):
            # A running broker may have gone on since the header was read.
            if found != expected and not (may_grow and found >= index_count):
                reason = f"slot {slot} leads to entry {found} instead of {expected}"
                self.report(Kind.INDEX_CHAIN, expected, reason)
