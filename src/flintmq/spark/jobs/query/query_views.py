"""The views that a query can speak of: over store directories, an archive or live topics."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.archive.store_archive import archived_messages
from flintmq.spark.jobs.damages import Damages
from flintmq.spark.jobs.job_input import JobInput, LiveInput
from flintmq.spark.jobs.job_tables import JobTables, open_tables
from flintmq.spark.jobs.query.query_plan import ViewNeeds
from flintmq.spark.live.live_columns import LIVE
from flintmq.spark.options.store_options import Source
from flintmq.spark.rows.columns import table_schema
from flintmq.spark.runtime.failures import JobError
from flintmq.spark.stored.tables import row_source_of

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

    def __init__(self, tables: JobTables) -> None:
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

    def __init__(self, tables: JobTables) -> None:
        super().__init__(tables)
        self.schemas = {MESSAGES: table_schema(with_corrupt=False)} | {
            source.value: row_source_of(source).columns.struct()
            for source in Source
            if source is not Source.COMMIT_LOG
        }


class LiveViews(_TableViews):
    """Views over live topics: their messages, and the offsets of groups."""

    def __init__(self, tables: JobTables) -> None:
        super().__init__(tables)
        offsets = Source.OFFSETS
        self.schemas = {
            MESSAGES: LIVE.struct(),
            offsets.value: row_source_of(offsets).columns.struct(),
        }


class ArchiveViews:
    """The view of the messages of an archive.  Spark itself prunes what it reads of Parquet."""

    def __init__(self, spark: SparkSession, archive: str) -> None:
        self._spark = spark
        self._archive = archive
        self._reads_bodies = False
        self.schemas = {MESSAGES: table_schema(with_corrupt=False)}

    def table(self, name: str, need: ViewNeeds) -> DataFrame:
        """Return the messages of all runs that count."""
        self._reads_bodies |= "body" in need.columns
        return archived_messages(self._spark, self._archive)

    def damages(self) -> Damages:
        """Return what the archive lacks of the logs that it was made of."""
        damages = ArchiveDirectory(Path(self._archive).resolve()).damages()
        return damages if self._reads_bodies else replace(damages, body_count=0)


def topic_option(topics: Iterable[str] | None) -> dict[str, str]:
    """Return the option that restricts a scan to topics, none if it could not say them."""
    names = sorted(topics or ())
    # The option is split at commas, and blanks around a name are dropped.
    sayable = all(name and name == name.strip() and "," not in name for name in names)
    return {"topic": ",".join(names)} if names and sayable else {}


def is_archive(path: str) -> bool:
    """Whether there is an archive, rather than a store."""
    return ArchiveDirectory(Path(path)).exists()


def open_views(spark: SparkSession, source: JobInput) -> Views:
    """Return the views over store directories, over one archive, or over live topics."""
    if isinstance(source, LiveInput):
        return LiveViews(open_tables(spark, source))
    archives = list(filter(is_archive, source.paths))
    if not archives:
        return StoreViews(open_tables(spark, source))
    if len(source.paths) > 1:
        raise JobError(f"{archives[0]} is an archive; it can only be asked alone")
    if source.set_aside:
        raise JobError(f"{archives[0]} is an archive; only a store has something set aside")
    return ArchiveViews(spark, archives[0])
