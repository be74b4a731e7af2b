"""Benchmarks of archive and restore; the restored log is compared with the old one."""

import subprocess
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from bench.pipeline_case import BenchStore, Case, Done, Section
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.store_archive import archive
from flintmq.spark.jobs.archive.store_restore import restore


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
        with Section() as section:
            report = restore(spark, work / "archive", work / "store")
        assert report.is_exact
        return section.done(report.record_count)


def archive_cases() -> list[Case[BenchStore]]:
    """Return the cases of this module."""
    return [
        Case("archive", archive_store),
        Case("restore", restore_archive),
        Case("archive, check, restore", archive_and_restore),
    ]
