"""Writing rows to Parquet by topic and day, within one task and a bounded memory.

The names of the directories are those that Spark gives partitions, so that Spark reads them.
"""

import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive_columns import ARCHIVE, DAY, NULL_PARTITION, RECORD_HASH
from flintmq.spark.jobs.archive_manifest import ArchivedFile, add_checksums, file_sha256
from flintmq.spark.jobs.record_codec import hash_sum

BUFFER_BYTES_MAX: Final = 64 << 20
"""So many bytes of rows wait at most for enough others of their topic and day."""

OPEN_MAX: Final = 128
"""So many files are open at once; what comes for one that was closed begins another."""

_NAME_SIZE_MAX: Final = 255
_SPECIAL: Final = re.compile(r"[\x00-\x7f]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]")
_COLUMNS: Final = pa.schema([one for one in ARCHIVE.arrow() if one.name not in ("topic", DAY)])

Partition: TypeAlias = tuple[str, str]
"""Topic and day."""


class Written(NamedTuple):
    """What a task has written: the directory of this attempt, and its files by their paths there.

    Another attempt, of a task that is run again, has a directory of its own.
    """

    directory: str
    files: list[ArchivedFile]


def write_rows(root: str, store: str, task: int, rows: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of one task of a store, in batches as `ExactRows` completes them."""
    directory = Path(root) / f"{task}-{uuid.uuid4().hex}"
    writer = PartitionedWriter(directory, store, task)
    for batch in rows:
        writer.add(batch)
    return Written(str(directory), writer.finish())


def partition_path(partition: Partition) -> str:
    """Return the directories of a partition, escaped as Spark does."""
    topic, day = partition
    name = f"topic={_SPECIAL.sub(_escaped, topic) or NULL_PARTITION}"
    if len(name.encode()) > _NAME_SIZE_MAX:
        raise ArchiveError(topic, "no directory can have the name of this topic")
    return f"{name}/{DAY}={day}"


def _escaped(match: re.Match[str]) -> str:
    return match[0] if _PLAIN.fullmatch(match[0]) else f"%{ord(match[0]):02X}"


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written."""

    path: Path
    name: str
    writer: pq.ParquetWriter
    rows: int = 0
    record_bytes: int = 0
    checksum: int = 0
    last: int = -1


@dataclass(slots=True)
class PartitionedWriter:
    """Writes the rows of one task of a store.  All files are in ``directory``."""

    directory: Path
    store: str
    task: int
    _waiting: dict[Partition, list[pa.RecordBatch]] = field(default_factory=dict)
    _waiting_bytes: int = 0
    _open: dict[Partition, _OpenFile] = field(default_factory=dict)
    _done: list[ArchivedFile] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of any topics and days, with the hashes of their records."""
        for partition, rows in _partitions(batch):
            self._waiting.setdefault(partition, []).append(rows)
            self._waiting_bytes += rows.nbytes
        while self._waiting_bytes > BUFFER_BYTES_MAX:
            largest = max(
                self._waiting, key=lambda one: sum(rows.nbytes for rows in self._waiting[one])
            )
            self._write(largest)

    def finish(self) -> list[ArchivedFile]:
        """Write the rest; return the files, by their paths in the directory."""
        for partition in list(self._waiting):
            self._write(partition)
        for partition in list(self._open):
            self._close(partition)
        return self._done

    def _write(self, partition: Partition) -> None:
        table = pa.Table.from_batches(self._waiting.pop(partition))
        self._waiting_bytes -= table.nbytes
        file = self._file(partition)
        file.writer.write_table(table.select(_COLUMNS.names))
        file.rows += table.num_rows
        file.record_bytes += pc.sum(table["storeSize"]).as_py()
        file.checksum = add_checksums(file.checksum, hash_sum(table[RECORD_HASH].to_numpy()))
        file.last = max(file.last, pc.max(table["physicalOffset"]).as_py())
        # What the rows took is given back, for whatever comes next in this process.
        del table
        pa.default_memory_pool().release_unused()

    def _file(self, partition: Partition) -> _OpenFile:
        # The file that was used last is the last one of the table, the first one is closed first.
        file = self._open.pop(partition, None)
        if file is None:
            while len(self._open) >= OPEN_MAX:
                self._close(next(iter(self._open)))
            number = len(self._open) + len(self._done)
            name = f"{partition_path(partition)}/part-{self.task:06}-{number:05}.zstd.parquet"
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            file = _OpenFile(path, name, pq.ParquetWriter(path, _COLUMNS, compression="zstd"))
        self._open[partition] = file
        return file

    def _close(self, partition: Partition) -> None:
        file = self._open.pop(partition)
        file.writer.close()
        topic, day = partition
        self._done.append(
            ArchivedFile(
                path=file.name,
                store=self.store,
                topic=topic,
                day=day,
                size=file.path.stat().st_size,
                rows=file.rows,
                record_bytes=file.record_bytes,
                checksum=file.checksum,
                last=file.last,
                sha256=file_sha256(file.path),
            )
        )


def _partitions(batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Yield the rows of each topic and day, in their order, each with memory of its own.

    Slices of one batch would keep all of it as long as one of them waits, and a topic that is
    rare waits long.
    """
    topics, days = (batch.column(name).dictionary_encode() for name in ("topic", DAY))
    codes = topics.indices.to_numpy().astype(np.int64) * len(days.dictionary)
    codes += days.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist()
    for start, end in zip(bounds, [*bounds[1:], len(codes)], strict=True):
        topic, day = divmod(int(codes[order[start]]), len(days.dictionary))
        partition = topics.dictionary[topic].as_py(), days.dictionary[day].as_py()
        rows = batch if len(bounds) == 1 else batch.take(pa.array(order[start:end]))
        yield partition, rows
