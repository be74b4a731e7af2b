"""Compares the key index with the log in parallel, as long as nothing is wrong with it.

Entries stand in the order of the log.  So each range of the log finds its first entry by bisection
and compares from there on; the positions at which the ranges begin and end must join, from the
first entry of a record that is kept to the last one.  Each file is also checked on its own.  The
answer is only whether all is well: the serial check says what is wrong, and how much of it.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from flintmq.format.stored.index_file import (
    ENTRY,
    HEADER_SIZE,
    IndexHeader,
    entry_position,
    file_size,
)
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.derived_views import Entries
from flintmq.kernels.index import chain_breaks_at, entries_match, first_entry_from
from flintmq.offline.index_geometry import IndexGeometry
from flintmq.offline.layout import DataFile, StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions, open_for_reading


class UsedFile(NamedTuple):
    """An index file that has entries."""

    file: DataFile
    header: IndexHeader


class EntryPosition(NamedTuple):
    """An entry of the index: which of the used files, and its number there."""

    file: int
    number: int


class EntrySpan(NamedTuple):
    """The entries of one range of the log."""

    start: EntryPosition
    end: EntryPosition


def used_files(layout: StoreLayout, geometry: IndexGeometry) -> list[UsedFile] | None:
    """Return the index files with entries, oldest first; None when one is not as it should be."""
    found: list[UsedFile] = []
    size = file_size(geometry.slots, geometry.entries)
    for file in layout.index_files:
        if file.size != size:
            return None
        region = open_for_reading(layout.files, file.path)
        if region is None:
            return None
        with closing(region):
            header = IndexHeader.unpack_from(region.view)
            has_slots = header.index_count <= 1 and any(
                region.view[HEADER_SIZE : entry_position(geometry.slots, 0)].tobytes()
            )
        if header.index_count > geometry.entries or has_slots:
            return None
        if header.index_count > 1:
            found.append(UsedFile(file, header))
    return found


class IndexProbe:
    """Looks up entries of the log in the index files of a store."""

    def __init__(
        self, layout: StoreLayout, geometry: IndexGeometry, files: Sequence[UsedFile]
    ) -> None:
        self._layout = layout
        self._entry_base = entry_position(geometry.slots, 0)
        self._files = files

    def position_of(self, physical_offset: int) -> EntryPosition | None:
        """Return the first entry of the records from an offset on; None if a file is gone."""
        for number, (file, header) in enumerate(self._files):
            if header.end_offset < physical_offset:
                continue
            region = open_for_reading(self._layout.files, file.path)
            if region is None:
                return None
            with closing(region):
                data = as_bytes(region.view)
                entry = first_entry_from(
                    data, self._entry_base, header.index_count, physical_offset
                )
                del data
            return self._normal(EntryPosition(number, entry))
        return EntryPosition(len(self._files), 1)

    def _normal(self, position: EntryPosition) -> EntryPosition:
        """Return the position, or the start of the next file if its file has no such entry."""
        files, (file, number) = self._files, position
        is_behind = file < len(files) and number >= files[file].header.index_count
        return EntryPosition(file + 1, 1) if is_behind else position

    def span_of(self, entries: Entries) -> EntrySpan | None:
        """Return where just these entries stand one after the other; None if they do not."""
        start = self.position_of(int(entries.offsets[0]))
        if start is None:
            return None
        position, done = start, 0
        while done < len(entries):
            if position.file >= len(self._files):
                return None
            count = self._match(position, entries, done)
            if not count:
                return None
            done += count
            position = self._normal(EntryPosition(position.file, position.number + count))
        return EntrySpan(start, position)

    def _match(self, position: EntryPosition, entries: Entries, done: int) -> int:
        """Compare as many entries as the file has; return how many, zero if they differ."""
        file, header = self._files[position.file]
        count = min(len(entries) - done, header.index_count - position.number)
        region = open_for_reading(self._layout.files, file.path)
        if region is None:
            return 0
        with closing(region):
            data = as_bytes(region.view)
            rows = slice(done, done + count)
            is_same = entries_match(
                data,
                self._entry_base,
                position.number,
                entries.hashes[rows],
                entries.offsets[rows],
                entries.times[rows],
                header.begin_timestamp,
            )
            del data
        return count if is_same else 0


def file_is_sound(
    layout: StoreLayout, geometry: IndexGeometry, used: UsedFile, before: UsedFile | None
) -> bool:
    """Whether header, links and slots of a file agree with its entries, and it with the log."""
    file, header = used
    region = open_for_reading(layout.files, file.path)
    if region is None:
        return False
    entry_base = entry_position(geometry.slots, 0)
    with closing(region):
        newest = np.zeros(geometry.slots, np.int32)
        data = as_bytes(region.view)
        broken = chain_breaks_at(data, entry_base, header.index_count, newest)
        del data
        stored = np.frombuffer(bytes(region.view[HEADER_SIZE:entry_base]), ">i4")
        first, last = (
            ENTRY.unpack_from(region.view, entry_position(geometry.slots, number))
            for number in (1, header.index_count - 1)
        )
    if (
        broken
        or not np.array_equal(stored, newest)
        or header.slot_count != int(np.count_nonzero(newest))
        or (header.begin_offset, header.end_offset) != (first[1], last[1])
    ):
        return False
    # The first entry counts from the end of the file before, or from its own file's beginning.
    elapsed = [first[2], 0]
    if before is not None:
        since = header.begin_timestamp - before.header.end_timestamp
        elapsed = [0, max(since // 1000, 0)]
    return first[2] in elapsed and _times_are_true(layout, header)


def _times_are_true(layout: StoreLayout, header: IndexHeader) -> bool:
    """Whether the times in a header are those of its first and last record, if they exist."""
    with Regions(layout.files) as regions:
        log = LogFiles(layout, regions)
        for offset, time in (
            (header.begin_offset, header.begin_timestamp),
            (header.end_offset, header.end_timestamp),
        ):
            record = log.record_at(offset)
            if record is not None and record.store_timestamp != time:
                return False
    return True


def spans_join(
    spans: Sequence[EntrySpan | None], begin: EntryPosition | None, end: EntryPosition
) -> bool:
    """Whether the entries of all ranges follow each other from ``begin`` to ``end``."""
    position = begin
    for span in spans:
        if span is None or span.start != position:
            return False
        position = span.end
    return position == end
