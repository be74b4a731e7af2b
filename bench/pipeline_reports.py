"""Benchmarks of the jobs that tell about a store: stats, and queries over all messages."""

from typing import Final

from pyspark.sql import SparkSession

from bench.pipeline_case import BenchStore, Case, Done
from flintmq.spark.jobs.job_input import StoredInput
from flintmq.spark.jobs.query.sql_query import QueryRequest, QueryRun
from flintmq.spark.jobs.stats.topic_stats import stats

BY_TOPIC: Final = "SELECT topic, count(*) AS n, max(length(body)) FROM messages GROUP BY topic"


def measure_store(spark: SparkSession, store: BenchStore) -> Done:
    """Measure a store, with a look at all keys and unique ids."""
    return Done(stats(spark, [str(store.root)]).total.message_count)


def query_store(spark: SparkSession, store: BenchStore) -> Done:
    """Ask for figures that need every body."""
    source = StoredInput(paths=(str(store.root),))
    run = QueryRun(spark, QueryRequest(source=source, sql=BY_TOPIC))
    return Done(sum(row["n"] for row in run.rows()))


def report_cases() -> list[Case[BenchStore]]:
    """Return the cases of this module."""
    return [Case("stats", measure_store), Case("query, topics with their bodies", query_store)]
