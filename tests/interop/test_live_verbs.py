"""``flintmq admin tail`` and ``bench`` against the official broker of 4.9.7."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kits.admin.admin_kit import AdminCli
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("live-verbs")]

TOPIC: Final = "orders"
SETTINGS: Final = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": 1 << 20,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory, toolchain: JavaToolchain) -> Iterator[AdminCli]:
    work = tmp_path_factory.mktemp("live-verbs")
    store: Path = work / "store"
    with JavaCluster(store, SETTINGS, work_directory=work, toolchain=toolchain) as cluster:
        tools = AdminCli(f"{HOST}:{cluster.namesrv_port}")
        tools.change("updateTopic", "-t", TOPIC, "-b", f"{HOST}:{cluster.broker_port}")
        yield tools


def test_bench_and_tail_work_on_a_java_cluster(cli: AdminCli) -> None:
    long = ("--seconds", "120", "-t", TOPIC)
    (sent,) = cli.rows("bench", "producer", *long, "--count", "100", "--in-flight", "8")
    assert (sent["messages"], sent["failed"]) == (100, 0)
    (read,) = cli.rows("bench", "consumer", *long)
    assert (read["messages"], read["failed"]) == (100, 0)
    (timed,) = cli.rows("bench", "latency", *long, "--count", "20", "--in-flight", "4")
    assert (timed["messages"], timed["failed"]) == (20, 0)
    ran = cli.run("tail", "-t", TOPIC, "--last", "200", "--count", "120", "-o", "jsonl")
    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    places = {(row["queueId"], row["queueOffset"]) for row in rows}
    assert len(places) == 120
    assert {row["body"] for row in rows} == {"x" * 128}
