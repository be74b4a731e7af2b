"""What is different between two stores: a master and its slave, a store before and after.

Messages are matched by topic, queue and queue offset, and compared by hashes of what they hold.
Their physical offsets are compared too, but on their own: a store that was restored, or compacted,
holds the same messages at other physical offsets.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from flintmq.offline.layout import find_store
from flintmq.spark.jobs.diff.diff_report import (
    DETAILS,
    DETAILS_MAX,
    Difference,
    DifferenceKind,
    DiffReport,
    OutsideRange,
    QueueDiff,
    Side,
    StoreSide,
)
from flintmq.spark.jobs.job_input import StoredInput
from flintmq.spark.jobs.store_tables import StoreTables
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.runtime.failures import JobError
from flintmq.spark.runtime.stage_names import stage_name
from flintmq.spark.stored.split_plan import store_directories

QUEUES_MAX: Final = 10_000

_KEY: Final = ("topic", "queueId", "queueOffset")
_QUEUE: Final = ("topic", "queueId")
_PARTS: Final = {
    "body": ("body", "bodyCRC"),
    "properties": ("entries",),
    "times": ("bornTimestamp", "storeTimestamp"),
    "hosts": ("bornHost", "storeHost"),
    "flags": ("sysFlag", "flag", "reconsumeTimes", "preparedTransactionOffset"),
    "size": ("storeSize",),
}
"""The parts of a message that are compared; the report says which of them differ."""

_AGGREGATES: Final[tuple[tuple[Callable[[Column], Column], str, str], ...]] = (
    (F.count, "physicalOffset", "count"),
    (F.min, "physicalOffset", "physical"),
    (F.bit_xor, "record", "xor"),
    (F.min, "record", "min"),
    (F.max, "record", "max"),
    *((F.bit_xor, part, part) for part in _PARTS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRequest:
    """Which two store directories are compared, and how.

    ``strict`` takes for a difference what is a note otherwise: records that one store does not
    keep any more, and equal messages at different physical offsets.  The report describes
    ``details`` differences of each kind at most.
    """

    left: StoredInput
    right: StoredInput
    details: int = DETAILS
    strict: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.details <= DETAILS_MAX:
            raise JobError(f"details is 0 to {DETAILS_MAX}, not {self.details}")
        for side in (self.left, self.right):
            if len(side.paths) != 1:
                raise JobError(f"two directories are compared, not {', '.join(side.paths)} at once")


def diff(
    spark: SparkSession,
    left: str,
    right: str,
    *,
    details: int = DETAILS,
    strict: bool = False,
    on_corrupt: OnCorrupt = OnCorrupt.FAIL,
    splits_min: int | None = None,
) -> DiffReport:
    """Compare two store directories; `DiffRequest` explains the arguments."""
    first, second = (
        StoredInput(paths=(path,), on_corrupt=on_corrupt, splits_min=splits_min)
        for path in (left, right)
    )
    return compare(spark, DiffRequest(left=first, right=second, details=details, strict=strict))


def compare(spark: SparkSession, request: DiffRequest) -> DiffReport:
    """Compare the two stores that a request names."""
    sides = [StoreTables(spark, source) for source in (request.left, request.right)]
    strict = request.strict
    keys = _keys(*sides).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        starts = [_log_start(side.source.paths[0]) for side in sides]
        judged = _judged(keys, *starts, strict=strict)
        with stage_name(spark.sparkContext, "comparing messages"):
            return _report(judged, sides, starts, request.details, strict=strict)
    finally:
        keys.unpersist()


def _log_start(directory: str) -> int:
    (path,) = store_directories((directory,))
    return min((file.first_offset for file in find_store(path).log_files), default=0)


def _keys(left: StoreTables, right: StoreTables) -> DataFrame:
    """Return one row for each topic, queue and offset, with what either store has there.

    Two records of one store may claim the same offset.  They count as one, with a hash of both.
    """
    both = (
        _hashed(left)
        .withColumn("isLeft", F.lit(True))
        .unionByName(_hashed(right).withColumn("isLeft", F.lit(False)))
    )
    sides = {"left": F.col("isLeft"), "right": ~F.col("isLeft")}
    found = both.groupBy(*_KEY).agg(
        *(
            _of_side(function, name, condition).alias(f"{side}_{alias}")
            for side, condition in sides.items()
            for function, name, alias in _AGGREGATES
        )
    )
    kind = (
        F.when(F.col("right_count") == 0, DifferenceKind.MISSING.value)
        .when(F.col("left_count") == 0, DifferenceKind.EXTRA.value)
        .when(~_same("count", "xor", "min", "max"), DifferenceKind.CHANGED.value)
        .when(~_same("physical"), DifferenceKind.MOVED.value)
    )
    parts = F.array_compact(F.array(*(F.when(~_same(part), part) for part in _PARTS)))
    return found.select(
        *_KEY,
        *("left_count", "right_count", "left_physical", "right_physical"),
        kind.alias("kind"),
        F.when(kind == DifferenceKind.CHANGED.value, parts).alias("parts"),
    )


def _hashed(side: StoreTables) -> DataFrame:
    columns = {name for names in _PARTS.values() for name in names} - {"entries"} | {"properties"}
    messages = side.messages((*_KEY, "physicalOffset", *columns))
    # A map has no hash, since the order of its entries says nothing.
    messages = messages.withColumn("entries", F.array_sort(F.map_entries("properties")))
    hashes = {part: F.xxhash64(*names) for part, names in _PARTS.items()}
    return messages.select(
        *_KEY, "physicalOffset", *(value.alias(part) for part, value in hashes.items())
    ).withColumn("record", F.xxhash64(*hashes))


def _of_side(function: Callable[[Column], Column], name: str, condition: Column) -> Column:
    return function(F.when(condition, F.col(name)))


def _same(*names: str) -> Column:
    equal = [F.col(f"left_{name}").eqNullSafe(F.col(f"right_{name}")) for name in names]
    return functools.reduce(Column.__and__, equal)


def _judged(keys: DataFrame, left_start: int, right_start: int, *, strict: bool) -> DataFrame:
    """Mark the messages that only one store has because the other has deleted them.

    Two logs that agree on the physical offset of any message are copies of each other; then the
    start of a log says what it has deleted.  Otherwise the first offset of each queue says it.
    """
    outside = F.lit(False)
    if not strict:
        if keys.where(F.col("left_physical") == F.col("right_physical")).limit(1).count():
            gone_right = F.col("left_physical") < right_start
            gone_left = F.col("right_physical") < left_start
        else:
            firsts = keys.groupBy(*_QUEUE).agg(
                F.min(F.when(F.col("left_count") > 0, F.col("queueOffset"))).alias("leftFirst"),
                F.min(F.when(F.col("right_count") > 0, F.col("queueOffset"))).alias("rightFirst"),
            )
            keys = keys.join(F.broadcast(firsts), [*_QUEUE])
            gone_right = F.col("queueOffset") < F.col("rightFirst")
            gone_left = F.col("queueOffset") < F.col("leftFirst")
        outside = (
            F.when(F.col("kind") == DifferenceKind.MISSING.value, gone_right)
            .when(F.col("kind") == DifferenceKind.EXTRA.value, gone_left)
            .otherwise(False)
        )
    return keys.withColumn("isOutside", F.coalesce(outside, F.lit(False)))


def _report(
    judged: DataFrame,
    sides: Sequence[StoreTables],
    starts: Sequence[int],
    details: int,
    *,
    strict: bool,
) -> DiffReport:
    totals = _totals(judged)
    differing = judged.where(F.col("kind").isNotNull() & ~F.col("isOutside"))
    counted = differing if strict else differing.where(f"kind <> '{DifferenceKind.MOVED.value}'")
    queue_count, queues = _queues(differing)
    range_count, outside = _outside(judged.where("isOutside"))
    left, right = (
        StoreSide(
            path=tables.names[0],
            message_count=totals[f"{side.value}_count"],
            log_start=start,
            damages=tables.damages(),
        )
        for side, tables, start in zip(Side, sides, starts, strict=True)
    )
    return DiffReport(
        left=left,
        right=right,
        is_strict=strict,
        same_count=totals["same"],
        missing_count=totals[DifferenceKind.MISSING.value],
        extra_count=totals[DifferenceKind.EXTRA.value],
        changed_count=totals[DifferenceKind.CHANGED.value],
        moved_count=totals[DifferenceKind.MOVED.value],
        outside_count=totals["outside"],
        first=next(iter(_differences(counted, 1)), None),
        queue_count=queue_count,
        queues=queues,
        outside_range_count=range_count,
        outside=outside,
        examples=tuple(
            one
            for kind in DifferenceKind
            if totals[kind.value]
            for one in _differences(differing.where(f"kind = '{kind.value}'"), details)
        ),
    )


def _totals(judged: DataFrame) -> Row:
    moved = F.col("kind") == DifferenceKind.MOVED.value
    (row,) = judged.agg(
        F.coalesce(F.sum("left_count"), F.lit(0)).alias("left_count"),
        F.coalesce(F.sum("right_count"), F.lit(0)).alias("right_count"),
        F.count_if(F.col("kind").isNull() | moved).alias("same"),
        F.count_if("isOutside").alias("outside"),
        *_kind_counts(),
    ).collect()
    return row


def _kind_counts() -> list[Column]:
    return [
        F.count_if((F.col("kind") == kind.value) & ~F.col("isOutside")).alias(kind.value)
        for kind in DifferenceKind
    ]


def _differences(differing: DataFrame, count: int) -> list[Difference]:
    physical_offset = F.least("left_physical", "right_physical")
    rows = differing.orderBy(physical_offset, *_KEY).limit(count).collect()
    return [
        Difference(
            kind=DifferenceKind(row["kind"]),
            topic=row["topic"],
            queue_id=row["queueId"],
            queue_offset=row["queueOffset"],
            left_physical_offset=row["left_physical"],
            right_physical_offset=row["right_physical"],
            parts=tuple(row["parts"] or ()),
        )
        for row in rows
    ]


def _queues(differing: DataFrame) -> tuple[int, tuple[QueueDiff, ...]]:
    first = F.min("queueOffset").alias("first")
    grouped = differing.groupBy(*_QUEUE).agg(*_kind_counts(), first)
    count, rows = _first_rows(grouped, *_QUEUE)
    return count, tuple(
        QueueDiff(
            topic=row["topic"],
            queue_id=row["queueId"],
            missing_count=row[DifferenceKind.MISSING.value],
            extra_count=row[DifferenceKind.EXTRA.value],
            changed_count=row[DifferenceKind.CHANGED.value],
            moved_count=row[DifferenceKind.MOVED.value],
            first_offset=row["first"],
        )
        for row in rows
    )


def _outside(rows: DataFrame) -> tuple[int, tuple[OutsideRange, ...]]:
    side = F.when(F.col("left_count") > 0, Side.LEFT.value).otherwise(Side.RIGHT.value)
    grouped = rows.groupBy(side.alias("side"), *_QUEUE).agg(
        F.min("queueOffset").alias("first"),
        F.max("queueOffset").alias("last"),
        F.sum(F.col("left_count") + F.col("right_count")).alias("messages"),
    )
    count, found = _first_rows(grouped, "side", *_QUEUE)
    return count, tuple(
        OutsideRange(
            side=Side(row["side"]),
            topic=row["topic"],
            queue_id=row["queueId"],
            first_offset=row["first"],
            last_offset=row["last"],
            message_count=row["messages"],
        )
        for row in found
    )


def _first_rows(table: DataFrame, *order: str) -> tuple[int, list[Row]]:
    """Return how many rows a table has, and the first QUEUES_MAX of them."""
    rows = table.orderBy(*order).limit(QUEUES_MAX).collect()
    return len(rows) if len(rows) < QUEUES_MAX else table.count(), rows
