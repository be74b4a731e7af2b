"""Writing rows to Parquet by topic and day, within one task, a bounded memory and few files.

Rows wait until there are enough of them.  Then a topic and day with many of them goes to a file of
its own, and all others together to one file, sorted by topic, so that a reader of one topic can
pass over most of it.  The names of the directories are those that Spark gives partitions, so that
Spark reads them.
"""

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_columns import (
    ARCHIVE,
    DAY,
    NULL_PARTITION,
    RECORD_HASH,
    ROW_DAY,
    ROW_TOPIC,
    SEVERAL,
)
from flintmq.spark.jobs.archive.archive_manifest import ArchivedFile, add_checksums, file_sha256
from flintmq.spark.jobs.archive.record_codec import hash_sum

BUFFER_BYTES_MAX: Final = 64 << 20
"""So many bytes of rows wait at most for others of their topic and day."""

OWN_FILES_MAX: Final = 64
"""So many topics and days of one task have a file of their own at most."""

_OWN_BYTES_MIN: Final = 2 << 20
"""Of so many bytes that have waited a topic and day gets a file of its own."""

_OWN_COUNT_MIN: Final = 16
"""If a task has no more topics and days than these, each gets a file of its own."""

_SHARED_GROUP_ROWS: Final = 8192
"""Rows of a row group where several topics share a file: less is read to find one of them."""

_NAME_SIZE_MAX: Final = 255
_SPECIAL: Final = re.compile(r"[\x00-\x7f]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]")
_COLUMNS: Final = pa.schema([one for one in ARCHIVE.arrow() if one.name not in ("topic", DAY)])
_SHARED_COLUMNS: Final = pa.schema(
    [*_COLUMNS, pa.field(ROW_TOPIC, pa.string()), pa.field(ROW_DAY, pa.string())]
)

Partition: TypeAlias = tuple[str, str]
"""Topic and day."""

_SHARED: Final[Partition] = ("", SEVERAL)
_SHARED_PATH: Final = f"topic={SEVERAL}/{DAY}={SEVERAL}"


class WrittenFiles(NamedTuple):
    """What a task has written: the directory of this attempt, and its files by their paths there.

    Another attempt, of a task that is run again, has a directory of its own.
    """

    directory: str
    files: list[ArchivedFile]


def write_rows(root: str, store: str, task: int, rows: Iterable[pa.RecordBatch]) -> WrittenFiles:
    """Write the rows of one task of a store, in batches as `ExactRows` completes them."""
    directory = Path(root) / f"{task}-{uuid.uuid4().hex}"
    writer = PartitionedWriter(directory, store, task)
    for batch in rows:
        writer.add(batch)
    return WrittenFiles(str(directory), writer.finish())


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
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _waiting_bytes: int = 0
    _open: dict[Partition, _OpenFile] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows of any topics and days, with the hashes of their records."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes > BUFFER_BYTES_MAX:
            self._write()

    def finish(self) -> list[ArchivedFile]:
        """Write the rest; return the files, by their paths in the directory."""
        self._write()
        return [self._closed(partition, file) for partition, file in self._open.items()]

    def _write(self) -> None:
        """Write all rows that wait."""
        if not self._waiting:
            return
        (rows,) = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()
        self._waiting, self._waiting_bytes = [], 0
        for partition, order in self._parts(_Partitions.of(rows)):
            self._append(partition, rows if order is None else rows.take(pa.array(order)))
        # What the rows took is given back, for whatever comes next in this process.
        del rows
        pa.default_memory_pool().release_unused()

    def _parts(self, found: "_Partitions") -> list[tuple[Partition, npt.NDArray[np.int64] | None]]:
        """Return which rows go to which file, in their order; None is all rows."""
        if len(found.names) == 1 and self._has_own(found.names[0], found.sizes[0]):
            return [(found.names[0], None)]
        parts: list[tuple[Partition, npt.NDArray[np.int64] | None]] = []
        shared: list[npt.NDArray[np.int64]] = []
        is_few = len({*found.names, *self._open} - {_SHARED}) <= _OWN_COUNT_MIN
        # The largest come first: there may not be a file for each.
        for number in np.argsort(-found.sizes, kind="stable").tolist():
            partition, rows = found.names[number], found.rows(number)
            if is_few or self._has_own(partition, found.sizes[number]):
                self._file(partition)
                parts.append((partition, rows))
            else:
                shared.append(rows)
        if shared:
            # Codes are in the order of names, and rows of one are in the order of the log.
            rows = np.concatenate(shared)
            rows = rows[np.lexsort((rows, found.codes[rows]))]
            # Those of live topics come topic by topic.
            is_all = np.array_equal(rows, np.arange(len(found.codes)))
            parts.append((_SHARED, None if is_all else rows))
        return parts

    def _has_own(self, partition: Partition, size: float) -> bool:
        """Whether a topic and day has a file of its own, or shall have one."""
        if partition in self._open:
            return True
        return size >= _OWN_BYTES_MIN and len(self._open) < OWN_FILES_MAX

    def _append(self, partition: Partition, rows: pa.RecordBatch) -> None:
        file = self._file(partition)
        table = pa.Table.from_batches([rows])
        if partition == _SHARED:
            written = table.select([*_COLUMNS.names, "topic", DAY]).rename_columns(
                _SHARED_COLUMNS.names
            )
            file.writer.write_table(written.cast(_SHARED_COLUMNS), _SHARED_GROUP_ROWS)
        else:
            file.writer.write_table(table.select(_COLUMNS.names))
        file.rows += table.num_rows
        file.record_bytes += pc.sum(table["storeSize"]).as_py()
        file.checksum = add_checksums(file.checksum, hash_sum(table[RECORD_HASH].to_numpy()))
        file.last = max(file.last, pc.max(table["physicalOffset"]).as_py())

    def _file(self, partition: Partition) -> _OpenFile:
        file = self._open.get(partition)
        if file is None:
            is_shared = partition == _SHARED
            directory = _SHARED_PATH if is_shared else partition_path(partition)
            name = f"{directory}/part-{self.task:06}-{len(self._open):05}.zstd.parquet"
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            schema = _SHARED_COLUMNS if is_shared else _COLUMNS
            file = _OpenFile(path, name, pq.ParquetWriter(path, schema, compression="zstd"))
            self._open[partition] = file
        return file

    def _closed(self, partition: Partition, file: _OpenFile) -> ArchivedFile:
        file.writer.close()
        topic, day = partition
        return ArchivedFile(
            path=file.name,
            store=self.store,
            topic=None if partition == _SHARED else topic,
            day=day,
            size=file.path.stat().st_size,
            rows=file.rows,
            record_bytes=file.record_bytes,
            checksum=file.checksum,
            last=file.last,
            sha256=file_sha256(file.path),
        )


@dataclass(frozen=True, slots=True)
class _Partitions:
    """The topics and days of some rows: their names in order, and how many bytes each has.

    ``codes`` tells for each row which one it is of.
    """

    names: list[Partition]
    sizes: npt.NDArray[np.float64]
    codes: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "_Partitions":
        """Return the partitions of a batch."""
        topics, days = (batch.column(name).dictionary_encode() for name in ("topic", DAY))
        codes = topics.indices.to_numpy().astype(np.int64) * len(days.dictionary)
        codes += days.indices.to_numpy()
        found, numbers = np.unique(codes, return_inverse=True)
        topic_names, day_names = topics.dictionary.to_pylist(), days.dictionary.to_pylist()
        names = [
            (topic_names[code // len(day_names)], day_names[code % len(day_names)])
            for code in found.tolist()
        ]
        by_name = sorted(range(len(names)), key=names.__getitem__)
        ranks = np.empty(len(names), np.int64)
        ranks[by_name] = np.arange(len(names))
        codes = ranks[numbers.ravel()]
        order = np.argsort(codes, kind="stable")
        return cls(
            [names[number] for number in by_name],
            np.bincount(codes, batch.column("storeSize").to_numpy(), len(names)).astype(np.float64),
            codes,
            order,
            np.searchsorted(codes[order], np.arange(len(names) + 1)),
        )

    def rows(self, number: int) -> npt.NDArray[np.int64]:
        """Return the rows of one partition, in their order."""
        return self.order[self.bounds[number] : self.bounds[number + 1]]
