"""Pairs of a Java broker and ours, under official clients: each follows the other byte by byte."""

import subprocess
import time
from pathlib import Path
from random import Random
from typing import Final

import pytest

from flintmq import Message, Producer
from tests.kits.processes.broker_process import (
    SLAVE,
    JavaBroker,
    OurBroker,
    wait_for_same_logs,
)
from tests.kits.processes.history import (
    assert_messages_survived,
    assert_progress_survived,
    assert_settings_survived,
)
from tests.kits.processes.java_clients import find_clients, run_scenarios, went_well
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain
from tests.kits.processes.serve_command import command
from tests.kits.processes.serving import SMALL_FILES, Serving

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("replication")]

CLIENT_VERSION: Final = "4.9.8"
ALL_KINDS: Final = ("history-written", "batch", "transaction")
SETTINGS: Final = {
    **SMALL_FILES,
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "mappedFileSizeCommitLog": str(256 << 10),
    "maxMessageSize": str(128 << 10),
    "haSendHeartbeatInterval": 500,
    "flushConsumerOffsetInterval": 500,
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
}


def load(namesrv: str, home: Path) -> None:
    """Send all kinds of messages by scenarios of Java clients, and those at the limits by ours."""
    told = run_scenarios(find_clients(CLIENT_VERSION), home, namesrv, ALL_KINDS)
    for name in ALL_KINDS:
        went_well(told, name)
    send_large(namesrv)


def send_large(namesrv: str) -> None:
    """Send until files of the log roll, with properties that come close to their 32767 bytes."""
    with Producer(namesrv=namesrv, group="limits") as producer:
        for number in range(12):
            properties = {f"p{n}": "v" * 1000 for n in range(number * 3 % 32)}
            body = Random(number).randbytes(50_000 + number)
            producer.send(Message(topic="limits", body=body, properties=properties))


def assert_sound(store: Path) -> None:
    """Have the store verified by our own tool: log, queues, index and state files."""
    done = subprocess.run(
        command("store", "verify", str(store)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_our_slave_has_the_log_of_a_java_master(tmp_path: Path, toolchain: JavaToolchain) -> None:
    work = tmp_path / "java"
    work.mkdir()
    with JavaCluster(
        tmp_path / "master", SETTINGS, work_directory=work, toolchain=toolchain
    ) as cluster:
        namesrv = f"{HOST}:{cluster.namesrv_port}"
        with OurBroker(tmp_path / "slave", namesrv, {**SETTINGS, **SLAVE}) as slave:
            load(namesrv, tmp_path / "home")
            content = wait_for_same_logs(tmp_path / "master", slave.store)
            # It is killed in mid-stream, and goes on where its log ends.
            slave.kill()
            send_large(namesrv)
            slave.start()
            more = wait_for_same_logs(tmp_path / "master", slave.store)
            assert len(more) > len(content) > 600_000
        # A slave that comes late gets all that there is: a Java slave would get the newest file.
        with OurBroker(tmp_path / "late", namesrv, {**SETTINGS, **SLAVE}) as late:
            wait_for_same_logs(tmp_path / "master", late.store)
    for root in ("slave", "late"):
        assert_sound(tmp_path / root / "store")


def test_a_java_slave_has_the_log_of_our_master(tmp_path: Path, toolchain: JavaToolchain) -> None:
    work = tmp_path / "java"
    work.mkdir()
    with (
        Serving(tmp_path / "ours", SETTINGS) as serving,
        JavaBroker(
            tmp_path / "slave",
            serving.namesrv,
            {**SETTINGS, **SLAVE},
            work_directory=work,
            toolchain=toolchain,
        ),
    ):
        load(serving.namesrv, tmp_path / "home")
        wait_for_same_logs(tmp_path / "ours" / "store", tmp_path / "slave")


def test_a_java_broker_goes_on_with_the_store_of_our_slave(
    tmp_path: Path, toolchain: JavaToolchain
) -> None:
    """Topics, groups, offsets, delay offsets and the log of a slave are files of a master."""
    clients = find_clients(CLIENT_VERSION)
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    # A master that asks every second, with nobody there to answer, would give up too soon.
    patient = {**SETTINGS, "transactionCheckInterval": "100000"}
    with JavaCluster(
        tmp_path / "master", patient, work_directory=tmp_path / "before", toolchain=toolchain
    ) as cluster:
        namesrv = f"{HOST}:{cluster.namesrv_port}"
        with OurBroker(tmp_path / "slave", namesrv, {**SETTINGS, **SLAVE}) as slave:
            told = run_scenarios(clients, tmp_path / "home", namesrv, ["history-written"])
            written = went_well(told, "history-written")
            wait_for_same_logs(tmp_path / "master", slave.store)
            wait_for_offsets(slave.store)
        cluster.kill_broker()
    with JavaCluster(
        slave.store, SETTINGS, work_directory=tmp_path / "after", toolchain=toolchain
    ) as cluster:
        namesrv = f"{HOST}:{cluster.namesrv_port}"
        told = run_scenarios(clients, tmp_path / "home", namesrv, ["history-continued"])
        continued = went_well(told, "history-continued")
    assert_settings_survived(continued)
    assert_messages_survived(written, continued)
    assert_progress_survived(continued)


def wait_for_offsets(store: Path) -> None:
    """Wait until the slave has written down how far the group of the history is."""
    deadline = time.monotonic() + 60
    path = store / "config" / "consumerOffset.json"
    wanted = "java-history@java-group-history"
    while not path.exists() or f'"{wanted}":{{0:4' not in path.read_text().replace('"0"', "0"):
        assert time.monotonic() < deadline, path.read_text() if path.exists() else "no file"
        time.sleep(0.2)
