"""Failover by hand with real processes: promote, and the old master comes back as a slave."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flintmq import Message, Producer, SendStatus
from tests.kits.processes.broker_process import OurNamesrv, log_content, wait_for_same_logs
from tests.kits.processes.java_cluster import free_ports
from tests.kits.processes.java_process import JavaProcess
from tests.kits.processes.serve_command import command

SETTINGS = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "haSendHeartbeatInterval": 200,
    "haHousekeepingInterval": 3000,
    "slaveTimeout": 1000,
}


class FileBroker:
    """A broker that is started on a file, which holds its role."""

    def __init__(self, root: Path, namesrv: str, **settings: object) -> None:
        root.mkdir()
        self.store = root / "store"
        self.file = root / "broker.conf"
        self.port = free_ports()[1]
        lines = {
            **SETTINGS,
            "namesrvAddr": namesrv,
            "listenPort": self.port,
            "storePathRootDir": self.store,
            **settings,
        }
        self.file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    @contextmanager
    def running(self) -> Iterator[JavaProcess]:
        process, _ = JavaProcess.until(
            "boot success",
            command("broker", "-c", str(self.file)),
            log=self.file.with_suffix(f".{time.monotonic_ns()}.log"),
        )
        try:
            yield process
        finally:
            process.stop()

    def tool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command("broker", arguments[0], "-c", str(self.file), *arguments[1:]),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def send(namesrv: str, *bodies: bytes) -> list[SendStatus]:
    with Producer(namesrv=namesrv, group="senders") as producer:
        return [producer.send(Message(topic="orders", body=body)).status for body in bodies]


@pytest.mark.slow
def test_a_slave_takes_over_and_the_old_master_comes_back(tmp_path: Path) -> None:
    with OurNamesrv(tmp_path / "namesrv") as server:
        namesrv = server.address
        one = FileBroker(tmp_path / "one", namesrv, brokerRole="SYNC_MASTER")
        two = FileBroker(tmp_path / "two", namesrv, brokerRole="SLAVE", brokerId=1)
        with one.running() as master:
            with two.running() as slave:
                statuses = send(namesrv, *(b"shared-%d" % number for number in range(40)))
                while SendStatus.SEND_OK not in statuses:
                    statuses = send(namesrv, b"is the slave there?")
                wait_for_same_logs(one.store, two.store)
                slave.kill()
            # The master takes two more messages that nobody else has, and says so; then it dies.
            assert SendStatus.SEND_OK not in send(namesrv, b"surplus-1", b"surplus-2")
            master.kill()
        with two.running():
            refused = two.tool("promote")
            assert refused.returncode != 0
            assert "another broker holds this lock" in refused.stderr
        with one.running():
            refused = two.tool("promote")
            assert "has a master at" in refused.stderr, refused.stderr
        done = two.tool("promote", "--role", "SYNC_MASTER")
        assert done.returncode == 0, done.stderr
        with two.running():
            assert send(namesrv, b"after-1") == [SendStatus.SLAVE_NOT_AVAILABLE]
            shown = one.tool("rejoin")
            assert "lacks" in shown.stdout, shown.stdout + shown.stderr
            assert "2 messages" in shown.stdout
            assert b"surplus-2" in log_content(one.store)
            done = one.tool("rejoin", "--yes")
            assert done.returncode == 0, done.stdout + done.stderr
            assert b"surplus" not in log_content(one.store)
            with one.running():
                wait_for_same_logs(two.store, one.store)
                while send(namesrv, b"after-2") != [SendStatus.SEND_OK]:
                    pass
                content = wait_for_same_logs(two.store, one.store)
            assert content.count(b"shared-") == 40
            assert b"after-2" in content
    aside = b"".join(path.read_bytes() for path in (one.store / "recovered").glob("*.cut"))
    assert aside.count(b"surplus-") == 2
    for store in (one.store, two.store):
        verified = subprocess.run(
            command("store", "verify", str(store)), capture_output=True, text=True, check=False
        )
        assert verified.returncode == 0, verified.stdout
