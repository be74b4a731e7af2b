"""What every job reads: the tables of some store directories, and what is damaged in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from flintmq.offline.layout import find_store
from flintmq.spark.jobs.damages import DAMAGES_MAX, DamagedRange, Damages, added
from flintmq.spark.jobs.job_input import StoredInput
from flintmq.spark.jobs.log_damages import set_aside_damages
from flintmq.spark.options.store_options import SPLIT_SIZE, OnCorrupt, Source
from flintmq.spark.rows.columns import CORRUPT_REASON, CORRUPT_SIZE, table_schema
from flintmq.spark.stored.split_plan import store_directories
from flintmq.spark.stored.tables import row_source_of

FORMAT: Final = "flintmq"
_SPLIT_SIZE_MIN: Final = 4096
# The reader says so of bytes which a crash has left and which no broker will ever read.
_TAIL_REASON: Final = "behind the end of the log"


def split_size_for(directories: Sequence[str], splits_min: int) -> int:
    """Return the size of splits that makes at least so many, if the logs are large enough."""
    size = sum(
        file.size
        for directory in store_directories(directories)
        for file in find_store(directory).log_files
    )
    return min(SPLIT_SIZE, max(_SPLIT_SIZE_MIN, -(-size // splits_min)))


def check_stores(directories: Iterable[str]) -> None:
    """Raise the error that a job would end with where something is no store."""
    for directory in store_directories(tuple(directories)):
        find_store(directory)


@dataclass(slots=True)
class StoreTables:
    """The tables of one or more store directories."""

    spark: SparkSession
    source: StoredInput
    _starts: dict[Path, int] = field(init=False)
    _reads_bodies: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._starts = _log_starts(self.source.paths)

    @property
    def names(self) -> tuple[str, ...]:
        """The directories, as reports call them."""
        return self.source.paths

    def messages(
        self, columns: Iterable[str], options: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Return a table of some columns of the messages."""
        schema = _picked(columns)
        self._reads_bodies |= "body" in schema.fieldNames()
        return self._read(schema, {"onCorruptRecord": self.source.on_corrupt.value}, options)

    def table(self, source: Source, options: Mapping[str, str] | None = None) -> DataFrame:
        """Return the whole table of one of the other sources."""
        reader = self.spark.read.format(FORMAT).schema(row_source_of(source).columns.struct())
        reader = reader.option("source", source.value).options(**(options or {}))
        return reader.load([*self.source.paths])

    def damages(self) -> Damages:
        """Return what was skipped, for which the log is read once more, and what was set aside.

        Nothing was skipped unless that is allowed.  Bodies are looked at if a table has shown
        them.
        """
        aside = added(
            set_aside_damages(directory) for directory in store_directories(self.source.paths)
        )
        if self.source.set_aside:
            aside = Damages()  # It was read.
        if self.source.on_corrupt is OnCorrupt.FAIL:
            return aside
        columns = ["path", "physicalOffset", "storeSize", "crcOk", CORRUPT_REASON, CORRUPT_SIZE]
        columns += ["body"] if self._reads_bodies else []
        rows = self._read(_picked(columns), {"onCorruptRecord": OnCorrupt.ROW.value})
        size = F.coalesce(CORRUPT_SIZE, "storeSize").cast("long")
        # A record whose body does not decompress is no hole: it is there, without its body.
        is_damage = F.col(CORRUPT_REASON).isNotNull() & ~F.coalesce("crcOk", F.lit(False))
        lost = rows.where(is_damage & ~F.col(CORRUPT_REASON).startswith(_TAIL_REASON))
        found = lost.select(
            "path",
            F.col("physicalOffset").alias("start"),
            size.alias("size"),
            F.col(CORRUPT_REASON).alias("reason"),
        )
        bodies = 0
        if self._reads_bodies:
            bodies = rows.where(F.col(CORRUPT_REASON).isNotNull() & F.col("crcOk")).count()
        return added([_damages(found), Damages(body_count=bodies), self._deleted(), aside])

    def _deleted(self) -> Damages:
        """Return what brokers have deleted while it was read: nobody knows what was seen of it."""
        if self.source.set_aside:
            return Damages()
        gone = [
            DamagedRange(str(path), start, now - start, "was deleted while it was read")
            for path, now in _log_starts(self.source.paths).items()
            if (start := self._starts.get(path, now)) < now
        ]
        return Damages(len(gone), sum(one.size for one in gone), tuple(gone[:DAMAGES_MAX]))

    def _read(self, schema: StructType, *options: Mapping[str, str] | None) -> DataFrame:
        reader = self.spark.read.format(FORMAT).schema(schema)
        for some in (self._log_options(), *options):
            reader = reader.options(**(some or {}))
        return reader.load([*self.source.paths])

    def _log_options(self) -> dict[str, str]:
        options = {"setAside": "true"} if self.source.set_aside else {}
        splits_min = self.source.splits_min
        if splits_min is not None:
            options["splitSize"] = str(split_size_for(self.source.paths, splits_min))
        return options


def _log_starts(paths: Sequence[str]) -> dict[Path, int]:
    """Return where the logs of stores begin."""
    layouts = {directory: find_store(directory) for directory in store_directories(paths)}
    return {
        directory: layout.log_files[0].first_offset
        for directory, layout in layouts.items()
        if layout.log_files
    }


def _picked(columns: Iterable[str]) -> StructType:
    """Return a schema of the columns, which is how the data source is told what to build."""
    wanted = frozenset(columns)
    return StructType([one for one in table_schema(with_corrupt=True) if one.name in wanted])


def _damages(found: DataFrame) -> Damages:
    found = found.persist()
    totals = found.agg(F.count("*").alias("count"), F.sum("size").alias("size")).first()
    assert totals is not None
    rows = found.orderBy("path", "start").limit(DAMAGES_MAX).collect() if totals["count"] else []
    found.unpersist()
    return Damages(
        count=totals["count"],
        size=totals["size"] or 0,
        ranges=tuple(DamagedRange(*row) for row in rows),
    )
