"""Walking over the entries of all index files, oldest first, and checking each file in itself.

What an entry must link to, and what the slots must hold in the end, follows from the entries
before it.  A run of expected entries is compared as bytes; the links are part of them.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.stored.index_file import (
    ENTRY,
    HEADER_SIZE,
    IndexHeader,
    entry_position,
    file_size,
)
from flintmq.offline.findings import Findings, Kind, Severity, Streak
from flintmq.offline.index_geometry import IndexGeometry
from flintmq.offline.layout import DataFile, StoreLayout
from flintmq.offline.regions import open_for_reading
from flintmq.store.files.interface import MappedRegion

if TYPE_CHECKING:
    from flintmq.store.recovery.bulk_records import SortedKeys

NEVER: Final = 1 << 63
"""Above every physical offset: that of the entry after the last one."""

_EMPTY_HEADER: Final = IndexHeader(0, 0, 0, 0, 0, 1)


class Entry(NamedTuple):
    """An entry as it stands in a file."""

    key_hash: int
    physical_offset: int
    elapsed_seconds: int
    previous: int


END: Final = Entry(0, NEVER, 0, 0)


class IndexCursor:
    """Stands at one entry of the index; ``entry`` is END when all are through.

    ``name``, ``number`` and ``begin_time`` say where: file, entry number, and the time its
    seconds count from.  ``previous_end`` is the end time of the file before, None when there is
    none; the first entry of a file counts from it.
    """

    def __init__(
        self, layout: StoreLayout, geometry: IndexGeometry, findings: Findings, *, unclean: bool
    ) -> None:
        self._layer = layout.files
        self._name_of = layout.name_of
        self._slots = geometry.slots
        self._capacity = geometry.entries
        self._findings = findings
        self._streak = Streak(findings)
        self._unclean = unclean
        self._size = size = file_size(geometry.slots, geometry.entries)
        self._list_again = layout.list_index
        self._waiting = [file for file in layout.index_files if file.size == size]
        self._waiting.reverse()
        self._newest_name = 0
        self.has_files = bool(self._waiting)
        self._region: MappedRegion | None = None
        self._header = _EMPTY_HEADER
        self._broken = False
        """Whether the header cannot be believed, so that the file is passed over."""
        self._newest = array("i")
        """What each slot must hold, as far as the entries were read."""
        self.name = ""
        self.number = 0
        self.begin_time = 0
        self.previous_end: int | None = None
        self.entry = END
        self.entry_count = 0
        for file in layout.index_files:
            if file.size != size:
                reason = f"{file.size} bytes instead of {size}"
                findings.problem(Kind.WRONG_SIZE, self._name_of(file.path), None, reason)
        self._open_next()

    def advance(self) -> None:
        """Go to the next entry."""
        assert self._region is not None
        key_hash, _, _, previous = self.entry
        slot = key_hash % self._slots
        expected = self._newest[slot]
        if previous != expected:
            reason = f"continues at entry {previous} instead of {expected}"
            self._streak.add(Severity.PROBLEM, Kind.INDEX_CHAIN, self.name, self.number, reason)
        self._newest[slot] = self.number
        self.entry_count += 1
        self.number += 1
        if self.number < self._header.index_count:
            self._read()
        else:
            self._end_file()
            self._open_next()

    def match(self, hashes: list[int], offsets: list[int], times: list[int]) -> int:
        """Step over the entries of these keys if just they come next; return how many did.

        Zero says that they differ, or that the file begins or ends here; then go on one by one.
        """
        region, number = self._region, self.number
        count = min(len(hashes), self._header.index_count - number - 1)
        if region is None or number == 1 or count <= 0:
            return 0
        begin, newest, slots, pack = self.begin_time, self._newest, self._slots, ENTRY.pack
        entries = []
        # A time that no entry can hold is of a damaged record.
        with contextlib.suppress(struct.error):
            for key_hash, offset, time in zip(hashes[:count], offsets, times, strict=False):
                slot = key_hash % slots
                entries.append(pack(key_hash, offset, (time - begin) // 1000, newest[slot]))
                newest[slot] = number
                number += 1
        expected = b"".join(entries)
        at = entry_position(slots, self.number)
        if len(entries) < count or region.view[at : at + len(expected)] != expected:
            for key_hash, _, _, previous in reversed(list(ENTRY.iter_unpack(expected))):
                newest[key_hash % slots] = previous
            return 0
        self.entry_count += count
        self.number = number
        self._read()
        return count

    def match_many(self, keys: SortedKeys) -> int:
        """Step over the entries of these keys as far as they come next; return how many did."""
        region, number = self._region, self.number
        count = min(keys.count, self._header.index_count - number - 1)
        if region is None or number == 1 or count <= 0:
            return 0
        matched = keys.between(0, count).match(
            region.view,
            self._newest,
            entry_base=entry_position(self._slots, 0),
            first=number,
            begin_time=self.begin_time,
        )
        if matched:
            self.entry_count += matched
            self.number += matched
            self._read()
        return matched

    def close(self) -> None:
        """Hand on what was found, and unmap the file."""
        self._streak.close()
        if self._region is not None:
            self._region.close()
            self._region = None

    # -- files -------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self._region is not None
        at = entry_position(self._slots, self.number)
        self.entry = Entry._make(ENTRY.unpack_from(self._region.view, at))

    def _open_next(self) -> None:
        """Go to the first entry of the next file that has any."""
        self.entry = END
        while self._waiting or self._find_more():
            file = self._waiting.pop()
            self._newest_name = file.first_offset
            self._region = region = open_for_reading(self._layer, file.path)
            if region is None:
                continue
            self._begin_file(file, region)
            if self._header.index_count > 1:
                self.number = 1
                self._read()
                return
            self._end_file()

    def _find_more(self) -> bool:
        """Look for files that a running broker has made since; tell whether there are any."""
        if self._unclean:
            self._waiting = [
                file
                for file in reversed(self._list_again())
                if file.first_offset > self._newest_name and file.size == self._size
            ]
        return bool(self._waiting)

    def _begin_file(self, file: DataFile, region: MappedRegion) -> None:
        self.name = self._name_of(file.path)
        self._newest = array("i", bytes(4 * self._slots))
        header = IndexHeader.unpack_from(region.view)
        self._broken = header.index_count > self._capacity
        if self._broken:
            self._fault(f"{header.index_count} entries where {self._capacity} have room")
            header = _EMPTY_HEADER
        self._header = header
        self.begin_time = header.begin_timestamp
        if header.index_count > 1:
            self._check_offsets(region.view)

    def _check_offsets(self, view: memoryview) -> None:
        header = self._header
        first, last = (
            ENTRY.unpack_from(view, entry_position(self._slots, number))[1]
            for number in (1, header.index_count - 1)
        )
        if (header.begin_offset, header.end_offset) != (first, last):
            self._fault(
                f"speaks of the records {header.begin_offset} to {header.end_offset}, its "
                f"entries of {first} to {last}"
            )

    @property
    def header(self) -> IndexHeader:
        """The header of the present file."""
        return self._header

    def _fault(self, reason: str) -> None:
        self._findings.problem(Kind.INDEX_HEADER, self.name, None, reason)

    def _end_file(self) -> None:
        """Check what is known when all entries of a file were read, and unmap it."""
        self._streak.close()
        region, self._region = self._region, None
        assert region is not None
        with contextlib.closing(region):
            header = self._header
            used = self._slots - self._newest.count(0)
            if header.index_count > 1 and header.slot_count != used:
                self._fault(f"{header.slot_count} used slots, its entries use {used}")
            if not self._broken:
                self._check_slots(region.view)
        if header.index_count > 1:
            self.previous_end = header.end_timestamp

    def _check_slots(self, view: memoryview) -> None:
        stored = array("i", bytes(view[HEADER_SIZE : HEADER_SIZE + 4 * self._slots]))
        if sys.byteorder == "little":
            stored.byteswap()
        if stored == self._newest:
            return
        # A running broker may have gone on since the header was read.
        growing = self._unclean and not self._waiting
        index_count = self._header.index_count
        for slot, (found, expected) in enumerate(zip(stored, self._newest, strict=True)):
            if found != expected and not (growing and found >= index_count):
                reason = f"slot {slot} leads to entry {found} instead of {expected}"
                self._findings.problem(Kind.INDEX_CHAIN, self.name, expected, reason)
