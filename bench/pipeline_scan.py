"""Benchmarks of the data source: scans of the messages of a store."""

from pyspark.sql import DataFrame, SparkSession

from bench.generate_store import StoreShape
from bench.pipeline_case import BenchStore, Case, Done

FEW = "topic string, queueId int, queueOffset long, storeTimestamp timestamp"
ONE_TOPIC = "BenchTopic1"
AIM = 2_000_000


def load(spark: SparkSession, store: BenchStore, schema: str = "", **options: str) -> DataFrame:
    reader = spark.read.format("flintmq").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(store.root))


def count_few(spark: SparkSession, store: BenchStore) -> Done:
    return Done(load(spark, store, FEW).count())


def scan_few(spark: SparkSession, store: BenchStore) -> Done:
    """Let Spark look at every value: `count` might leave some out."""
    row = load(spark, store, FEW).selectExpr("count(topic)", "max(queueOffset)", "sum(queueId)")
    return Done(int(row.first()[0]))  # type: ignore[index]


def count_all(spark: SparkSession, store: BenchStore) -> Done:
    return Done(load(spark, store).count())


def count_topic(spark: SparkSession, store: BenchStore) -> Done:
    """Count one topic of four; the messages of the others are gone through as well."""
    count = load(spark, store, "topic string", topic=ONE_TOPIC).count()
    return Done(count * StoreShape(messages=1).topic_count)


def scan_cases() -> list[Case[BenchStore]]:
    """Return the cases of this module."""
    return [
        Case("count, 4 columns", count_few, aim=AIM),
        Case("aggregate of 4 columns", scan_few, aim=AIM),
        Case("count with a topic filter", count_topic, aim=AIM),
        Case("count, all columns", count_all, aim=AIM),
    ]
