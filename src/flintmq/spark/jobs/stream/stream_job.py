"""A running job on live topics: choose, transform, aggregate, and put the rows somewhere.

It is a streaming query with a checkpoint: stopped, killed or failed, it goes on where it was when
it is started again with the same checkpoint.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructField, StructType, TimestampType

from flintmq.model.subscription import EVERYTHING
from flintmq.spark.jobs.damages import Damages
from flintmq.spark.jobs.query.query_plan import ViewNeeds
from flintmq.spark.jobs.query.query_views import MESSAGES
from flintmq.spark.jobs.query.sql_query import ask_views, own_session
from flintmq.spark.jobs.store_tables import FORMAT
from flintmq.spark.jobs.stream.stream_start import start_text
from flintmq.spark.live.cluster_options import CONNECTION_OPTIONS
from flintmq.spark.live.live_choice import ALIASES
from flintmq.spark.live.live_columns import LIVE
from flintmq.spark.live.live_options import parse_stream
from flintmq.spark.live.places import Places, counted_between, offsets_of, places_from_json
from flintmq.spark.runtime.failures import JobError, SqlError, reason_of

CHECKPOINT: Final = "_checkpoint"
"""The checkpoint of a query that writes Parquet, in the directory of the rows."""

EVENT_TIME: Final = "storeTimestamp"
WINDOW: Final = "window"
_SENT: Final = ("body", "tags", "keys", "properties")
"""What of a message is sent on where no SQL says otherwise."""

_CONNECTION: Final = frozenset(map(str.lower, CONNECTION_OPTIONS)) | ALIASES.keys()
_COUNTS: Final = (
    f"SELECT {WINDOW}.start, {WINDOW}.end, topic, count(*) AS messages, sum(storeSize) AS bytes "
    f"FROM messages GROUP BY {WINDOW}, topic"
)

RowsTaker = Callable[[DataFrame, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTarget:
    """Where rows go: one of the three is there.

    ``rows`` is called with the rows of each micro-batch and its number; a batch that is repeated
    after a failure has the same number.
    """

    parquet: str | None = None
    topic: str | None = None
    rows: RowsTaker | None = None

    def __post_init__(self) -> None:
        given = [one for one in (self.parquet, self.topic, self.rows) if one is not None]
        if len(given) != 1:
            raise JobError("rows go to one target: parquet, topic or rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What a job does.

    ``sql`` speaks of the view ``messages``.  ``window`` is a length such as "10 minutes": the
    view gets a column of that name, for GROUP BY, and messages that are later than ``late`` are
    left out of windows.  ``trigger_seconds`` None means as soon as the last batch is done.
    """

    sql: str | None = None
    window: str | None = None
    late: str | None = None
    checkpoint: str | None = None
    trigger_seconds: float | None = None
    available_now: bool = False

    def __post_init__(self) -> None:
        if self.trigger_seconds is not None and self.trigger_seconds < 0:
            raise JobError(f"trigger_seconds is 0 or more, not {self.trigger_seconds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """How far a job has come; ``behind`` are messages that were there and not read yet.

    ``missing`` are messages that should have been read and were not there, as far as is known.
    """

    batch: int
    row_count: int
    rows_per_second: float
    behind: int
    missing: int


class StreamJob:
    """A running job; leaving the context stops it.

    ``start_text`` says from where it reads.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: Mapping[str, str],
        target: StreamTarget,
        settings: StreamSettings,
    ) -> None:
        check_target(source, target)
        self._stack = ExitStack()
        session = own_session(spark)
        views = _StreamViews(session, source, settings)
        sql = settings.sql or (_COUNTS if settings.window else None)
        try:
            table = _plain(views, target) if sql is None else _asked(session, views, sql)
            self.query: StreamingQuery = self._start(table, source, target, settings)
        except AnalysisException as error:
            self._stack.close()
            raise SqlError(reason_of(error)) from error
        except BaseException:
            self._stack.close()
            raise
        self._told = -1
        read = parse_stream(source).read
        # A broker that filters does not say how many messages it has passed over.
        is_counted = read.expression == EVERYTHING and not read.drop_repeats
        self._gives_all = is_counted and not read.fail_on_data_loss
        self.row_count = 0
        self.missing_count = 0

    def _start(
        self,
        table: DataFrame,
        source: Mapping[str, str],
        target: StreamTarget,
        settings: StreamSettings,
    ) -> StreamingQuery:
        writer = _to(table.writeStream, source, target)
        is_updated = target.rows is not None and settings.window is not None
        writer = writer.outputMode("update" if is_updated else "append")
        checkpoint = self._checkpoint(target, settings)
        self.start_text = start_text(checkpoint, source)
        writer = writer.option("checkpointLocation", checkpoint)
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        elif settings.trigger_seconds is not None:
            writer = writer.trigger(processingTime=f"{round(settings.trigger_seconds * 1000)} ms")
        return writer.start()

    def _checkpoint(self, target: StreamTarget, settings: StreamSettings) -> str:
        if settings.checkpoint is not None:
            return settings.checkpoint
        if target.parquet is not None:
            return str(Path(target.parquet) / CHECKPOINT)
        if target.topic is not None:
            raise JobError("rows that go to a topic need a checkpoint, to go on where they were")
        # Who only looks has nothing to go on with.
        made = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="flintmq-stream-"))
        return str(made)

    def wait(self, seconds: float) -> bool:
        """Wait until the job ends by itself, so long at most; return whether it has.

        Raises:
            StreamingQueryException: it failed; `flintmq.spark.runtime.failures` gives the reason.
        """
        # PySpark hints at whole seconds, and takes fractions of them as well.
        return bool(self.query.awaitTermination(seconds))  # type: ignore[arg-type]

    def progress(self) -> list[StreamProgress]:
        """Return the micro-batches that have ended since the last call."""
        found = []
        for one in self.query.recentProgress:
            told = _progress_of(one, gives_all=self._gives_all)
            if one.batchId > self._told and (one.numInputRows or told.missing):
                self._told = one.batchId
                found.append(told)
                self.row_count += one.numInputRows
                self.missing_count += told.missing
        return found

    def stop(self) -> None:
        """Stop; a micro-batch under way is given up, and done again at the next start."""
        with self._stack:
            self.query.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _StreamViews:
    """The view ``messages`` over live topics that go on."""

    def __init__(
        self, spark: SparkSession, source: Mapping[str, str], settings: StreamSettings
    ) -> None:
        self._spark = spark
        self._source = source
        self._settings = settings
        schema = LIVE.struct()
        if settings.window is not None:
            schema = StructType([*schema, StructField(WINDOW, _WINDOW_TYPE)])
        self.schemas = {MESSAGES: schema}

    def table(self, name: str, need: ViewNeeds) -> DataFrame:
        """Return the messages, with the columns that are needed."""
        settings = self._settings
        wanted = set(need.columns) or {"queueId"}
        if settings.window is not None:
            wanted |= {EVENT_TIME}
        schema = StructType([one for one in LIVE.struct() if one.name in wanted])
        reader = self._spark.readStream.format(FORMAT).schema(schema).options(**self._source)
        table = reader.load()
        if settings.window is None:
            return table
        table = table.withWatermark(EVENT_TIME, settings.late or settings.window)
        return table.withColumn(WINDOW, F.window(EVENT_TIME, settings.window))

    def damages(self) -> Damages:
        """Return nothing: a broker serves whole messages only."""
        return Damages()


_WINDOW_TYPE: Final = StructType(
    [StructField("start", TimestampType()), StructField("end", TimestampType())]
)


def _plain(views: _StreamViews, target: StreamTarget) -> DataFrame:
    names = LIVE.kinds if target.topic is None else _SENT
    return views.table(MESSAGES, ViewNeeds(columns=set(names))).select(*names)


def _asked(session: SparkSession, views: _StreamViews, sql: str) -> DataFrame:
    table, _ = ask_views(session, views, sql)
    if not table.isStreaming:
        raise SqlError("the query does not speak of the view messages")
    return table


def check_target(source: Mapping[str, str], target: StreamTarget) -> None:
    """Raise JobError for a topic that would be read and written: each message again, for ever."""
    if target.topic is None:
        return
    selection = parse_stream(source).read.selection
    is_read = target.topic in selection.named_topics
    if selection.pattern is not None:
        is_read = bool(selection.matching([target.topic]))
    if is_read:
        raise JobError(
            f"the topic {target.topic} would be read and written by the same job, without an end"
        )


def _to(
    writer: DataStreamWriter, source: Mapping[str, str], target: StreamTarget
) -> DataStreamWriter:
    if target.parquet is not None:
        return writer.format("parquet").option("path", target.parquet)
    if target.topic is not None:
        cluster = {name: it for name, it in source.items() if name.lower() in _CONNECTION}
        return writer.format(FORMAT).options(**cluster).option("topic", target.topic)
    assert target.rows is not None
    return writer.foreachBatch(target.rows)


def _progress_of(one: StreamingQueryProgress, *, gives_all: bool) -> StreamProgress:
    behind = missing = 0
    for source in one.sources:
        reached = _places(source.endOffset)
        # Queues that are not chosen any more have a place, and no end.
        offsets = offsets_of(reached)
        ends = offsets_of(_places(source.latestOffset))
        behind += sum(max(0, end - offsets.get(queue, 0)) for queue, end in ends.items())
        planned, passed = counted_between(_places(source.startOffset), reached)
        missing += passed
        if gives_all:
            missing += max(0, planned - source.numInputRows)
    return StreamProgress(
        batch=one.batchId,
        row_count=one.numInputRows,
        rows_per_second=one.processedRowsPerSecond,
        behind=behind,
        missing=missing,
    )


def _places(text: str | None) -> Places:
    return places_from_json(json.loads(text)) if text and text != "null" else {}
