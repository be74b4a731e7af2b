"""Rows that attempts on a cluster of Spark send more than once: each lands, and once for readers.

Executors are killed, tasks are stopped and go on later, and Spark runs copies of slow tasks.  The
oracle is the topic that was copied.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.testing import EmbeddedCluster
from tests.kits.spark.cluster import Cluster, Daemon, spark_cluster
from tests.kits.spark.live_kit import Admin, Row, bodies, send, texts, until
from tests.kits.spark.process_kit import LOOK_S, pipeline, stored_count
from tests.kits.spark.sink_kit import first_copies, stored

COUNT = 600
QUEUES = 4
RATE = 60
END_S = 400
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "500ms",
}
"""A task that takes longer than others is run a second time beside the first."""


@pytest.fixture
def executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of Spark with two workers."""
    with spark_cluster(tmp_path_factory.mktemp("cluster"), worker_count=2) as there:
        yield there


def python_workers(worker: Daemon) -> list[int]:
    """Return the Python processes of a worker's executor, which have a group of their own."""
    return [
        process
        for process in (int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit())
        if "daemon" in _text(process, "cmdline") and _descends(process, worker.group)
    ]


def _descends(process: int, group: int) -> bool:
    """Whether a process, or one that has started it, is in a process group."""
    while process > 1:
        # After the name, which may hold blanks: state, parent, process group.
        fields = _text(process, "stat").rpartition(")")[2].split()
        if not fields:
            return False
        if int(fields[2]) == group:
            return True
        process = int(fields[1])
    return False


def _text(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text(errors="replace")
    except OSError:
        return ""  # It has ended meanwhile.


def by_queue(rows: list[Row]) -> dict[int, list[bytes]]:
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    for row in rows:
        found[row["queueId"]].append(row["body"])
    return dict(found)


def test_killed_executors_and_stalled_tasks_leave_each_row_once(
    cluster: EmbeddedCluster, executors: Cluster, tmp_path: Path
) -> None:
    with Admin(cluster.namesrv) as admin:
        admin.set_topic("origin", QUEUES)
    send(cluster, "origin", range(COUNT))
    log = tmp_path / "copy.log"
    arguments = ["copy", cluster.namesrv, "--to", cluster.namesrv, "--topic", "origin=copied"]
    arguments += ["--state", str(tmp_path / "state"), "--rate", str(RATE), "--available-now"]
    arguments += ["--master", executors.url, "--conf", "spark.driver.host=127.0.0.1"]
    for name, value in SPECULATION.items():
        arguments += ["--conf", f"{name}={value}"]
    with pipeline(*arguments, log=log, PYSPARK_PYTHON=str(executors.python)) as process:

        def has_sent(count: int) -> None:
            def is_so() -> bool:
                assert process.poll() is None, log.read_text()
                return stored_count(cluster.namesrv, "copied") >= count

            until(is_so, timeout_s=END_S, pause_s=LOOK_S)

        has_sent(COUNT // 8)
        stalled = python_workers(executors.workers[1])
        assert stalled
        for one in stalled:
            os.kill(one, signal.SIGSTOP)
        has_sent(COUNT // 4)
        for one in stalled:
            os.kill(one, signal.SIGCONT)
        has_sent(COUNT // 2)
        executors.workers[0].kill()
        executors.add_workers(1)
        assert process.wait(END_S) == 0, log.read_text()
    assert len(stored(cluster.namesrv, "copied")) > COUNT, "nothing was sent twice"
    assert {row["body"] for row in stored(cluster.namesrv, "copied")} == {
        row["body"] for row in stored(cluster.namesrv, "origin")
    }
    # Ranges of any length, so that readers have to look back.
    for length in ("37", "100000"):
        found = first_copies(cluster.namesrv, "copied", maxRecordsPerPartition=length)
        assert bodies(found) == texts(range(COUNT))
    assert sorted(map(sorted, by_queue(found).values())) == sorted(
        map(sorted, by_queue(stored(cluster.namesrv, "origin")).values())
    )
