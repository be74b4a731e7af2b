"""Benchmarks of jobs on few and on many topics: as many messages, in 5 and in 10,000 of them.

Each topic has one queue.  The stores are made, and brokers started on them, before the clock runs.
What a case has made stays until all are done: some file systems (ext4) take ten times as long for a
new file while the places of files that were just removed are still kept free.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from bench.broker_servers import our_server
from bench.generate_store import StoreShape, generate
from bench.pipeline_case import BenchStore, Case, Done, Section
from flintmq.spark.jobs.archive.live_archive import archive_topics
from flintmq.spark.jobs.archive.store_archive import archive
from flintmq.spark.jobs.archive.store_restore import restore
from flintmq.spark.jobs.stats.topic_stats import stats

FEW: Final = 5
MANY: Final = 10_000

SMALL_QUEUE_FILE_SIZE: Final = 20_000
"""Bytes of a queue file of 10,000: of as many usual ones the disk would have to keep track."""


class TopicStore(NamedTuple):
    """A generated store, and a directory for what is made of it."""

    root: Path
    shape: StoreShape
    work: Path


TopicJob = Callable[[SparkSession, TopicStore], Done]


def archive_store(spark: SparkSession, store: TopicStore) -> Done:
    with Section() as section:
        report = archive(spark, [str(store.root)], store.work / "archive")
    return section.done(report.record_count, report.file_count)


def restore_store(spark: SparkSession, store: TopicStore) -> Done:
    made = archive(spark, [str(store.root)], store.work / "archive")
    with Section() as section:
        report = restore(spark, store.work / "archive", store.work / "restored")
    assert report.is_exact
    return section.done(report.record_count, made.file_count)


def measure_store(spark: SparkSession, store: TopicStore) -> Done:
    with Section() as section:
        report = stats(spark, [str(store.root)], keys=False)
    return section.done(report.total.message_count)


def archive_live(spark: SparkSession, store: TopicStore) -> Done:
    """Archive the topics of a broker that has the store."""
    settings = {
        "storePathRootDir": store.root,
        "mappedFileSizeCommitLog": store.shape.log_file_size,
        "mappedFileSizeConsumeQueue": store.shape.queue_file_size,
        "fileReservedTime": 10**6,
    }
    with our_server(store.work, settings=settings) as server:
        source = {"namesrv": server.namesrv, "subscribePattern": "BenchTopic.*"}
        with Section(server) as section:
            report = archive_topics(spark, source, store.work / "archive")
    return section.done(report.record_count, report.file_count)


def _run(job: TopicJob, topic_count: int, spark: SparkSession, store: BenchStore) -> Done:
    shape = StoreShape(messages=store.messages, topic_count=topic_count, queue_count=1)
    if topic_count == MANY:
        shape = replace(shape, queue_file_size=SMALL_QUEUE_FILE_SIZE)
    root = store.root.parent / f"{store.messages}-in-{topic_count}-topics"
    if not root.exists():
        generate(root, shape)
    work = Path(tempfile.mkdtemp(prefix="topics-", dir=store.root.parent))
    done = job(spark, TopicStore(root, shape, work))
    assert done.messages == store.messages, f"{done.messages} messages of {store.messages}"
    return done


def topic_cases() -> list[Case[BenchStore]]:
    """Return the cases of this module."""
    return [
        Case(f"{what} {topic_count:,} {kind}", partial(_run, job, topic_count))
        for what, kind, job in (
            ("archive of", "topics", archive_store),
            ("restore of", "topics", restore_store),
            ("stats of", "topics", measure_store),
            ("archive of", "live topics", archive_live),
        )
        for topic_count in (FEW, MANY)
    ]
