"""Benchmarks of the jobs that read whole stores: verify, rebuild, and the Java broker's rebuild.

`python -m bench.pipeline_jobs STORE` times one rebuild with the start of Python and Spark.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from bench.pipeline import Case
from flintmq.offline.layout import find_store
from flintmq.spark.jobs.rebuild import rebuild
from flintmq.spark.jobs.verify import verify_stores
from flintmq.spark.session import PYTHON_TASKS_CONF, SessionSettings, job_session
from tests.interop.java_cluster import JavaCluster
from tests.interop.java_process import JavaProcess
from tests.interop.java_toolchain import JavaToolchain

JAVA_PER_SECOND = 725_000
"""What the Java 4.9.7 broker rebuilt on two cores, with its start: 10 M messages in 13.8 s."""


def verify_store(spark: SparkSession, store: Path) -> int:
    (report,) = verify_stores(spark, [store])
    assert report.is_sound, list(report.findings)
    return report.record_count


def rebuild_store(spark: SparkSession, store: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="rebuilt-", dir=store.parent) as name:
        report = rebuild(spark, store, out=Path(name) / "views")
        assert_same_views(Path(name) / "views", store)
        return report.record_count


def rebuild_from_cold(_: SparkSession, store: Path) -> int:
    """Rebuild in a process of its own: from the command to the end, with Spark's start."""
    command = [sys.executable, "-m", "bench.pipeline_jobs", str(store)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def assert_same_views(views: Path, store: Path) -> None:
    """Compare with the views of the store, which were not derived from its log."""
    for kind in ("consumequeue", "index"):
        # An index file is named after the moment at which it was made.
        pairs = zip(files_of(views / kind), files_of(store / kind), strict=True)
        for made, known in pairs:
            subprocess.run(["cmp", "--silent", str(made), str(known)], check=True)


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


class TimedCluster(JavaCluster):
    """Notes when the broker's process was started."""

    broker_started = 0.0

    def _run(self, stack: ExitStack, name: str, command: list[str]) -> JavaProcess:
        self.broker_started = time.perf_counter()
        return super()._run(stack, name, command)


def time_java(store: Path) -> float:
    """Return how long the Java broker takes from its start until its queues are complete.

    It gets the log alone, and the sign of an unclean stop: so it dispatches every record before
    it says that it has booted.
    """
    toolchain = JavaToolchain.find()
    layout = find_store(store)
    with tempfile.TemporaryDirectory(prefix="java-", dir=store.parent) as name:
        root = Path(name) / "store"
        (root / "commitlog").mkdir(parents=True)
        for file in layout.log_files[:-1]:
            os.link(file.path, root / "commitlog" / file.path.name)
        # It writes behind the end of the last one.
        last = layout.log_files[-1].path
        shutil.copyfile(last, root / "commitlog" / last.name)
        shutil.copytree(store / "config", root / "config")
        (root / "abort").touch()
        work = Path(name) / "work"
        work.mkdir()
        config = {"mappedFileSizeCommitLog": layout.log_file_size}
        with TimedCluster(root, config, work_directory=work, toolchain=toolchain) as cluster:
            taken = time.perf_counter() - cluster.broker_started
            cluster.kill_broker()
        made = find_store(root)
        assert set(layout.queues) <= set(made.queues), "the broker has not made every queue"
    return taken


def job_cases() -> list[Case]:
    """Return the cases of this module."""
    return [
        Case("verify", verify_store),
        Case("rebuild", rebuild_store),
        Case("rebuild with Spark's start", rebuild_from_cold, aim=JAVA_PER_SECOND),
    ]


def main() -> None:
    """Rebuild one store, or let Java do it, and print how many messages or seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--java", action="store_true", help="let the Java 4.9.7 broker do it")
    options = parser.parse_args()
    if options.java:
        print(f"{time_java(options.store):.1f} s")
        return
    with (
        tempfile.TemporaryDirectory(prefix="rebuilt-", dir=options.store.parent) as name,
        job_session(SessionSettings(app_name="flintmq-bench", conf=PYTHON_TASKS_CONF)) as spark,
    ):
        print(rebuild(spark, options.store, out=Path(name) / "views").record_count)


if __name__ == "__main__":
    main()
