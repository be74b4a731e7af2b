"""Files in which tasks of one stage leave units and entries for tasks of the next.

Spark's own shuffle would carry the same bytes twice through the virtual machine.  These files
lie in the build directory, on the file system that holds the store and takes the result, so
every machine that can do the work reads them, and the loss of a worker loses none.  Each attempt
of a task writes a file with a name of its own, and the driver uses only those files whose tasks
it has seen succeed.

A file has a section for each partition of the queues, then all entries of the index: hashes,
physical offsets and store times, each as one array of the machine's numbers.  A section:

    size  field
       8  number of queues
       8  number of slices
       8  bytes of the queue names
     ...  for each queue its id and the length of its topic, 4 bytes each, then the topic
     ...  for each slice 8 bytes each: queues, queue offsets, numbers of the first units
     ...  units

Numbers are of the machine's byte order; a cluster has one.
"""

import struct
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.kernels.derived_views import Entries, UnitSlices, partition_of
from flintmq.kernels.queue_numbers import QueueName

_SECTION: Final = struct.Struct("=qqq")
_NAME: Final = struct.Struct("=ii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spool:
    """A file that a task has written: where its sections end, and how many entries follow."""

    path: Path
    section_ends: tuple[int, ...]
    entry_count: int


def write_spool(
    directory: Path, slices: UnitSlices, entries: Entries, *, partition_count: int
) -> Spool:
    """Write a file of a new name into ``directory``."""
    path = directory / uuid.uuid4().hex
    ends: list[int] = []
    with path.open("wb") as file:
        for section in _sections(slices, partition_count):
            _write_section(file, section)
            ends.append(file.tell())
        for column in (entries.hashes, entries.offsets, entries.times):
            file.write(np.ascontiguousarray(column).data)
    return Spool(path=path, section_ends=tuple(ends), entry_count=len(entries))


def _sections(slices: UnitSlices, partition_count: int) -> list[UnitSlices]:
    """Cut slices, which are sorted by partition, into those of each partition."""
    partitions = [partition_of(name, partition_count) for name in slices.names]
    bounds = np.searchsorted(partitions, np.arange(partition_count + 1))
    slice_bounds = np.searchsorted(slices.slice_queue, bounds)
    unit_count = len(slices.units) // UNIT_SIZE
    unit_bounds = [*slices.slice_at.tolist(), unit_count]
    sections = []
    for number in range(partition_count):
        first, last = int(slice_bounds[number]), int(slice_bounds[number + 1])
        at, end = unit_bounds[first], unit_bounds[last]
        sections.append(
            UnitSlices(
                slices.names[bounds[number] : bounds[number + 1]],
                slices.slice_queue[first:last] - bounds[number],
                slices.slice_first[first:last],
                slices.slice_at[first:last] - at,
                slices.units[at * UNIT_SIZE : end * UNIT_SIZE],
            )
        )
    return sections


def _write_section(file: BinaryIO, slices: UnitSlices) -> None:
    names = b"".join(_NAME.pack(queue_id, len(topic)) + topic for topic, queue_id in slices.names)
    file.write(_SECTION.pack(len(slices.names), len(slices.slice_at), len(names)))
    file.write(names)
    for column in (slices.slice_queue, slices.slice_first, slices.slice_at):
        file.write(column.astype(np.int64, copy=False).tobytes())
    file.write(slices.units.data)


def read_section(spool: Spool, partition: int) -> UnitSlices:
    """Return the slices of one partition of the queues."""
    start = spool.section_ends[partition - 1] if partition else 0
    end = spool.section_ends[partition]
    data = np.fromfile(spool.path, np.uint8, count=end - start, offset=start)
    queue_count, slice_count, names_size = _SECTION.unpack_from(data.data)
    names_end = _SECTION.size + names_size
    names = _read_names(data[_SECTION.size : names_end].tobytes(), queue_count)
    slices_end = names_end + 3 * 8 * slice_count
    columns = np.frombuffer(data[names_end:slices_end].tobytes(), np.int64).reshape(3, slice_count)
    return UnitSlices(names, columns[0], columns[1], columns[2], data[slices_end:])


def _read_names(data: bytes, count: int) -> list[QueueName]:
    names = []
    at = 0
    for _ in range(count):
        queue_id, size = _NAME.unpack_from(data, at)
        at += _NAME.size
        names.append((data[at : at + size], queue_id))
        at += size
    return names


def read_entries(spool: Spool, start: int, end: int) -> Entries:
    """Return the entries from number ``start`` to ``end``."""
    assert 0 <= start <= end <= spool.entry_count, (start, end, spool.entry_count)
    count = end - start
    base = spool.section_ends[-1]
    offsets_base = base + 4 * spool.entry_count
    times_base = offsets_base + 8 * spool.entry_count
    path = spool.path
    return Entries(
        np.fromfile(path, np.int32, count=count, offset=base + 4 * start),
        np.fromfile(path, np.int64, count=count, offset=offsets_base + 8 * start),
        np.fromfile(path, np.int64, count=count, offset=times_base + 8 * start),
    )
