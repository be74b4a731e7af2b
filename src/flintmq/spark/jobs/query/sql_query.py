"""Asking SQL of store directories, of an archive or of live topics."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import dataset
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from flintmq.spark.jobs.damages import Damages
from flintmq.spark.jobs.job_input import JobInput, LiveInput, StoredInput
from flintmq.spark.jobs.query.query_plan import ViewNeeds, view_needs
from flintmq.spark.jobs.query.query_report import LIMIT_MAX, QueryReport
from flintmq.spark.jobs.query.query_views import Views, open_views
from flintmq.spark.jobs.query.scan_metrics import ScanMetrics
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.runtime.failures import JobError, SqlError, reason_of
from flintmq.spark.runtime.stage_names import stage_name
from flintmq.spark.source_registration import register

_ANSWERING: Final = "answering the query"
COLLECTED_MAX: Final = 100_000
"""Up to so many rows the answer is held by the driver, beyond that by the executors."""

_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical."
_NO_QUERIES: Final = tuple(
    _LOGICAL + name for name in ("Command", "ParsedStatement", "CompoundPlanStatement")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """A query and what it is asked of: store directories, one archive, or live topics.

    ``limit`` is how many rows are given at most; None is no limit.
    """

    source: JobInput
    sql: str
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and not 0 <= self.limit <= LIMIT_MAX:
            raise JobError(f"limit is 0 to {LIMIT_MAX}, not {self.limit}")


def query(
    spark: SparkSession,
    sources: Sequence[str],
    sql: str,
    *,
    on_corrupt: OnCorrupt = OnCorrupt.FAIL,
    splits_min: int | None = None,
) -> DataFrame:
    """Return the answer to ``sql`` over store directories, or over one archive, as a DataFrame."""
    source = StoredInput(paths=tuple(sources), on_corrupt=on_corrupt, splits_min=splits_min)
    return QueryRun(spark, QueryRequest(source=source, sql=sql)).table


def live_query(spark: SparkSession, source: Mapping[str, str], sql: str) -> DataFrame:
    """Return the answer to ``sql`` over live topics; ``source`` are options of the data source."""
    return QueryRun(spark, QueryRequest(source=LiveInput(source), sql=sql)).table


class QueryRun:
    """One query, its answer, and what there is to say about it afterwards."""

    def __init__(self, spark: SparkSession, request: QueryRequest) -> None:
        self._session = own_session(spark)
        self._views = open_views(self._session, request.source)
        self._limit = request.limit
        self.table, self._needs = ask_views(self._session, self._views, request.sql)
        self._metrics = ScanMetrics(self._session)
        self._row_count = 0
        self._scanned_count: int | None = None
        self._is_cut = False

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the answer, as many as the limit allows."""
        limit = self._limit
        table = self.table if limit is None else self.table.limit(limit + 1)
        if limit is not None and limit <= COLLECTED_MAX:
            with stage_name(self._session.sparkContext, _ANSWERING):
                rows = table.collect()
            yield from self._counted(iter(rows))
            return
        # All partitions are made in parallel and kept; only then they are fetched, one by one.
        kept = table.persist(StorageLevel.DISK_ONLY)
        try:
            with stage_name(self._session.sparkContext, _ANSWERING):
                kept.count()
            yield from self._counted(kept.toLocalIterator(prefetchPartitions=True))
        finally:
            kept.unpersist()

    def _counted(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in islice(rows, self._limit):
            self._row_count += 1
            yield row
        self._is_cut = self._limit is not None and next(rows, None) is not None

    def write_parquet(self, path: str) -> None:
        """Write the answer as a directory of Parquet files; there must be nothing at ``path``."""
        limit = self._limit
        if limit is None:
            _write_parquet(self.table, path)
        else:
            kept = self.table.limit(limit + 1).persist(StorageLevel.DISK_ONLY)
            try:
                self._is_cut = kept.count() > limit
                _write_parquet(kept.limit(limit), path)
            finally:
                kept.unpersist()
        self._scanned_count = self._metrics.rows()
        self._row_count = self._session.read.schema(self.table.schema).parquet(path).count()

    def write_arrow(self, path: str) -> None:
        """Write the answer as one file of Arrow (IPC); there must be nothing at ``path``.

        Spark writes Parquet beside it, and that is copied batch by batch: the rows need not fit
        into memory.
        """
        target = Path(path)
        unfinished = target.with_name(f".{target.name}.unfinished")
        parts = target.with_name(f".{target.name}.parts")
        try:
            self._session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            self.write_parquet(str(parts))
            rows = dataset.dataset(parts, format="parquet")
            with (
                pa.OSFile(str(unfinished), "wb") as file,
                pa.ipc.new_file(file, rows.schema) as out,
            ):
                for batch in rows.to_batches():
                    out.write_batch(batch)
            unfinished.rename(target)
        finally:
            shutil.rmtree(parts, ignore_errors=True)
            unfinished.unlink(missing_ok=True)

    def report(self) -> QueryReport:
        """Return what the answer rests on; call it when all rows were read."""
        scanned_count = self._scanned_count
        if scanned_count is None:
            scanned_count = self._metrics.rows()
        return QueryReport(
            columns=tuple(self.table.columns),
            row_count=self._row_count,
            matched_count=None if self._is_cut else self._row_count,
            scanned_count=scanned_count,
            limit=self._limit,
            damages=self._views.damages() if "messages" in self._needs else Damages(),
            columns_read={
                name: tuple(column for column in schema.fieldNames() if column in need.columns)
                for name, schema in self._views.schemas.items()
                if (need := self._needs.get(name)) is not None
            },
            topics_read=tuple(sorted(self._topics())),
        )

    def _topics(self) -> set[str]:
        need = self._needs.get("messages")
        return set() if need is None else need.topics or set()


def _write_parquet(table: DataFrame, path: str) -> None:
    try:
        with stage_name(table.sparkSession.sparkContext, _ANSWERING):
            table.write.parquet(path)
    except AnalysisException as error:
        raise SqlError(reason_of(error)) from error


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session of its own with equal settings, so that its views meet no others."""
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if session.conf.isModifiable(name) and session.conf.get(name, None) != value:
            session.conf.set(name, value)
    register(session)
    return session


def plan_query(
    session: SparkSession, schemas: Mapping[str, StructType], sql: str
) -> dict[str, ViewNeeds]:
    """Return what a query needs of its views, learnt from views that hold nothing.

    They are made in ``session``, under the names of ``schemas``.
    """
    _refuse_commands(session, sql)
    for name, schema in schemas.items():
        # A relation of which Spark does not know that it is empty: that one it would leave out.
        nothing = session.createDataFrame(session.sparkContext.emptyRDD(), schema)
        nothing.createOrReplaceTempView(name)
    return view_needs(_ask(session, sql), schemas)


def ask_views(
    session: SparkSession, views: Views, sql: str
) -> tuple[DataFrame, dict[str, ViewNeeds]]:
    """Return the answer to a query, and what it reads of each view."""
    needs = plan_query(session, views.schemas, sql)
    for name, need in needs.items():
        _view(views, name, need).createOrReplaceTempView(name)
    return _ask(session, sql), needs


def _refuse_commands(session: SparkSession, sql: str) -> None:
    """Raise SqlError for what is not a query: Spark runs commands while it looks at them."""
    try:
        plan: Any = session._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    except ParseException as error:
        raise SqlError(reason_of(error)) from error
    assert session.sparkContext._jvm is not None
    classes = session.sparkContext._jvm.java.lang.Class
    loader = session._jsparkSession.getClass().getClassLoader()
    kinds = [classes.forName(name, True, loader) for name in _NO_QUERIES]
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        if any(kind.isInstance(node) for kind in kinds):
            raise SqlError("only a query can be asked: SELECT, WITH, VALUES or TABLE")
        children = node.children()
        nodes += [children.apply(number) for number in range(children.size())]


def _ask(session: SparkSession, sql: str) -> DataFrame:
    try:
        return session.sql(sql)
    except AnalysisException as error:
        raise SqlError(reason_of(error)) from error


def _view(views: Views, name: str, need: ViewNeeds) -> DataFrame:
    """Return a view that looks whole, and in which only the columns needed are read.

    The query names other columns too, where they do not matter; those are null.
    """
    schema = views.schemas[name]
    table = views.table(name, need)
    have = frozenset(table.columns)
    return table.select(
        *(
            F.col(one.name) if one.name in have else F.lit(None).cast(one.dataType).alias(one.name)
            for one in schema
        )
    )
