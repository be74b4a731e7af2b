"""Archiving live topics: Parquet by topic and day, without a look at the files of a broker.

A run adds what is new in each queue since the run before; Spark's checkpoint keeps how far it was,
and Spark's own list of files makes each message count once, whatever was interrupted.

    messages/topic=…/day=…/*.parquet   rows, by topic and UTC day of the store time
    messages/_spark_metadata           the files that count
    _flintmq_live/                     the checkpoint

What only a log tells is not there, so no store can be restored from it; `archive` does that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from flintmq.spark.errors import ArchiveError
from flintmq.spark.failures import JobError, reason_of
from flintmq.spark.jobs.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.stores import FORMAT
from flintmq.spark.live.columns import LIVE
from flintmq.spark.offset_table import EARLIEST_TEXT, STARTING

CHECKPOINT: Final = "_flintmq_live"
MESSAGES: Final = "messages"
DAY: Final = "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArchiveReport:
    """What a run has added, and how many rows and files there are now."""

    archive: Path
    added_count: int
    row_count: int
    file_count: int


def archive_topics(
    spark: SparkSession, source: Mapping[str, str], to: Path | str
) -> LiveArchiveReport:
    """Add to the archive ``to`` what is new in live topics since its last run.

    ``source`` are options of the data source.  The first run begins with the oldest messages,
    unless ``startingOffsets`` or a time says otherwise.

    Raises:
        ArchiveError: there is an archive of stores in that place.
        JobError: a run failed; the next one goes on where it was.
    """
    target = Path(to).resolve()
    if ArchiveDirectory(target).exists():
        raise ArchiveError(str(target), "this archive is made of stores; live topics need another")
    before = archived_topics(spark, target).count()
    reader = spark.readStream.format(FORMAT).option(STARTING, EARLIEST_TEXT)
    table = reader.options(**source).load()
    day = F.date_format("storeTimestamp", "yyyy-MM-dd")
    query = (
        table.withColumn(DAY, day)
        .writeStream.format("parquet")
        .partitionBy("topic", DAY)
        .option("checkpointLocation", str(target / CHECKPOINT))
        .option("compression", "zstd")
        .trigger(availableNow=True)
        .start(str(target / MESSAGES))
    )
    try:
        query.awaitTermination()
    except PySparkException as error:
        raise JobError(reason_of(error)) from error
    finally:
        query.stop()
    rows = archived_topics(spark, target)
    row_count = rows.count()
    return LiveArchiveReport(
        archive=target,
        added_count=row_count - before,
        row_count=row_count,
        file_count=len(rows.inputFiles()),
    )


def is_live_archive(path: Path | str) -> bool:
    """Whether there is an archive of live topics."""
    return (Path(path) / CHECKPOINT).is_dir()


def archived_topics(spark: SparkSession, archive: Path | str) -> DataFrame:
    """Return the rows of an archive of live topics: the columns of messages, and the day."""
    # A schema of our own: Spark would take a topic for a number if all of them look like one.
    schema = StructType([*LIVE.struct(), StructField(DAY, StringType())])
    directory = Path(archive).resolve() / MESSAGES
    if not directory.is_dir():
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(str(directory))
