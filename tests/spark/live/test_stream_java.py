"""Streams under a live Java producer: of our broker while it is killed, and of a Java broker."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kits.processes.java_clients import find_clients, scenario_command
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain
from tests.kits.processes.line_process import LineProcess
from tests.kits.processes.serving import Serving
from tests.kits.spark.live_kit import Admin, Row, StreamRun, read

pytestmark = pytest.mark.interop

TOPIC = "java-load"
AT_LEAST = 300
SETTINGS = {
    "brokerName": "java-a",
    "brokerClusterName": "JavaCluster",
    "mappedFileSizeCommitLog": 8 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "enablePropertyFilter": "true",
}


def follow(namesrv: str, is_over: threading.Event) -> list[Row]:
    """Run micro-batches of few messages until all is read that was there when it was over."""
    options = {"subscribe": TOPIC, "startingOffsets": "earliest", "retries": "30"}
    with StreamRun(namesrv, maxOffsetsPerTrigger="40", **options) as run:
        found: list[Row] = []
        while True:
            was_over = is_over.is_set()
            rows = run.step()
            found += rows
            if was_over and not rows:
                return found


def stream_under_load(
    namesrv: str, home: Path, disturb: Callable[[LineProcess], None]
) -> tuple[list[Row], list[dict[str, object]]]:
    """Return what a stream has read of a Java producer, and what that was acknowledged."""
    command = scenario_command(find_clients("4.9.8"), home, namesrv, ["load"])
    is_over = threading.Event()
    with (
        LineProcess(command, home=home) as load,
        ThreadPoolExecutor(max_workers=1) as pool,
    ):
        load.wait_for("acknowledged")  # There is a topic now.
        following = pool.submit(follow, namesrv, is_over)
        try:
            disturb(load)
            load.wait_for("acknowledged", len(load.all("acknowledged")) + AT_LEAST)
            load.end_input()
            load.wait_for("consumed")
        finally:
            is_over.set()
        return following.result(timeout=120), load.all("acknowledged")


def assert_each_once(found: list[Row], acknowledged: list[dict[str, object]]) -> None:
    places = Counter((row["queueId"], row["queueOffset"]) for row in found)
    assert set(places.values()) == {1}
    for queue_id in {queue_id for queue_id, _ in places}:
        offsets = [row["queueOffset"] for row in found if row["queueId"] == queue_id]
        assert offsets == list(range(len(offsets)))
    by_place = {(row["queueId"], row["queueOffset"]): row["body"].decode() for row in found}
    for line in acknowledged:
        assert by_place[line["queueId"], line["queueOffset"]] == line["body"]


def test_a_broker_that_is_killed_under_a_java_producer_costs_the_stream_nothing(
    tmp_path: Path,
) -> None:
    with Serving(tmp_path / "data") as servers:

        def kill(load: LineProcess) -> None:
            load.wait_for("acknowledged", AT_LEAST)
            servers.kill()
            servers.start()

        found, acknowledged = stream_under_load(servers.namesrv, tmp_path / "home", kill)
        there = read(servers.namesrv, subscribe=TOPIC)
    assert_each_once(found, acknowledged)
    assert len(found) == len(there)


def test_a_java_broker_is_read_and_told_of_offsets(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    toolchain = JavaToolchain.find()
    with JavaCluster(
        tmp_path / "store", SETTINGS, work_directory=tmp_path, toolchain=toolchain
    ) as cluster:
        namesrv = f"{HOST}:{cluster.namesrv_port}"
        found, acknowledged = stream_under_load(namesrv, tmp_path / "home", lambda load: None)
        assert_each_once(found, acknowledged)
        options = {"subscribe": TOPIC, "startingOffsets": "earliest"}
        with StreamRun(namesrv, group="spark", commitOffsets="true", **options) as run:
            assert len(run.step()) == len(found)
        with Admin(namesrv) as admin:
            committed = admin.committed("spark", TOPIC, "java-a")
        assert sum(offset or 0 for offset in committed.values()) == len(found)
        # By SQL, which this broker has; by time; by pattern.
        some = read(namesrv, subscribe=TOPIC, sqlFilter="UNIQ_KEY IS NOT NULL")
        assert len(some) == len(found)
        assert not read(namesrv, subscribe=TOPIC, sqlFilter="colour = 'red'")
        last = max(row["storeTimestamp"] for row in found)
        late = read(
            namesrv,
            subscribePattern="java-l.*",
            startingTimestamp=last.isoformat(),
            startingOffsetsByTimestampStrategy="latest",
        )
        assert len(late) == sum(row["storeTimestamp"] >= last for row in found)
        cluster.kill_broker()
