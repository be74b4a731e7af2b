"""The views that a query can speak of: over store directories, an archive or live topics."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from flintmq.spark.columns import table_schema
from flintmq.spark.failures import JobError
from flintmq.spark.jobs.archive import archived_messages
from flintmq.spark.jobs.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.live_tables import LiveTables
from flintmq.spark.jobs.query_plan import ViewNeeds
from flintmq.spark.jobs.stores import Damages, StoreTables
from flintmq.spark.live.columns import LIVE
from flintmq.spark.options import OnCorrupt, Source
from flintmq.spark.tables import table_of

MESSAGES: Final = "messages"
_CHEAPEST_COLUMN: Final = "queueId"
"""What is read of a view of which nothing is needed but the number of its rows."""


class Views(Protocol):
    """Where the rows of views come from."""

    @property
    def schemas(self) -> dict[str, StructType]:
        """The views by name."""
        ...

    def table(self, name: str, need: ViewNeeds) -> DataFrame:
        """Return a view, with the columns that are needed at least."""
        ...

    def damages(self) -> Damages:
        """Return what of the messages was left out because it is damaged."""
        ...


class _TableViews:
    """Views over the tables of a data source."""

    def __init__(self, tables: StoreTables | LiveTables) -> None:
        self._tables = tables

    def table(self, name: str, need: ViewNeeds) -> DataFrame:
        """Return a view; of the messages only what is needed."""
        if name != MESSAGES:
            return self._tables.table(Source(name))
        columns = need.columns or {_CHEAPEST_COLUMN}
        return self._tables.messages(columns, topic_option(need.topics))

    def damages(self) -> Damages:
        """Return what was skipped."""
        return self._tables.damages()


class StoreViews(_TableViews):
    """Views over store directories."""

    def __init__(self, tables: StoreTables) -> None:
        super().__init__(tables)
        self._on_corrupt = tables.on_corrupt
        self.schemas = {MESSAGES: table_schema(with_corrupt=False)} | {
            source.value: table_of(source).columns.struct()
            for source in Source
            if source is not Source.COMMIT_LOG
        }

    def damages(self) -> Damages:
        """Return what was skipped; without leave to skip there is none."""
        return Damages() if self._on_corrupt is OnCorrupt.FAIL else super().damages()


class LiveViews(_TableViews):
    """Views over live topics: their messages, and the offsets of groups."""

    def __init__(self, tables: LiveTables) -> None:
        super().__init__(tables)
        offsets = Source.OFFSETS
        self.schemas = {
            MESSAGES: LIVE.struct(),
            offsets.value: table_of(offsets).columns.struct(),
        }


class ArchiveViews:
    """The view of the messages of an archive.  Spark itself prunes what it reads of Parquet."""

    def __init__(self, spark: SparkSession, archive: str) -> None:
        self._spark = spark
        self._archive = archive
        self.schemas = {MESSAGES: table_schema(with_corrupt=False)}

    def table(self, name: str, need: ViewNeeds) -> DataFrame:
        """Return the messages of all runs that count."""
        return archived_messages(self._spark, self._archive)

    def damages(self) -> Damages:
        """Return nothing: an archive holds whole messages only."""
        return Damages()


def topic_option(topics: Iterable[str] | None) -> dict[str, str]:
    """Return the option that restricts a scan to topics, none if it could not say them."""
    names = sorted(topics or ())
    # The option is split at commas, and blanks around a name are dropped.
    sayable = all(name and name == name.strip() and "," not in name for name in names)
    return {"topic": ",".join(names)} if names and sayable else {}


def is_archive(path: str) -> bool:
    """Whether there is an archive, rather than a store."""
    return ArchiveDirectory(Path(path)).exists()


def open_views(
    spark: SparkSession, sources: Sequence[str], on_corrupt: OnCorrupt, splits_min: int | None
) -> Views:
    """Return the views over store directories, or over one archive."""
    archives = list(filter(is_archive, sources))
    if archives:
        if len(sources) > 1:
            raise JobError(f"{archives[0]} is an archive; it can only be asked alone")
        return ArchiveViews(spark, archives[0])
    tables = StoreTables(
        spark=spark,
        directories=tuple(sources),
        on_corrupt=on_corrupt,
        splits_min=splits_min,
    )
    return StoreViews(tables)
