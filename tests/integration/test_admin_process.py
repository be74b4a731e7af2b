"""``flintmq admin`` as a process: pipes that close, and Ctrl-C."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from flintmq.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic("orders")
        yield running


def started(cluster: EmbeddedCluster, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "flintmq", "admin", "-n", cluster.namesrv, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


@pytest.mark.parametrize("form", ["table", "json", "csv", "yaml"])
def test_a_reader_that_has_seen_enough_is_no_failure(cluster: EmbeddedCluster, form: str) -> None:
    with started(cluster, "getBrokerConfig", "-b", "broker-a", "-o", form) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, "")


def test_a_benchmark_that_is_interrupted_shows_what_it_has_measured(
    cluster: EmbeddedCluster,
) -> None:
    options = ("--seconds", "600", "--progress", "-o", "jsonl")
    with started(cluster, "bench", "producer", "-t", "orders", *options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "messages" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.wait(60) == 130
        assert "Traceback" not in process.stderr.read()
    assert '"messages":' in said


def test_who_watches_stops_without_a_word(cluster: EmbeddedCluster) -> None:
    with started(cluster, "clusterList", "--watch", "600") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stderr.read().strip()) == (130, "")
