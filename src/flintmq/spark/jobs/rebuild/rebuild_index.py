"""Writing one file of the key index from the entries of all ranges of the log.

How many keys each range has tells which entries a file gets, so every file is made on its own.
Its name comes from the store time of its first entry, in the time zone of the store: the driver
gives it, since names must ascend and executors may be in another zone.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from flintmq.format.stored.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    entry_position,
    file_size,
    format_file_name,
)
from flintmq.kernels.compiled import as_bytes
from flintmq.kernels.derived_views import Entries
from flintmq.kernels.index import chain_breaks_at, write_entries
from flintmq.offline.index_geometry import IndexGeometry
from flintmq.offline.layout import StoreLayout
from flintmq.offline.regions import open_for_reading
from flintmq.spark.errors import RebuildError
from flintmq.spark.parallel_log.spool import Spool, read_entries

CHUNK_COUNT: Final = 1 << 18
"""Entries that are written at once: 5 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTask:
    """One index file is to be written with the entries from ``start`` to ``end`` of the log."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """An index file that a task has written."""

    number: int
    path: Path
    first_time: int
    entry_count: int
    slot_count: int


def plan_index(spools: Sequence[Spool], geometry: IndexGeometry) -> list[IndexTask]:
    """Return the files that the entries of all spools fill; entry zero of a file is not used."""
    total = sum(spool.entry_count for spool in spools)
    capacity = geometry.entries - 1
    return [
        IndexTask(number=number, start=start, end=min(start + capacity, total))
        for number, start in enumerate(range(0, total, capacity))
    ]


def index_names(first_times: Sequence[int]) -> list[str]:
    """Return the names of index files that begin at these store times; they ascend."""
    names: list[int] = []
    for time in first_times:
        moment = datetime.datetime.fromtimestamp(time / 1000, tz=datetime.UTC).astimezone()
        name = int(format_file_name(moment))
        names.append(max(name, names[-1] + 1) if names else name)
    return [str(name) for name in names]


def write_index_file(
    layout: StoreLayout,
    geometry: IndexGeometry,
    directory: Path,
    task: IndexTask,
    spools: Sequence[Spool],
) -> IndexFile:
    """Write, sync and check one file in ``directory``."""
    path = directory / "index"
    slots = geometry.slots
    region = layout.files.create(path, file_size(slots, geometry.entries), reserve=False)
    try:
        newest = np.zeros(slots, np.int32)
        writer = _EntryWriter(slots, newest)
        if task.start:
            # The first entry of a file is measured from the end of the file before it.
            before = next(_entries(spools, task.start - 1, task.start))
            writer.begin_time = int(before.times[-1])
        for entries in _entries(spools, task.start, task.end):
            for at, data in writer.pack(entries):
                region.write(at, data)
        region.write(HEADER_SIZE, newest.astype(">i4").tobytes())
        region.write(0, writer.header().pack())
        region.sync()
    finally:
        region.close()
    layout.files.sync_directory(directory)
    _read_back(layout, path, writer.header(), newest)
    return IndexFile(
        number=task.number,
        path=path,
        first_time=writer.header().begin_timestamp,
        entry_count=task.end - task.start,
        slot_count=writer.header().slot_count,
    )


def _entries(spools: Sequence[Spool], start: int, end: int) -> Iterator[Entries]:
    """Yield the entries of the log from number ``start`` to ``end``, some at a time."""
    first = 0
    for spool in spools:
        following = first + spool.entry_count
        low, high = max(start, first), min(end, following)
        for at in range(low, high, CHUNK_COUNT):
            yield read_entries(spool, at - first, min(at + CHUNK_COUNT, high) - first)
        first = following


class _EntryWriter:
    """Packs entries one after the other and keeps what the header must say."""

    def __init__(self, slots: int, newest: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> None:
        self._slots = slots
        self._newest = newest
        self._number = 1
        self._slot_count = 0
        self._begin_offset = self._end_offset = self._end_time = 0
        self._buffer = np.empty(CHUNK_COUNT * ENTRY_SIZE, np.uint8)
        self.begin_time = 0

    def pack(self, entries: Entries) -> Iterator[tuple[int, memoryview]]:
        """Yield where in the file bytes belong, and the bytes, valid until the next."""
        if self._number == 1:
            # From here on the file counts from its own first entry.
            yield self._pack(entries, 0, 1)
            self._begin_offset = int(entries.offsets[0])
            self.begin_time = int(entries.times[0])
            if len(entries) > 1:
                yield self._pack(entries, 1, len(entries))
        else:
            yield self._pack(entries, 0, len(entries))
        self._end_offset = int(entries.offsets[-1])
        self._end_time = int(entries.times[-1])

    def _pack(self, entries: Entries, start: int, end: int) -> tuple[int, memoryview]:
        at = entry_position(self._slots, self._number)
        self._slot_count += write_entries(
            entries.hashes[start:end],
            entries.offsets[start:end],
            entries.times[start:end],
            self.begin_time,
            self._newest,
            self._number,
            self._buffer,
        )
        self._number += end - start
        return at, self._buffer[: (end - start) * ENTRY_SIZE].data

    def header(self) -> IndexHeader:
        """Return what the header must say for the entries so far."""
        return IndexHeader(
            self.begin_time,
            self._end_time,
            self._begin_offset,
            self._end_offset,
            self._slot_count,
            self._number,
        )


def _read_back(
    layout: StoreLayout,
    path: Path,
    header: IndexHeader,
    newest: "np.ndarray[tuple[int], np.dtype[np.int32]]",
) -> None:
    """Raise RebuildError unless the file on the disk has this header, and its chains hold."""
    region = open_for_reading(layout.files, path)
    if region is None:
        raise RebuildError(path.name, "the file is gone")
    try:
        slots = len(newest)
        entry_base = entry_position(slots, 0)
        stored = np.frombuffer(bytes(region.view[HEADER_SIZE:entry_base]), ">i4")
        data = as_bytes(region.view)
        found = np.zeros(slots, np.int32)
        is_broken = chain_breaks_at(data, entry_base, header.index_count, found)
        del data
        if (
            is_broken
            or IndexHeader.unpack_from(region.view) != header
            or not np.array_equal(stored, newest)
            or not np.array_equal(found, newest)
        ):
            raise RebuildError(path.name, "the index read back is not the one that was written")
    finally:
        region.close()


assert np.dtype(np.int32).itemsize == SLOT_SIZE
