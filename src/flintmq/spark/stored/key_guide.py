"""Finding the records of some keys by the key index.

An index file tells which range of the log it covers.  Where no file does, and where a chain of
entries is broken, the log is read.  A key that an index file has lost without a trace (its slot
is empty) is not found: the index does not say what it should hold.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Final

from flintmq.format.stored.index_file import (
    ENTRY,
    HEADER_SIZE,
    SLOT,
    IndexHeader,
    entry_position,
    key_text_hash,
    slot_position,
)
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import DataFile, StoreLayout, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions
from flintmq.spark.stored.log_ranges import Ranges, is_guidable, merge
from flintmq.spark.stored.log_split import LogSplit

LOOKUP_COUNT_MAX: Final = 1000
"""More pairs of topic and key are not looked up one by one."""


@dataclass(frozen=True, slots=True)
class KeyGuide:
    """Leads to the records of some topics that have one of some keys."""

    topics: frozenset[str]
    keys: frozenset[str]

    def ranges(self, split: LogSplit) -> Ranges | None:
        """Return the ranges of a split that may hold wanted records, None for all of it."""
        if not is_guidable(split) or len(self.topics) * len(self.keys) > LOOKUP_COUNT_MAX:
            return None
        layout = find_store(Path(split.store))
        with Regions(layout.files) as regions:
            indexed = list(_indexed_ranges(layout, regions))
            near = [one for one in indexed if one.overlaps(split)]
            if not near:
                return None
            part = replace(layout, index_files=[one.file for one in near])
            geometry = find_geometry(part, regions)
            if geometry is None:
                return None
            log = LogFiles(layout, regions)
            ranges = _uncovered(indexed, split)
            hashes = {key_text_hash(topic, key) for topic in self.topics for key in self.keys}
            for one in near:
                hits = one.lookup(hashes, geometry.slots, geometry.entries, regions)
                if hits is None:
                    ranges.append((one.start, one.end))
                    continue
                ranges += [(hit, hit) for hit in hits]
            return _closed(ranges, split, log)


@dataclass(frozen=True, slots=True)
class _IndexedRange:
    """An index file and what of the log it covers: from its first record to its last."""

    file: DataFile
    start: int
    end: int
    count: int

    def overlaps(self, split: LogSplit) -> bool:
        return self.start < split.end and split.start <= self.end

    def lookup(
        self, hashes: set[int], slots: int, entries: int, regions: Regions
    ) -> list[int] | None:
        """Return where the entries with these hashes lead, None if a chain is broken."""
        view = regions.view(self.file.path)
        if view is None or self.count > entries or len(view) < entry_position(slots, entries):
            return None
        hits: list[int] = []
        for wanted in hashes:
            slot = wanted % slots
            (number,) = SLOT.unpack_from(view, slot_position(slot))
            following = self.count
            while number:
                if not 0 < number < following:
                    return None
                key_hash, offset, _, previous = ENTRY.unpack_from(
                    view, entry_position(slots, number)
                )
                if key_hash % slots != slot or not self.start <= offset <= self.end:
                    return None
                if key_hash == wanted:
                    hits.append(offset)
                number, following = previous, number
        return hits


def _indexed_ranges(layout: StoreLayout, regions: Regions) -> Iterator[_IndexedRange]:
    for file in layout.index_files:
        view = regions.view(file.path)
        if view is None or len(view) < HEADER_SIZE:
            continue
        header = IndexHeader.unpack_from(view)
        if header.index_count > 1 and 0 <= header.begin_offset <= header.end_offset:
            yield _IndexedRange(file, header.begin_offset, header.end_offset, header.index_count)


def _uncovered(indexed: list[_IndexedRange], split: LogSplit) -> Ranges:
    """Return what of a split lies between the indexed ranges, which may overlap each other.

    The last record of a file may have keys in the next one only, so it counts as uncovered.
    """
    ordered = sorted(indexed, key=lambda one: one.start)
    starts = [*(one.start for one in ordered), split.end]
    ends = accumulate([split.start, *(one.end for one in ordered)], max)
    between = [
        (max(end, split.start), min(start, split.end))
        for end, start in zip(ends, starts, strict=True)
    ]
    return [(end, start) for end, start in between if end < start]


def _closed(ranges: Ranges, split: LogSplit, log: LogFiles) -> Ranges | None:
    """Return ranges that include their last record, within the split; None if one is not there."""
    closed: Ranges = []
    for start, end in ranges:
        if start >= split.end or end < split.start:
            continue
        begin, stop = max(start, split.start), min(end, split.end)
        if begin != split.start and log.record_at(begin) is None:
            return None
        if stop != split.end:
            record = log.record_at(stop)
            if record is None:
                return None
            stop += record.size
        closed.append((begin, stop))
    return merge(closed)
