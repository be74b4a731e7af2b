"""What is in store directories: volumes by topic, queue, tag and hour, lag, keys, duplicates.

The log is read once into *cells*: the messages of one directory, topic, queue, tag, hour and size
class.  All volumes are sums over cells.  A second scan, which can be left out, counts keys and
unique ids; it has to bring all of them together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from flintmq.model.topics import (
    DLQ_PREFIX,
    DUE_TIME_TOPICS,
    RETRY_PREFIX,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from flintmq.spark.jobs.job_input import JobInput, LiveInput, StoredInput
from flintmq.spark.jobs.job_tables import JobTables, open_tables
from flintmq.spark.jobs.stats.stats_report import (
    TOP,
    TOP_MAX,
    GroupLag,
    HourStats,
    KindStats,
    QueueStats,
    RepeatedText,
    SizeStats,
    StatsReport,
    TagStats,
    Top,
    TopicKind,
    TopicStats,
    Volume,
)
from flintmq.spark.options.store_options import OnCorrupt, Source
from flintmq.spark.runtime.failures import JobError
from flintmq.spark.runtime.stage_names import stage_name

HOURS_MAX: Final = 10_000
"""More than a year; of a longer time the last hours are kept."""

_CELL: Final = ("path", "topic", "queueId", "tags", "hour", "sizeFrom", "sizeTo")
# Classes of 1/64 of a power of two: their middle is at most one percent off.
_SIZE_SHIFT: Final = "CAST(GREATEST(0, FLOOR(LOG2(storeSize)) - 6) AS INT)"
_SIZE_FROM: Final = "SHIFTLEFT(SHIFTRIGHT(storeSize, shift), shift)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsRequest:
    """What is measured, and how much of it is listed.

    ``keys`` says whether keys and unique ids are counted too, which takes a second scan.  Lists of
    the report have ``top`` items at most.
    """

    source: JobInput
    top: int = TOP
    keys: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.top <= TOP_MAX:
            raise JobError(f"top is 1 to {TOP_MAX}, not {self.top}")


def stats(
    spark: SparkSession,
    directories: Sequence[str],
    *,
    top: int = TOP,
    keys: bool = True,
    on_corrupt: OnCorrupt = OnCorrupt.FAIL,
    splits_min: int | None = None,
) -> StatsReport:
    """Measure store directories; `StatsRequest` explains the arguments."""
    source = StoredInput(paths=tuple(directories), on_corrupt=on_corrupt, splits_min=splits_min)
    return measure(spark, StatsRequest(source=source, top=top, keys=keys))


def live_stats(
    spark: SparkSession, source: Mapping[str, str], *, top: int = TOP, keys: bool = True
) -> StatsReport:
    """Measure live topics; ``source`` are options of the data source.

    The report names brokers where it names directories otherwise.
    """
    return measure(spark, StatsRequest(source=LiveInput(source), top=top, keys=keys))


def measure(spark: SparkSession, request: StatsRequest) -> StatsReport:
    """Measure what a request names."""
    tables = open_tables(spark, request.source)
    top = request.top
    cells = _cells(tables).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with stage_name(spark.sparkContext, "counting messages"):
            volumes = _Volumes(cells, top)
        with stage_name(spark.sparkContext, "counting keys"):
            hot_keys, duplicate_ids = _repeated(tables, top) if request.keys else (None, None)
        return StatsReport(
            directories=tables.names,
            total=volumes.total(),
            kinds=volumes.kinds(),
            topics=volumes.topics(),
            queues=volumes.queues(),
            tags=volumes.tags(),
            hours=volumes.hours(),
            sizes=volumes.sizes(),
            lags=_lags(tables, top),
            hot_keys=hot_keys,
            duplicate_ids=duplicate_ids,
            damages=tables.damages(),
        )
    finally:
        cells.unpersist()


def kind_of(topic: Column) -> Column:
    """Return what the topic of a row is for."""
    return (
        F.when(topic.isin(*sorted(DUE_TIME_TOPICS)), TopicKind.DELAY.value)
        .when(topic.startswith(RETRY_PREFIX), TopicKind.RETRY.value)
        .when(topic.startswith(DLQ_PREFIX), TopicKind.DEAD_LETTER.value)
        .when(topic.isin(TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC), TopicKind.TRANSACTION.value)
        .otherwise(TopicKind.ORDINARY.value)
    )


def _cells(tables: JobTables) -> DataFrame:
    columns = ("path", "topic", "queueId", "tags", "storeTimestamp", "storeSize")
    size_from = F.expr(_SIZE_FROM)
    return (
        tables.messages(columns)
        .withColumn("shift", F.expr(_SIZE_SHIFT))
        .withColumn("sizeFrom", size_from)
        .withColumn("sizeTo", size_from + F.expr("SHIFTLEFT(1, shift)"))
        .withColumn("time", F.unix_millis("storeTimestamp"))
        .withColumn("hour", F.expr("time - PMOD(time, 3600000)"))
        .groupBy(*_CELL)
        .agg(
            F.count("*").alias("messages"),
            F.sum("storeSize").alias("bytes"),
            F.min("storeSize").alias("sizeMin"),
            F.max("storeSize").alias("sizeMax"),
            F.min("time").alias("first"),
            F.max("time").alias("last"),
        )
    )


class _Volumes:
    """Sums over the cells."""

    def __init__(self, cells: DataFrame, top: int) -> None:
        self._cells = cells
        self._top = top
        (self._total,) = cells.agg(
            *_volume_columns(),
            F.count_distinct("topic").alias("topics"),
            F.count_distinct("path", "topic", "queueId").alias("queues"),
            F.count_distinct(F.struct("topic", "tags")).alias("tags"),
            F.count_distinct("hour").alias("hours"),
        ).collect()

    def total(self) -> Volume:
        return _volume(self._total)

    def kinds(self) -> tuple[KindStats, ...]:
        rows = (
            self._cells.groupBy(kind_of(F.col("topic")).alias("kind"))
            .agg(
                F.count_distinct("topic").alias("topics"),
                F.sum("messages").alias("messages"),
                F.sum("bytes").alias("bytes"),
            )
            .collect()
        )
        found = {row["kind"]: row for row in rows}
        return tuple(
            KindStats(
                kind=kind,
                topic_count=row["topics"],
                message_count=row["messages"],
                byte_count=row["bytes"],
            )
            for kind in TopicKind
            if (row := found.get(kind.value)) is not None
        )

    def topics(self) -> Top[TopicStats]:
        queues = F.count_distinct("path", "queueId").alias("queues")
        grouped = self._cells.groupBy("topic").agg(*_volume_columns(), queues)
        ordered = grouped.withColumn("kind", kind_of(F.col("topic")))
        rows = _first(ordered, self._top, F.desc("messages"), F.asc("topic"))
        peaks = self._peaks([row["topic"] for row in rows])
        return Top(
            self._total["topics"],
            tuple(
                TopicStats(
                    topic=row["topic"],
                    kind=TopicKind(row["kind"]),
                    queue_count=row["queues"],
                    peak_hour_count=peaks[row["topic"]],
                    volume=_volume(row),
                )
                for row in rows
            ),
        )

    def _peaks(self, topics: list[str]) -> dict[str, int]:
        hourly = (
            self._cells.where(F.col("topic").isin(topics))
            .groupBy("topic", "hour")
            .agg(F.sum("messages").alias("messages"))
        )
        rows = hourly.groupBy("topic").agg(F.max("messages").alias("peak")).collect()
        return {row["topic"]: row["peak"] for row in rows}

    def queues(self) -> Top[QueueStats]:
        names = ("path", "topic", "queueId")
        grouped = self._cells.groupBy(*names).agg(*_volume_columns())
        rows = _first(grouped, self._top, F.desc("messages"), *map(F.asc, names))
        return Top(
            self._total["queues"],
            tuple(
                QueueStats(
                    path=row["path"],
                    topic=row["topic"],
                    queue_id=row["queueId"],
                    volume=_volume(row),
                )
                for row in rows
            ),
        )

    def tags(self) -> Top[TagStats]:
        grouped = self._cells.groupBy("topic", "tags").agg(*_volume_columns())
        order = (F.desc("messages"), F.asc("topic"), F.asc("tags"))
        rows = _first(grouped, self._top, *order)
        return Top(
            self._total["tags"],
            tuple(
                TagStats(topic=row["topic"], tag=row["tags"], volume=_volume(row)) for row in rows
            ),
        )

    def hours(self) -> Top[HourStats]:
        grouped = (
            self._cells.where(F.col("hour").isNotNull())
            .groupBy("hour")
            .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        )
        rows = _first(grouped, HOURS_MAX, F.desc("hour"))
        hours = [
            HourStats(
                hour=row["hour"],
                message_count=row["messages"],
                byte_count=row["bytes"],
            )
            for row in reversed(rows)
        ]
        return Top(self._total["hours"], tuple(hours))

    def sizes(self) -> tuple[SizeStats, ...]:
        # There are 64 classes for each power of two below 2 ** 31: a list that cannot grow.
        rows = (
            self._cells.groupBy("sizeFrom", "sizeTo")
            .agg(F.sum("messages").alias("messages"))
            .orderBy("sizeFrom")
            .collect()
        )
        return tuple(
            SizeStats(
                size_from=row["sizeFrom"],
                size_to=row["sizeTo"],
                message_count=row["messages"],
            )
            for row in rows
        )


def _volume_columns() -> list[Column]:
    return [
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min("sizeMin").alias("sizeMin"),
        F.max("sizeMax").alias("sizeMax"),
        F.expr("PERCENTILE((sizeFrom + sizeTo - 1) / 2, 0.5, messages)").alias("sizeMedian"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    ]


def _volume(row: Row) -> Volume:
    low, high = row["sizeMin"] or 0, row["sizeMax"] or 0
    return Volume(
        message_count=row["messages"] or 0,
        byte_count=row["bytes"] or 0,
        size_min=low,
        # The middle of a class may lie outside of what is really there.
        size_median=min(max(round(row["sizeMedian"] or 0), low), high),
        size_max=high,
        first_time=row["first"],
        last_time=row["last"],
    )


def _first(table: DataFrame, count: int, *order: Column) -> list[Row]:
    return table.orderBy(*order).limit(count).collect()


def _repeated(tables: JobTables, top: int) -> tuple[Top[RepeatedText], Top[RepeatedText]]:
    """Return the keys, and the unique ids, that more than one message of a topic has.

    Topics that the broker made are left out: the messages in them are in others as well.
    """
    messages = tables.messages(("path", "topic", "keys", "msgId"))
    ordinary = messages.where(kind_of(F.col("topic")) == TopicKind.ORDINARY.value)
    texts = F.expr(
        "CONCAT(ARRAY(NAMED_STRUCT('path', path, 'text', msgId)), TRANSFORM("
        "FILTER(SPLIT(COALESCE(keys, ''), ' '), key -> key <> ''), "
        "key -> NAMED_STRUCT('path', CAST(NULL AS STRING), 'text', key)))"
    )
    repeated = (
        ordinary.select("topic", F.explode(texts).alias("one"))
        .groupBy("topic", "one.path", "one.text")
        .agg(F.count("*").alias("messages"))
        .where("messages > 1")
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        is_key = F.col("path").isNull()
        counts = (F.count_if(is_key), F.count_if(~is_key))
        ((key_count, id_count),) = repeated.agg(*counts).collect()
        keys = _top_texts(repeated.where(is_key), key_count, top)
        return keys, _top_texts(repeated.where(~is_key), id_count, top)
    finally:
        repeated.unpersist()


def _top_texts(table: DataFrame, count: int, top: int) -> Top[RepeatedText]:
    order = (F.desc("messages"), F.asc("topic"), F.asc("text"), F.asc("path"))
    return Top(
        count,
        tuple(
            RepeatedText(
                path=row["path"],
                topic=row["topic"],
                text=row["text"],
                message_count=row["messages"],
            )
            for row in (_first(table, top, *order) if count else ())
        ),
    )


def _lags(tables: JobTables, top: int) -> Top[GroupLag]:
    """Return how far groups are behind; what a queue does not hold any more is not counted."""
    reached = F.greatest("offset", "minOffset")
    grouped = (
        tables.table(Source.OFFSETS)
        .where(F.col("maxOffset").isNotNull())
        .withColumn("behind", F.greatest(F.col("maxOffset") - reached, F.lit(0)))
        .groupBy("path", "group", "topic")
        .agg(F.count("*").alias("queues"), F.sum("behind").alias("lag"))
    )
    names = ("path", "group", "topic")
    # Each group has its line in a state file that a broker holds in memory: this is small.
    rows = grouped.orderBy(F.desc("lag"), *map(F.asc, names)).collect()
    return Top(
        len(rows),
        tuple(
            GroupLag(
                path=row["path"],
                group=row["group"],
                topic=row["topic"],
                queue_count=row["queues"],
                lag=row["lag"],
            )
            for row in rows[:top]
        ),
    )
