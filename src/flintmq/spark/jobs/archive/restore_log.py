"""Writing the log of a restored store: two stages of tasks over the files of an archive.

First each file tells which chunks of the old log its records stood in, then each chunk is one
task: it reads its rows from the files that have some, brings them in order and writes the
records.  Memory follows the size of a chunk.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext

from flintmq.format.stored.record_encoding import encode_blank
from flintmq.kernels.compiled import Longs
from flintmq.spark.jobs.archive.archive_columns import ROW_DAY, ROW_TOPIC, with_topic
from flintmq.spark.jobs.archive.archive_manifest import ArchivedFile, add_checksums
from flintmq.spark.jobs.archive.record_codec import (
    RECORD_COLUMNS,
    Encoded,
    encode_records,
    hash_pieces,
    hash_sum,
    move_records,
)
from flintmq.spark.jobs.archive.restore_plan import Chunk, ChunkGrid, LogPlan
from flintmq.spark.jobs.rebuild.switch import sync_directory
from flintmq.spark.runtime.stage_names import stage_name

_ROWS_MAX: Final = 8192
"""So many records are encoded at once."""

_READ: Final = RECORD_COLUMNS | {ROW_TOPIC, ROW_DAY}


def find_chunks(
    context: SparkContext, archive: Path, files: Sequence[ArchivedFile], grid: ChunkGrid
) -> dict[int, tuple[Chunk, list[ArchivedFile]]]:
    """Return the chunks of the old log, and which files have rows of each."""
    found: dict[int, tuple[Chunk, list[ArchivedFile]]] = {}
    if not files:
        return found
    slices = min(len(files), max(context.defaultParallelism * 4, 1))
    read = FileChunks(str(archive), grid)
    with stage_name(context, "looking where records go"):
        by_file = context.parallelize(files, slices).map(read).collect()
    for file, chunks in by_file:
        for chunk in chunks:
            known, holders = found.get(chunk.number, (None, []))
            joined = chunk if known is None else known.joined(chunk)
            found[chunk.number] = joined, [*holders, file]
    return found


@dataclass(frozen=True, slots=True)
class FileChunks:
    """Tells which chunks a file has rows of, on an executor."""

    archive: str
    grid: ChunkGrid

    def __call__(self, file: ArchivedFile) -> tuple[ArchivedFile, list[Chunk]]:
        """Return the file and its chunks."""
        columns = ["physicalOffset", "storeSize"]
        table = pq.ParquetFile(Path(self.archive) / file.path).read(columns)
        starts, sizes = (table[name].to_numpy().astype(np.int64) for name in columns)
        chunks = self.grid.of(starts)
        found = []
        for number in np.unique(chunks).tolist():
            rows = chunks == number
            first, end = int(starts[rows].min()), int((starts + sizes)[rows].max())
            found.append(Chunk(number, int(rows.sum()), int(sizes[rows].sum()), first, end))
        return file, found


def write_log(
    context: SparkContext,
    archive: Path,
    directory: Path,
    plan: LogPlan,
    holders: dict[int, list[ArchivedFile]],
) -> tuple[int, int]:
    """Write all records and blanks; return how many records they were and their checksum."""
    file_size = plan.grid.file_size
    for start in plan.file_starts:
        with (directory / _file_name(start)).open("wb") as file:
            file.truncate(file_size)
    tasks = [
        ChunkTask(number, plan.starts[number], plan.is_exact, plan.grid, str(archive),
                  str(directory), tuple(files))
        for number, files in sorted(holders.items())
    ]  # fmt: skip
    written: list[tuple[int, int]] = []
    if tasks:
        with stage_name(context, "writing the log"):
            written = context.parallelize(tasks, len(tasks)).map(ChunkTask.run).collect()
    for blank in plan.blanks:
        with _log_file(directory, blank.start, file_size) as (descriptor, at):
            _write_all(descriptor, encode_blank(blank.size), at)
    sync_directory(directory)
    return sum(count for count, _ in written), add_checksums(*(one for _, one in written))


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """Writes the records of one chunk into the log, on an executor."""

    number: int
    start: int
    is_exact: bool
    grid: ChunkGrid
    archive: str
    directory: str
    files: tuple[ArchivedFile, ...]

    def run(self) -> tuple[int, int]:
        """Write the records; return how many these were and their checksum.

        All of them go to one file, one after the other.  Running it again writes the same bytes.
        """
        rows = self._rows()
        at, checksum = self.start, 0
        with _log_file(Path(self.directory), at, self.grid.file_size) as (descriptor, position):
            for batch in rows.to_batches(_ROWS_MAX):
                encoded = encode_records(dict(zip(batch.schema.names, batch.columns, strict=True)))
                hashes = hash_pieces(encoded.data, encoded.at[:-1], encoded.sizes)
                checksum = add_checksums(checksum, hash_sum(hashes))
                self._move(encoded, batch.column("physicalOffset").to_numpy(), at)
                _write_all(descriptor, memoryview(encoded.data.data), position)
                at += len(encoded.data)
                position += len(encoded.data)
            os.fdatasync(descriptor)
        return rows.num_rows, checksum

    def _move(self, encoded: Encoded, old: Longs, at: int) -> None:
        new = at + encoded.at[:-1]
        if not self.is_exact:
            move_records(encoded, new)
        else:
            assert (new == old).all(), (self.number, at)

    def _rows(self) -> pa.Table:
        """Return the rows of the chunk, in the order of the old log."""
        tables = [table for file in self.files for table in self._rows_of(file)]
        names = tables[0].column_names
        rows = pa.concat_tables(one.select(names) for one in tables)
        offsets = rows["physicalOffset"].to_numpy()
        is_ordered = bool((offsets[1:] > offsets[:-1]).all())
        return rows if is_ordered else rows.sort_by("physicalOffset")

    def _rows_of(self, file: ArchivedFile) -> Iterator[pa.Table]:
        parquet = pq.ParquetFile(Path(self.archive) / file.path)
        columns = [name for name in parquet.schema_arrow.names if name in _READ]
        for group in range(parquet.num_row_groups):
            offsets = parquet.read_row_group(group, ["physicalOffset"])["physicalOffset"]
            mask = self.grid.of(offsets.to_numpy()) == self.number
            if mask.any():
                rows = parquet.read_row_group(group, columns)
                yield with_topic(rows if mask.all() else rows.filter(mask), file.topic)


def _file_name(start: int) -> str:
    return f"{start:020}"


@contextmanager
def _log_file(directory: Path, physical_offset: int, file_size: int) -> Iterator[tuple[int, int]]:
    """Yield a descriptor of the file that holds an offset, and the position in that file."""
    start = physical_offset - physical_offset % file_size
    descriptor = os.open(directory / _file_name(start), os.O_WRONLY)
    try:
        yield descriptor, physical_offset - start
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes | memoryview, position: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, position)
        rest, position = rest[written:], position + written
