"""The driver of the cluster tests, a process of its own: jobs on a master, answers as JSON.

Lines on standard output are answers by name; "first task" tells that a worker may be killed now.
"""

import hashlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flintmq.cli.output.json_output import plain
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.store_archive import archive
from flintmq.spark.jobs.archive.store_restore import restore
from flintmq.spark.jobs.diff.store_diff import diff
from flintmq.spark.jobs.query.sql_query import query
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from flintmq.spark.jobs.stats.topic_stats import stats
from flintmq.spark.jobs.verify.parallel_verify import verify_stores
from flintmq.spark.parallel_log import range_planning
from flintmq.spark.runtime.session_settings import SessionSettings
from flintmq.spark.runtime.spark_session import job_session
from tests.kits.spark.light_spark import light_java

SQL = "SELECT topic, queueId, sum(crc32(body)) FROM messages GROUP BY 1, 2 ORDER BY 1, 2"
MANY_SPLITS = 40
RANGE_SIZE = 4096
ARCHIVE_SPLIT_SIZE = 64 << 10

Job = Callable[[], Any]


class Jobs:
    """What is done on a cluster as well as on one machine; answers do not name ``work``."""

    def __init__(self, spark: SparkSession, store: str, other: str, work: Path) -> None:
        self._spark = spark
        self._store = store
        self._other = other
        self._work = work

    def whole(self) -> dict[str, Job]:
        """Return jobs that shall end undisturbed, in their order."""
        return {
            "query": lambda: self._query(None),
            "stats": lambda: plain(stats(self._spark, [self._store], keys=False)),
            "diff": lambda: plain(diff(self._spark, self._store, self._other)),
            "verify": self._verify,
            "rebuild": lambda: self._rebuild("rebuilt"),
            "archive": self._archive,
            "restore": self._restore,
        }

    def disturbed(self) -> dict[str, Job]:
        """Return jobs of many tasks, each of which loses a worker."""
        return {
            "query and a loss": lambda: self._query(MANY_SPLITS),
            "rebuild and a loss": lambda: self._rebuild("rebuilt with a loss"),
        }

    def _query(self, splits: int | None) -> Any:
        found = query(self._spark, [self._store], SQL, splits_min=splits)
        return [[*row] for row in found.collect()]

    def _verify(self) -> Any:
        return plain(verify_stores(self._spark, [self._store, self._other], split_size=RANGE_SIZE))

    def _rebuild(self, name: str) -> Any:
        out = self._work / name
        report = rebuild(self._spark, self._store, out=out, split_size=RANGE_SIZE)
        return [report.unit_count, report.index_entry_count, digests(out)]

    def _archive(self) -> Any:
        report = archive(
            self._spark, [self._store], self._work / "archive", split_size=ARCHIVE_SPLIT_SIZE
        )
        check = check_archive(self._spark, self._work / "archive")
        return [report.file_count, [store.checksum for store in report.stores], check.problems]

    def _restore(self) -> Any:
        report = restore(self._spark, self._work / "archive", self._work / "restored")
        # The checkpoint tells times of this run.
        kinds = ("commitlog", "consumequeue", "index", "config")
        return [report.is_exact, [digests(self._work / "restored" / kind) for kind in kinds]]


def digests(root: Path) -> dict[str, str]:
    """Return what all files below a directory hold."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def tell(name: str, value: object) -> None:
    print(json.dumps([name, value]), flush=True)  # noqa: T201  # this is what the test reads


def tell_of_first_task(spark: SparkSession, is_over: threading.Event) -> None:
    """Say so when a task of the job that runs now is done, while others are not."""
    tracker = spark.sparkContext.statusTracker()
    while not is_over.wait(0.01):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None and 0 < info.numCompletedTasks < info.numTasks:
                tell("first task", [info.numCompletedTasks, info.numTasks])
                return


def run_disturbed(spark: SparkSession, job: Job) -> Any:
    """Run a job, and tell when it is in the midst of its work."""
    is_over = threading.Event()
    watcher = threading.Thread(target=tell_of_first_task, args=(spark, is_over))
    watcher.start()
    try:
        return job()
    finally:
        is_over.set()
        watcher.join()


def main(master: str, store: str, other: str, work: str, log_file: str) -> None:
    settings = SessionSettings(
        master=master,
        conf={
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": light_java(),
            "spark.executor.extraJavaOptions": light_java(),
        },
        parallelism=2,
        log_file=Path(log_file),
    )
    with job_session(settings) as spark:
        jobs = Jobs(spark, store, other, Path(work))
        for name, job in jobs.whole().items():
            tell(name, job())
        # Small stores are one task each; there shall be others left when the first is done.
        vars(range_planning)["TASK_SIZE_MIN"] = 1
        for name, job in jobs.disturbed().items():
            tell(name, run_disturbed(spark, job))


if __name__ == "__main__":
    main(*sys.argv[1:])
