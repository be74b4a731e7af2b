"""Live topics through Spark itself: tables, streams with checkpoints, what plans and logs show."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import Admin, send, texts
from tests.kits.spark.pipeline_kit import light_session

SECRETS = {"accessKey": "hush-name", "secretKey": "hush-word", "securityToken": "hush-token"}


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.namesrv) as found:
        yield found


def found_in(spark: SparkSession, directory: Path) -> list[str]:
    """Return the bodies that a query has written, each as often as it is there."""
    rows = spark.read.schema("text string").parquet(str(directory)).collect()
    return sorted(row.text for row in rows)


class Query:
    """Starts a query that writes bodies as Parquet, again and again from one checkpoint."""

    def __init__(self, spark: SparkSession, cluster: EmbeddedCluster, work: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._work = work
        self.output = work / "rows"

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        reader = self._spark.readStream.format("flintmq").options(**SECRETS, **options)
        table = reader.option("namesrv", self._cluster.namesrv).load()
        writer = table.selectExpr("CAST(body AS STRING) AS text").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._work / "checkpoint"))
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start(str(self.output))

    def run(self, **options: str) -> StreamingQuery:
        """Run to the end of what is there."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(120)
        return query


def test_a_query_that_is_started_again_gives_each_message_once(
    spark: SparkSession, cluster: EmbeddedCluster, admin: Admin, tmp_path: Path
) -> None:
    spark = light_session(spark)
    admin.set_topic("restarted", 2)
    send(cluster, "restarted", range(40))
    query = Query(spark, cluster, tmp_path)
    options = {
        "subscribe": "restarted",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "25",
        "group": "spark-restarted",
        "commitOffsets": "true",
    }
    first = query.run(**options)
    assert [one.numInputRows for one in first.recentProgress if one.numInputRows] == [25, 15]
    assert found_in(spark, query.output) == texts(range(40))
    shown = "".join(one.json for one in first.recentProgress)
    assert '"restarted"' in shown
    assert "hush" not in shown
    admin.set_topic("restarted", 6)
    send(cluster, "restarted", range(40, 70))
    second = query.run(**options)
    assert [one.numInputRows for one in second.recentProgress if one.numInputRows] == [25, 5]
    assert found_in(spark, query.output) == texts(range(70))
    # Spark says that a batch is done when it begins the next: the last one is not told yet.
    committed = admin.committed("spark-restarted", "restarted", "broker-a")
    assert sum(offset or 0 for offset in committed.values()) == 65


def test_a_batch_that_fails_half_way_is_repeated_as_it_was(
    spark: SparkSession, cluster: EmbeddedCluster, admin: Admin, tmp_path: Path
) -> None:
    spark = light_session(spark)
    admin.set_topic("repeated", 3)
    send(cluster, "repeated", range(30))
    seen: list[tuple[int, list[str]]] = []
    is_failing = True

    def take(table: DataFrame, batch: int) -> None:
        seen.append((batch, sorted(row.body.decode() for row in table.collect())))
        if is_failing:
            send(cluster, "repeated", range(30, 60))
            raise OSError("the sink is broken")

    def run() -> None:
        reader = spark.readStream.format("flintmq").option("namesrv", cluster.namesrv)
        table = reader.options(subscribe="repeated", startingOffsets="earliest").load()
        writer = table.select("body").writeStream.foreachBatch(take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(120)

    with pytest.raises(Exception, match="the sink is broken"):
        run()
    is_failing = False
    run()
    assert seen[0] == seen[1] == (0, texts(range(30)))
    assert [text for _, rows in seen[2:] for text in rows] == texts(range(30, 60))


def test_secrets_are_in_no_plan(
    spark: SparkSession, cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    send(cluster, "planned", range(8), tag="A")
    table = light_session(spark).read.format("flintmq").option("namesrv", cluster.namesrv)
    messages = table.options(subscribe="planned", **SECRETS).load()
    assert messages.groupBy("tags").count().collect() == [("A", 8)]
    messages.explain(extended=True)
    plan: Any = messages._jdf.queryExecution()
    shown = capsys.readouterr().out + plan.toString() + plan.analyzed().toJSON()
    assert "flintmq" in shown
    assert "hush" not in shown


def test_an_error_of_a_task_names_its_cause(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    send(cluster, "wrong", range(4))
    reader = light_session(spark).read.format("flintmq").option("namesrv", cluster.namesrv)
    late = '{"wrong": {"broker-a": {"0": 99}}}'
    with pytest.raises(Exception, match="wrong queue 0 of broker-a: the queue ends at 1"):
        reader.options(subscribe="wrong", endingOffsets=late, **SECRETS).load().count()
