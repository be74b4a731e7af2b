"""The driver of the cluster tests, a process of its own: jobs on a master, answers as JSON.

Lines on standard output are answers by name; "first task" tells that a worker may be killed now.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flintmq.cli.json_output import plain
from flintmq.spark.jobs.diff import diff
from flintmq.spark.jobs.query import query
from flintmq.spark.jobs.stats import stats
from flintmq.spark.session import SessionSettings, job_session

SQL = "SELECT topic, queueId, sum(crc32(body)) FROM messages GROUP BY 1, 2 ORDER BY 1, 2"
MANY_SPLITS = 60


def jobs(spark: SparkSession, store: str, other: str) -> dict[str, Callable[[], Any]]:
    """Return what is done on the cluster as well as here."""
    return {
        "query": lambda: [[*row] for row in query(spark, [store], SQL).collect()],
        "stats": lambda: plain(stats(spark, [store], keys=False)),
        "diff": lambda: plain(diff(spark, store, other)),
    }


def tell(name: str, value: object) -> None:
    print(json.dumps([name, value]), flush=True)  # noqa: T201  # this is what the test reads


def tell_of_first_task(spark: SparkSession) -> None:
    """Say so when a task of the job that runs now is done, while others are not."""
    tracker = spark.sparkContext.statusTracker()
    while True:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None and 0 < info.numCompletedTasks < info.numTasks:
                tell("first task", [info.numCompletedTasks, info.numTasks])
                return
        time.sleep(0.01)


def main(master: str, store: str, other: str, log_file: str) -> None:
    settings = SessionSettings(
        master=master,
        conf={"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"},
        parallelism=4,
        log_file=Path(log_file),
    )
    with job_session(settings) as spark:
        for name, job in jobs(spark, store, other).items():
            tell(name, job())
        watcher = threading.Thread(target=tell_of_first_task, args=(spark,), daemon=True)
        long_query = query(spark, [store], SQL, splits_min=MANY_SPLITS)
        watcher.start()
        tell("after the loss", [[*row] for row in long_query.collect()])


if __name__ == "__main__":
    main(*sys.argv[1:])
