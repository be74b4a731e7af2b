"""What a replay reads: the messages of store directories or of an archive, part by part.

The parts of one store follow each other in the order of its log, so the messages of each queue
come in their order, and a part gives the same messages whenever it is read.
"""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from flintmq.spark.columns import MESSAGE
from flintmq.spark.failures import JobError
from flintmq.spark.jobs.archive import archived_messages
from flintmq.spark.jobs.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.query_views import is_archive
from flintmq.spark.log_end import Allowance, LogEnd
from flintmq.spark.log_read import LogRead
from flintmq.spark.options import AccessPath, OnCorrupt, ReadOptions
from flintmq.spark.plan import StorePlan, store_directories

COLUMNS: Final = tuple(MESSAGE.kinds)


class LogPart(NamedTuple):
    """A part of one store's log; the offsets are physical."""

    store: str
    start: int
    end: int


class ReplaySource(Protocol):
    """Where messages come from."""

    def logs(self) -> list[LogPart]:
        """Return all that there is of each store."""
        ...

    def part_end(self, log: LogPart, start: int, size: int) -> int:
        """Return where a part ends that starts in a log and has about so many bytes."""
        ...

    def messages(self, part: LogPart) -> DataFrame:
        """Return the messages of a part, with the columns COLUMNS."""
        ...


def open_source(
    spark: SparkSession, sources: Sequence[str], *, on_corrupt: OnCorrupt = OnCorrupt.FAIL
) -> ReplaySource:
    """Return store directories, or one archive."""
    archives = [source for source in sources if is_archive(source)]
    if not archives:
        return StoreSource(spark, sources, on_corrupt)
    if len(sources) > 1:
        raise JobError(f"{archives[0]} is an archive; it can only be replayed alone")
    return ArchiveSource(spark, archives[0])


class ArchiveSource:
    """The messages of an archive."""

    def __init__(self, spark: SparkSession, archive: str) -> None:
        self._directory = ArchiveDirectory(Path(archive).resolve())
        self._rows = archived_messages(spark, archive)

    def logs(self) -> list[LogPart]:
        """Return what all runs together have taken of each store."""
        found: dict[str, LogPart] = {}
        for manifest in self._directory.manifests():
            for run in manifest.stores:
                if run.start == run.end:
                    continue  # Nothing was taken; of a broker it is not even known where.
                # Runs of live topics may overlap: a queue that is new to one begins far before.
                before = found.get(run.name, LogPart(run.name, run.start, run.end))
                start, end = min(before.start, run.start), max(before.end, run.end)
                found[run.name] = LogPart(run.name, start, end)
        return list(found.values())

    def part_end(self, log: LogPart, start: int, size: int) -> int:
        """Return an offset that may be anywhere: rows are compared with it."""
        return min(log.end, start + size)

    def messages(self, part: LogPart) -> DataFrame:
        """Return the rows of a part; files without any are not read."""
        rows = self._rows.where(F.col("store") == part.store)
        return rows.where(F.col("physicalOffset").between(part.start, part.end - 1)).select(
            *COLUMNS
        )


class StoreSource:
    """The messages of store directories; those that come later are not looked at."""

    def __init__(
        self, spark: SparkSession, directories: Sequence[str], on_corrupt: OnCorrupt
    ) -> None:
        self._spark = spark
        # Executors may run elsewhere, so paths are whole ones.
        self._paths = [
            str(directory.absolute()) for directory in store_directories(tuple(directories))
        ]
        self._options = ReadOptions(
            paths=tuple(self._paths),
            on_corrupt=on_corrupt,
            access_path=AccessPath.LOG,
            broker_names={},
        )

    def logs(self) -> list[LogPart]:
        """Return each log as far as its records are whole."""
        return [LogPart(path, *LogEnd(Path(path), self._options).look()) for path in self._paths]

    def part_end(self, log: LogPart, start: int, size: int) -> int:
        """Return where a record stands, or the end."""
        found = LogEnd(Path(log.store), self._options).advance(start, Allowance(size=size))
        # Where a walk cannot pass, whoever reads the rest meets what is wrong with it.
        return min(log.end, found) if found > start else log.end

    def messages(self, part: LogPart) -> DataFrame:
        """Return the messages between two places of a log."""
        splits = StorePlan(Path(part.store), self._options).between(part.start, part.end)
        rows = [(pickle.dumps(split),) for split in splits]
        table = self._spark.createDataFrame(rows, "split binary")
        table = table.repartition(max(1, len(rows)))
        return table.mapInArrow(_SplitRows(self._options).read, MESSAGE.struct())


@dataclass(frozen=True, slots=True)
class _SplitRows:
    """Reads splits on executors."""

    options: ReadOptions

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the splits that rows hold."""
        log = LogRead.from_options(self.options, MESSAGE.arrow())
        for batch in batches:
            for pickled in batch.column("split").to_pylist():
                # The driver has made it, a moment ago and for this job.
                yield from log.batches(pickle.loads(pickled))
