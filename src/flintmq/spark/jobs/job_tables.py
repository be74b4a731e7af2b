"""The tables that a job reads, whether its input is stored or live."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from flintmq.spark.jobs.damages import Damages
from flintmq.spark.jobs.job_input import JobInput, LiveInput
from flintmq.spark.jobs.live_tables import LiveTables
from flintmq.spark.jobs.store_tables import StoreTables
from flintmq.spark.options.store_options import Source


class JobTables(Protocol):
    """The tables of store directories, or of live topics."""

    @property
    def names(self) -> tuple[str, ...]:
        """How reports call what is read: directories, or a cluster."""
        ...

    def messages(
        self, columns: Iterable[str], options: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Return a table of some columns of the messages."""
        ...

    def table(self, source: Source, options: Mapping[str, str] | None = None) -> DataFrame:
        """Return the whole table of one of the other sources."""
        ...

    def damages(self) -> Damages:
        """Return what was left out of the messages because it is damaged."""
        ...


def open_tables(spark: SparkSession, source: JobInput) -> JobTables:
    """Return the tables of an input; of live topics, as they are at this moment."""
    if isinstance(source, LiveInput):
        return LiveTables(spark, source)
    return StoreTables(spark, source)
