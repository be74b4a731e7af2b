"""Queries: what they answer, what they read for it, what they say about it."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flintmq.errors import FlintError
from flintmq.spark.jobs.archive.store_archive import archive
from flintmq.spark.jobs.job_input import StoredInput
from flintmq.spark.jobs.query.query_plan import ViewNeeds, view_needs
from flintmq.spark.jobs.query.query_report import QueryReport
from flintmq.spark.jobs.query.query_views import open_views, topic_option
from flintmq.spark.jobs.query.sql_query import QueryRequest, QueryRun, plan_query, query
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.runtime.failures import JobError, SqlError
from tests.kits.golden.golden_sets import damaged_set, golden_set
from tests.kits.spark.pipeline_kit import light_session

BASIC = str(golden_set("basic").store)
ROLLED = str(golden_set("rolled").store)
KINDS = str(golden_set("kinds").store)
DAMAGED = str(damaged_set("body-byte-flipped-first-file").store)


@pytest.fixture
def spark(spark: SparkSession) -> SparkSession:
    return light_session(spark)


def asked(
    spark: SparkSession,
    source: str,
    sql: str,
    *,
    limit: int | None = 1000,
    on_corrupt: OnCorrupt = OnCorrupt.FAIL,
) -> tuple[list[tuple[Any, ...]], QueryReport]:
    stored = StoredInput(paths=(source,), on_corrupt=on_corrupt)
    run = QueryRun(spark, QueryRequest(source=stored, sql=sql, limit=limit))
    rows = [tuple(row) for row in run.rows()]
    return rows, run.report()


def needs(spark: SparkSession, sql: str) -> ViewNeeds:
    views = open_views(spark, StoredInput(paths=(BASIC,)))
    return plan_query(spark.newSession(), views.schemas, sql)["messages"]


# -- what is read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "columns", "topics"),
    [
        ("SELECT count(*) FROM messages", set(), None),
        ("SELECT count(*) FROM (SELECT topic, body FROM messages)", set(), None),
        ("SELECT topic FROM messages WHERE queueId = 1", {"topic", "queueId"}, None),
        (
            "SELECT max(queueOffset) FROM messages WHERE topic = 'a'",
            {"topic", "queueOffset"},
            {"a"},
        ),
        ("SELECT 1 FROM messages WHERE 'a' = topic AND tags = 'x'", {"topic", "tags"}, {"a"}),
        ("SELECT 1 FROM messages WHERE topic IN ('a', 'b')", {"topic"}, {"a", "b"}),
        ("SELECT 1 FROM messages WHERE topic = 'a' OR queueId = 1", {"topic", "queueId"}, None),
        ("SELECT 1 FROM messages WHERE NOT topic = 'a'", {"topic"}, None),
        ("SELECT 1 FROM messages WHERE upper(topic) = 'A'", {"topic"}, None),
        ("SELECT 1 FROM messages WHERE topic > 'a'", {"topic"}, None),
        ("SELECT 1 FROM messages WHERE topic = tags", {"topic", "tags"}, None),
        (
            "SELECT topic FROM messages WHERE topic = 'a' "
            "UNION ALL SELECT tags FROM messages WHERE topic = 'b'",
            {"topic", "tags"},
            {"a", "b"},
        ),
        (
            "SELECT topic FROM messages WHERE topic = 'a' UNION SELECT keys FROM messages",
            {"topic", "keys"},
            None,
        ),
        (
            "SELECT a.queueId FROM messages a JOIN messages b ON a.msgId = b.keys "
            "WHERE a.topic = 'a' AND b.topic = 'b'",
            {"queueId", "msgId", "keys", "topic"},
            {"a", "b"},
        ),
        (
            "SELECT queueId FROM messages WHERE topic = 'a' AND "
            "queueOffset = (SELECT max(physicalOffset) FROM messages WHERE topic = 'b')",
            {"queueId", "topic", "queueOffset", "physicalOffset"},
            {"a", "b"},
        ),
        (
            "SELECT queueId FROM messages WHERE topic = 'a' AND "
            "queueOffset = (SELECT max(physicalOffset) FROM messages)",
            {"queueId", "topic", "queueOffset", "physicalOffset"},
            None,
        ),
        (
            "WITH m AS (SELECT *, row_number() OVER (PARTITION BY topic ORDER BY queueOffset) n "
            "FROM messages) SELECT topic, flag FROM m WHERE n = 1",
            {"topic", "queueOffset", "flag"},
            None,
        ),
        ("SELECT properties['x'] FROM messages", {"properties"}, None),
        ("SELECT 1 FROM messages WHERE topic = 'a' COLLATE UTF8_LCASE", {"topic"}, None),
        (
            "SELECT 1 FROM queues q LEFT JOIN messages m ON q.topic = m.topic AND m.topic = 'a'",
            {"topic"},
            {"a"},
        ),
    ],
)
def test_only_what_can_matter_is_read(
    spark: SparkSession, sql: str, columns: set[str], topics: set[str] | None
) -> None:
    need = needs(spark, sql)
    assert (need.columns, need.topics) == (columns, topics)


def test_all_columns_are_read_where_all_are_asked_for(spark: SparkSession) -> None:
    assert len(needs(spark, "SELECT * FROM messages").columns) == 24
    assert len(needs(spark, "TABLE messages").columns) == 24


def test_a_view_that_is_not_used_is_not_needed(spark: SparkSession) -> None:
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), "a int, b int")
    assert view_needs(spark.sql("SELECT 1"), {"v": empty.schema}) == {}


def test_topics_that_an_option_cannot_say_are_not_said() -> None:
    assert topic_option(None) == topic_option(set()) == topic_option({"a,b"}) == {}
    assert topic_option({" a"}) == topic_option({"", "b"}) == {}
    assert topic_option({"b", "a"}) == {"topic": "a,b"}


# -- answers ----------------------------------------------------------------------------------


def test_an_answer_says_what_it_rests_on(spark: SparkSession) -> None:
    rows, report = asked(
        spark,
        BASIC,
        "SELECT topic, queueId, count(*) FROM messages WHERE topic = 'golden_audit' "
        "GROUP BY 1, 2 ORDER BY 2",
    )
    audits = [one for one in golden_set("basic").messages() if one["topic"] == "golden_audit"]
    assert sum(count for _, _, count in rows) == len(audits) == report.scanned_count
    assert (report.matched_count, report.is_complete) == (len(rows), True)
    assert report.columns_read == {"messages": ("topic", "queueId")}
    assert report.topics_read == ("golden_audit",)


def test_columns_that_do_not_matter_may_be_named(spark: SparkSession) -> None:
    rows, report = asked(spark, BASIC, "SELECT count(*) FROM (SELECT body, topic FROM messages)")
    assert (rows, report.scanned_count) == ([(53,)], 53)


def test_a_limit_is_told(spark: SparkSession) -> None:
    rows, report = asked(spark, BASIC, "SELECT topic FROM messages", limit=3)
    assert len(rows) == report.row_count == 3
    assert (report.matched_count, report.is_complete, report.limit) == (None, False, 3)
    _, exact = asked(spark, BASIC, "SELECT topic FROM messages", limit=53)
    assert (exact.matched_count, exact.is_complete) == (53, True)
    _, none = asked(spark, BASIC, "SELECT topic FROM messages", limit=0)
    assert (none.row_count, none.matched_count) == (0, None)


def test_an_answer_without_limit_is_whole_and_in_order(spark: SparkSession) -> None:
    sql = "SELECT physicalOffset FROM messages ORDER BY physicalOffset DESC"
    rows, report = asked(spark, BASIC, sql, limit=None)
    offsets = [one["physicalOffset"] for one in golden_set("basic").messages()]
    assert [offset for (offset,) in rows] == sorted(offsets, reverse=True)
    assert (report.matched_count, report.is_complete) == (53, True)


def test_damage_ends_a_query_or_is_told(spark: SparkSession) -> None:
    sql = "SELECT count(*) FROM messages"
    with pytest.raises(Exception, match="damaged from 15178 to 15768"):
        asked(spark, DAMAGED, sql)
    rows, report = asked(spark, DAMAGED, sql, on_corrupt=OnCorrupt.SKIP)
    assert rows == [(384,)]
    assert not report.is_complete
    (damage,) = report.damages.ranges
    assert (report.damages.count, damage.start, damage.size) == (1, 15178, 590)


def test_what_a_crash_left_behind_the_end_is_no_damage(spark: SparkSession) -> None:
    store = str(damaged_set("garbage-after-end").store)
    _, report = asked(spark, store, "SELECT count(*) FROM messages", on_corrupt=OnCorrupt.SKIP)
    assert report.is_complete


def test_every_table_is_a_view(spark: SparkSession) -> None:
    counts = {}
    for view in ("queues", "index", "offsets", "topics", "groups"):
        ((counts[view],),), _ = asked(spark, KINDS, f"SELECT count(*) FROM `{view}`")
    assert all(counts.values())
    assert counts["offsets"] == 9
    rows, _ = asked(
        spark,
        KINDS,
        "SELECT count(*) FROM queues q JOIN messages m USING (topic, queueId, queueOffset) "
        "WHERE q.physicalOffset <> m.physicalOffset",
    )
    assert rows == [(0,)]


def test_several_directories_are_asked_at_once(spark: SparkSession) -> None:
    table = query(
        spark, [BASIC, ROLLED], "SELECT path, count(*) FROM messages GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in table.collect()] == [(BASIC, 53), (ROLLED, 385)]


def test_an_archive_is_asked_like_a_store(spark: SparkSession, tmp_path: Path) -> None:
    archive(spark, [BASIC], tmp_path / "archive")
    sql = "SELECT topic, tags, length(body), queueOffset FROM messages ORDER BY physicalOffset"
    here, _ = asked(spark, BASIC, sql)
    there, report = asked(spark, str(tmp_path / "archive"), sql)
    assert here == there
    assert report.scanned_count == 53
    with pytest.raises(JobError, match="it can only be asked alone"):
        query(spark, [BASIC, str(tmp_path / "archive")], sql)


def test_an_answer_can_become_parquet(spark: SparkSession, tmp_path: Path) -> None:
    for limit, count in ((None, 53), (10, 10)):
        path = str(tmp_path / str(limit))
        sql = "SELECT topic, body FROM messages"
        source = StoredInput(paths=(BASIC,))
        run = QueryRun(spark, QueryRequest(source=source, sql=sql, limit=limit))
        run.write_parquet(path)
        report = run.report()
        assert spark.read.parquet(path).count() == report.row_count == count
        assert report.is_complete is (limit is None)


# -- what is no query -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1", "Syntax error at or near 'SELEC'"),
        ("SELECT topik FROM messages", "`topik` cannot be resolved. Did you mean"),
        ("SELECT 1 FROM nothing", "`nothing` cannot be found"),
        ("DROP VIEW messages", "only a query can be asked"),
        ("CREATE TABLE t AS SELECT 1", "only a query can be asked"),
        ("INSERT INTO t SELECT 1", "only a query can be asked"),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "only a query can be asked"),
        ("SET spark.sql.shuffle.partitions = 1", "only a query can be asked"),
        ("", "Syntax error"),
    ],
)
def test_wrong_sql_is_one_clear_line(spark: SparkSession, sql: str, words: str) -> None:
    with pytest.raises(SqlError) as caught:
        query(spark, [BASIC], sql)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, FlintError)


def test_views_stay_out_of_the_users_session(spark: SparkSession) -> None:
    query(spark, [BASIC], "SELECT 1 FROM messages")
    assert not spark.catalog.tableExists("messages")
