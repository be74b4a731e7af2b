"""What every job reads: the tables of some store directories, and what is damaged in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from flintmq.offline.layout import find_store
from flintmq.spark.columns import CORRUPT_REASON, CORRUPT_SIZE, table_schema
from flintmq.spark.options import SPLIT_SIZE, OnCorrupt, Source
from flintmq.spark.plan import store_directories
from flintmq.spark.tables import table_of

FORMAT: Final = "flintmq"
DAMAGES_MAX: Final = 20
_SPLIT_SIZE_MIN: Final = 4096
# The reader says so of bytes which a crash has left and which no broker will ever read.
_TAIL_REASON: Final = "behind the end of the log"


class DamagedRange(NamedTuple):
    """A range of one log that was left out; the offsets are physical."""

    path: str
    start: int
    size: int
    reason: str


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


@dataclass(frozen=True, slots=True)
class Damages:
    """What was left out of an answer: how much, and the first ranges of it."""

    count: int = 0
    size: int = 0
    ranges: tuple[DamagedRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTables:
    """The tables of one or more store directories.

    ``splits_min`` is the number of tasks that a scan of the log has at least, if the log is
    large enough for that; None leaves the size of splits to the data source.
    """

    spark: SparkSession
    directories: tuple[str, ...]
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    splits_min: int | None = None

    def messages(
        self, columns: Iterable[str], options: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Return a table of some columns of the messages."""
        return self._read(_picked(columns), {"onCorruptRecord": self.on_corrupt.value}, options)

    def table(self, source: Source, options: Mapping[str, str] | None = None) -> DataFrame:
        """Return the whole table of one of the other sources."""
        reader = self.spark.read.format(FORMAT).schema(table_of(source).columns.struct())
        reader = reader.option("source", source.value).options(**(options or {}))
        return reader.load([*self.directories])

    def damages(self) -> Damages:
        """Read the log once more, and return what ``skip`` leaves out of it."""
        columns = ("path", "physicalOffset", "storeSize", "crcOk", CORRUPT_REASON, CORRUPT_SIZE)
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
        return _damages(found)

    def _read(self, schema: StructType, *options: Mapping[str, str] | None) -> DataFrame:
        reader = self.spark.read.format(FORMAT).schema(schema)
        for some in (self._split_options(), *options):
            reader = reader.options(**(some or {}))
        return reader.load([*self.directories])

    def _split_options(self) -> dict[str, str]:
        if self.splits_min is None:
            return {}
        return {"splitSize": str(split_size_for(self.directories, self.splits_min))}


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
