"""Our broker and the Java broker go on with each other's data directory.

One broker gets a history from Java clients: messages, a group that has consumed a part, settings
of topics and groups, a delayed message and a transaction that are still waiting.  It stops, the
other one is started on the same store, and the same clients have to notice nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.interop.java_clients import Told, find_clients, run_scenarios, went_well
from tests.interop.java_cluster import HOST, JavaCluster
from tests.interop.java_toolchain import JavaToolchain
from tests.interop.serving import SMALL_FILES, Serving

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("two-directions")]

CLIENT_VERSION: Final = "4.9.8"
COUNT: Final = 30
QUEUES: Final = 3
CONSUMED_PER_QUEUE: Final = 4
SETTINGS: Final = {
    **SMALL_FILES,
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
}


Runs = Callable[[Path, Path, JavaToolchain], AbstractContextManager[str]]


@contextmanager
def ours(data: Path, work: Path, toolchain: JavaToolchain) -> Iterator[str]:
    """Serve ``data/store`` and yield the address of the name server."""
    with Serving(data, SETTINGS) as servers:
        yield servers.namesrv


@contextmanager
def javas(data: Path, work: Path, toolchain: JavaToolchain) -> Iterator[str]:
    """Let the Java broker serve ``data/store``; yield the address of the name server."""
    work.mkdir()
    with JavaCluster(data / "store", SETTINGS, work_directory=work, toolchain=toolchain) as cluster:
        yield f"{HOST}:{cluster.namesrv_port}"


@pytest.mark.parametrize(
    ("before", "after"), [(javas, ours), (ours, javas)], ids=["java-to-ours", "ours-to-java"]
)
def test_a_broker_goes_on_with_the_history_of_the_other(
    before: Runs, after: Runs, tmp_path: Path, toolchain: JavaToolchain
) -> None:
    clients = find_clients(CLIENT_VERSION)
    data = tmp_path / "data"
    with before(data, tmp_path / "before", toolchain) as namesrv:
        told = run_scenarios(clients, tmp_path / "home", namesrv, ["history-written"])
        written = went_well(told, "history-written")
    with after(data, tmp_path / "after", toolchain) as namesrv:
        told = run_scenarios(clients, tmp_path / "home", namesrv, ["history-continued"])
        continued = went_well(told, "history-continued")
    assert_settings_survived(continued)
    assert_messages_survived(written, continued)
    assert_progress_survived(continued)


def assert_settings_survived(continued: Told) -> None:
    assert continued.one("group")["retryMaxTimes"] == 9
    topic = continued.one("topic")
    assert (topic["read"], topic["write"]) == (QUEUES, QUEUES)


def assert_messages_survived(written: Told, continued: Told) -> None:
    old = {
        line["msgId"]: (line["queueId"], line["queueOffset"])
        for line in written.all("sent")[:COUNT]
    }
    read = {line["msgId"]: line for line in continued.all("received", by="reader")}
    assert {
        message: (read[message]["queueId"], read[message]["queueOffset"]) for message in old
    } == old
    delayed = [line for line in read.values() if line["body"] == "delayed"]
    assert [line["topic"] for line in delayed] == ["java-history"]
    assert continued.one("found")["count"] == 1
    # The transaction was left open; the new broker asked, and the producer committed.
    pending = [line for line in read.values() if line["topic"] == "java-history-pending"]
    assert [line["body"] for line in pending] == ["committed when asked"]


def assert_progress_survived(continued: Told) -> None:
    assert continued.one("progress")["offsets"] == [CONSUMED_PER_QUEUE] * QUEUES
    got = {line["body"]: line for line in continued.all("received", by="group")}
    left = {f"body-{number}" for number in range(QUEUES * CONSUMED_PER_QUEUE, COUNT)}
    new = {f"body-{COUNT + number}" for number in range(QUEUES)}
    assert got.keys() == left | new | {"delayed"}
    # What is sent now lies right behind what was there.
    ends = {0: 10, 1: 10, 2: 10}
    delayed = got["delayed"]
    ends[delayed["queueId"]] = delayed["queueOffset"] + 1
    assert {line["queueId"]: line["queueOffset"] for line in continued.all("sent")} == ends
