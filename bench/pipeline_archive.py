"""Benchmarks of archive and restore; the restored log is compared with the old one."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.broker_servers import our_server
from bench.generate_store import StoreShape, generate
from bench.pipeline_case import BenchStore, Case, Done
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.live_archive import archive_topics
from flintmq.spark.jobs.archive.store_archive import archive
from flintmq.spark.jobs.archive.store_restore import restore
from flintmq.spark.jobs.stats.topic_stats import stats

MANY_TOPICS: Final = 10_000
FEW_LIVE_TOPICS: Final = 5
MANY_LIVE_TOPICS: Final = 4000
"""A broker keeps the files of all queues open, and systems often allow it 20,000."""

MANY_TOPICS_QUEUE_SIZE: Final = 20_000
"""Bytes of a queue file: of 10,000 usual ones the disk would have to keep track."""


def archive_store(spark: SparkSession, store: BenchStore) -> Done:
    with tempfile.TemporaryDirectory(prefix="archive-", dir=store.root.parent) as name:
        return Done(archive(spark, [str(store.root)], Path(name)).record_count)


def archive_and_restore(spark: SparkSession, store: BenchStore) -> Done:
    """Archive a store, check the archive and restore it."""
    with tempfile.TemporaryDirectory(prefix="archive-", dir=store.root.parent) as name:
        work = Path(name)
        archive(spark, [str(store.root)], work / "archive")
        assert check_archive(spark, work / "archive").ok
        report = restore(spark, work / "archive", work / "store")
        assert report.is_exact
        for path in sorted((work / "store" / "commitlog").iterdir()):
            known = store.root / "commitlog" / path.name
            subprocess.run(["cmp", "--silent", str(path), str(known)], check=True)
        return Done(report.record_count)


def restore_archive(spark: SparkSession, store: BenchStore) -> Done:
    """Restore a store; its archive is made before the clock runs."""
    with tempfile.TemporaryDirectory(prefix="archive-", dir=store.root.parent) as name:
        work = Path(name)
        archive(spark, [str(store.root)], work / "archive")
        begun = time.perf_counter()
        report = restore(spark, work / "archive", work / "store")
        assert report.is_exact
        return Done(report.record_count, time.perf_counter() - begun)


def archive_many_topics(spark: SparkSession, store: BenchStore) -> Done:
    """Archive a store of as many messages in 10,000 topics."""
    with _many_topics(store) as root:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="archive-", dir=root.parent) as name:
            report = archive(spark, [str(root)], Path(name))
        return Done(report.record_count, time.perf_counter() - begun)


def restore_many_topics(spark: SparkSession, store: BenchStore) -> Done:
    """Restore a store of as many messages in 10,000 topics."""
    with (
        _many_topics(store) as root,
        tempfile.TemporaryDirectory(prefix="archive-", dir=root.parent) as name,
    ):
        archive(spark, [str(root)], Path(name) / "archive")
        begun = time.perf_counter()
        report = restore(spark, Path(name) / "archive", Path(name) / "store")
        assert report.is_exact
        return Done(report.record_count, time.perf_counter() - begun)


def stats_of_many_topics(spark: SparkSession, store: BenchStore) -> Done:
    """Measure a store of as many messages in 10,000 topics."""
    with _many_topics(store) as root:
        begun = time.perf_counter()
        report = stats(spark, [str(root)], keys=False)
        return Done(report.total.message_count, time.perf_counter() - begun)


def archive_few_live_topics(spark: SparkSession, store: BenchStore) -> Done:
    """Archive as many messages in five topics of a broker."""
    return _archive_live(spark, store, FEW_LIVE_TOPICS)


def archive_many_live_topics(spark: SparkSession, store: BenchStore) -> Done:
    """Archive as many messages in thousands of topics of a broker."""
    return _archive_live(spark, store, MANY_LIVE_TOPICS)


def _archive_live(spark: SparkSession, store: BenchStore, topic_count: int) -> Done:
    """Archive live topics; the processor time of the broker is part of what is measured."""
    with _many_topics(store, topic_count) as root:
        settings = {
            "storePathRootDir": root,
            "mappedFileSizeCommitLog": StoreShape.log_file_size,
            "mappedFileSizeConsumeQueue": MANY_TOPICS_QUEUE_SIZE,
            "fileReservedTime": 10**6,
        }
        with our_server(root.parent, settings=settings) as server:
            source = {"namesrv": server.namesrv, "subscribePattern": "BenchTopic.*"}
            begun = time.perf_counter()
            report = archive_topics(spark, source, root.parent / "archive")
            seconds = time.perf_counter() - begun
        assert report.record_count == store.messages
        return Done(report.record_count, seconds)


@contextmanager
def _many_topics(store: BenchStore, topic_count: int = MANY_TOPICS) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="topics-", dir=store.root.parent) as name:
        root = Path(name) / "store"
        shape = StoreShape(
            messages=store.messages,
            topic_count=topic_count,
            queue_count=1,
            queue_file_size=MANY_TOPICS_QUEUE_SIZE,
        )
        generate(root, shape)
        yield root


def archive_cases() -> list[Case[BenchStore]]:
    """Return the cases of this module."""
    return [
        Case("archive", archive_store),
        Case("restore", restore_archive),
        Case("archive, check, restore", archive_and_restore),
        Case("archive of 10,000 topics", archive_many_topics),
        Case("restore of 10,000 topics", restore_many_topics),
        Case("stats of 10,000 topics", stats_of_many_topics),
        Case("archive of 5 live topics", archive_few_live_topics),
        Case("archive of 4,000 live topics", archive_many_live_topics),
    ]
