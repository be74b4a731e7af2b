"""What is refused before Spark starts is what Spark would refuse."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from flintmq.spark.jobs.query.sql_shape import check_condition_shape, check_query_shape
from flintmq.spark.runtime.failures import SqlError

QUERIES = [
    "SELECT 1;",
    " ;;SELECT 1",
    "(SELECT ')' AS a) UNION (SELECT \"it's\" AS a)",
    "/* SELECT /* ; */ ( */ select count(*) -- ; (\nfrom messages",
    "WITH a AS (SELECT map('k', array(1)[0])['k'] AS `odd ``( name`) SELECT * FROM a",
    "VALUES (1, 'a\\'b;'), (2, r'\\')",
    "TABLE messages",
    "FROM messages SELECT topic",
    "FROM messages |> WHERE queueId = 1 |> SELECT topic",
    "SELECT 'a''b', 1 - -1",
]
REFUSED = [
    ("SELECT 1; SELECT 2", "several statements"),
    ("SELECT 1; 2", "several statements"),
    ("SELECT 'a", "a ' that does not end (line 1, column 8)"),
    ("SELECT 1\nFROM `messages", "a ` that does not end (line 2, column 6)"),
    ("SELECT (1", "a ( that nothing closes (line 1, column 8)"),
    ("SELECT 1)", "a ) that closes nothing (line 1, column 9)"),
    ("SELECT (1]", "a ] that closes nothing"),
    ("SELECT 1 /* 2", "a /* that does not end"),
    ("-- nothing", "the query is empty"),
    ("SELEC 1", "only a query can be asked: SELECT, WITH, VALUES or TABLE, not SELEC"),
    ("INSERT INTO a SELECT 1", "not INSERT"),
    ("1", "only a query can be asked"),
]


def parses(spark: SparkSession, sql: str) -> bool:
    try:
        spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    except ParseException:
        return False
    return True


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_pass(spark: SparkSession, sql: str) -> None:
    check_query_shape(sql)
    assert parses(spark, sql.lstrip(" ;"))


@pytest.mark.parametrize(("sql", "words"), REFUSED)
def test_what_cannot_be_a_query_is_told_with_its_place(sql: str, words: str) -> None:
    with pytest.raises(SqlError) as error:
        check_query_shape(sql)
    assert words in str(error.value)


def test_a_condition_may_begin_with_anything_and_has_an_end() -> None:
    check_condition_shape("topic = 'a;b' AND (queueId > 1)")
    with pytest.raises(SqlError, match="the condition has a"):
        check_condition_shape("topic = 'a")


PIECES = st.sampled_from(
    [
        *"'\"`;()[]\\",
        "--",
        "/*",
        "*/",
        "\n",
        " ",
        "a",
        "1",
        "r",
        ",",
        "SELECT ",
        "SELECT 1 ",
        "FROM a ",
    ]
)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(pieces=st.lists(PIECES, max_size=12))
def test_nothing_that_spark_takes_is_refused(spark: SparkSession, pieces: list[str]) -> None:
    sql = "SELECT 1 " + "".join(pieces)
    if parses(spark, sql):
        check_query_shape(sql)
