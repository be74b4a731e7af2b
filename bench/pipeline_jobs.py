"""Benchmarks of the jobs that read whole stores: verify, rebuild, and the Java broker's rebuild."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from bench.pipeline_case import BenchStore, Case, Done
from flintmq.offline.layout import find_store
from flintmq.spark.jobs.rebuild.parallel_rebuild import rebuild
from flintmq.spark.jobs.verify.parallel_verify import verify_stores
from tests.kits.processes.java_cluster import JavaCluster
from tests.kits.processes.java_process import JavaProcess
from tests.kits.processes.java_toolchain import JavaToolchain

JAVA_PER_SECOND = 725_000
"""What the Java 4.9.7 broker rebuilt on two cores, with its start: 10 M messages in 13.8 s."""

JAVA_BOOT_SECONDS_MAX = 900


def verify_store(spark: SparkSession, store: BenchStore) -> Done:
    (report,) = verify_stores(spark, [store.root])
    assert report.is_sound, list(report.findings)
    return Done(report.record_count)


def rebuild_store(spark: SparkSession, store: BenchStore) -> Done:
    with tempfile.TemporaryDirectory(prefix="rebuilt-", dir=store.root.parent) as name:
        start = time.perf_counter()
        report = rebuild(spark, store.root, out=Path(name) / "views")
        seconds = time.perf_counter() - start
        assert_same_views(Path(name) / "views", store.root)
        return Done(report.record_count, seconds)


def rebuild_from_cold(_: SparkSession, store: BenchStore) -> Done:
    """Run the command: from its start to its end, with those of Python and Spark."""
    with tempfile.TemporaryDirectory(prefix="rebuilt-", dir=store.root.parent) as name:
        command = ("flintmq", "pipeline", "rebuild", str(store.root), "--format", "json")
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", *command, "--out", str(Path(name) / "views")],
            check=True,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - start
        return Done(json.loads(done.stdout)["recordCount"], seconds)


def assert_same_views(views: Path, store: Path) -> None:
    """Compare with the views of the store, which were not derived from its log."""
    for kind in ("consumequeue", "index"):
        # An index file is named after the moment at which it was made.
        pairs = zip(files_of(views / kind), files_of(store / kind), strict=True)
        for made, known in pairs:
            assert_same(made, known)


def assert_same(made: Path, known: Path) -> None:
    subprocess.run(["cmp", "--silent", str(made), str(known)], check=True)


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


class PatientProcess(JavaProcess):
    """Waits as long as a rebuild takes."""

    def wait_for(self, text: str, *, timeout_s: float = JAVA_BOOT_SECONDS_MAX) -> str:
        return super().wait_for(text, timeout_s=timeout_s)


class TimedCluster(JavaCluster):
    """Notes when the broker's process was started, the last one."""

    broker_started = 0.0

    def _run(self, stack: ExitStack, name: str, command: list[str]) -> JavaProcess:
        self.broker_started = time.perf_counter()
        process = PatientProcess(
            command,
            log=self._work / f"{name}.out",
            environment={"ROCKETMQ_HOME": str(self._work / "home"), "TZ": "UTC"},
        )
        return stack.enter_context(process)


def rebuild_by_java(_: SparkSession, store: BenchStore) -> Done:
    """Time the Java broker from its start until its queues are complete.

    It gets the log alone, and the sign of an unclean stop: so it dispatches every record before
    it says that it has booted.
    """
    layout = find_store(store.root)
    with tempfile.TemporaryDirectory(prefix="java-", dir=store.root.parent) as name:
        root, work = Path(name) / "store", Path(name) / "work"
        (root / "commitlog").mkdir(parents=True)
        work.mkdir()
        for file in layout.log_files[:-1]:
            os.link(file.path, root / "commitlog" / file.path.name)
        # It writes behind the end of the last one.
        last = layout.log_files[-1].path
        shutil.copyfile(last, root / "commitlog" / last.name)
        shutil.copytree(store.root / "config", root / "config")
        (root / "abort").touch()
        config = {"mappedFileSizeCommitLog": layout.log_file_size}
        toolchain = JavaToolchain.find()
        with TimedCluster(root, config, work_directory=work, toolchain=toolchain) as cluster:
            taken = time.perf_counter() - cluster.broker_started
            cluster.kill_broker()
        for known in files_of(layout.queue_directory):
            assert_same(root / known.relative_to(store.root), known)
    return Done(store.messages, taken)


def job_cases() -> list[Case[BenchStore]]:
    """Return the cases of this module."""
    return [
        Case("verify", verify_store),
        Case("rebuild", rebuild_store),
        Case(
            "rebuild, the whole command",
            rebuild_from_cold,
            aim=JAVA_PER_SECOND,
            is_whole_process=True,
        ),
        Case("rebuild by the Java broker", rebuild_by_java, is_whole_process=True),
    ]
