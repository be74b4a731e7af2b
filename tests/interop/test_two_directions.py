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

from tests.kits.processes.history import (
    COUNT,
    QUEUES,
    assert_messages_survived,
    assert_progress_survived,
    assert_settings_survived,
)
from tests.kits.processes.java_clients import find_clients, run_scenarios, went_well
from tests.kits.processes.java_cluster import HOST, JavaCluster
from tests.kits.processes.java_toolchain import JavaToolchain
from tests.kits.processes.serving import SMALL_FILES, Serving

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("two-directions")]

CLIENT_VERSION: Final = "4.9.8"
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


def test_java_gets_its_store_back_with_what_we_have_appended(
    tmp_path: Path, toolchain: JavaToolchain
) -> None:
    """The upgrade and the way back of docs/operating/README.md, on one directory."""
    clients = find_clients(CLIENT_VERSION)
    data, home = tmp_path / "data", tmp_path / "home"
    with javas(data, tmp_path / "before", toolchain) as namesrv:
        told = run_scenarios(clients, home, namesrv, ["history-written"])
        written = went_well(told, "history-written")
    with ours(data, tmp_path / "ours", toolchain) as namesrv:
        told = run_scenarios(clients, home, namesrv, ["history-continued"])
        continued = went_well(told, "history-continued")
    work = tmp_path / "again"
    work.mkdir()
    with JavaCluster(data / "store", SETTINGS, work_directory=work, toolchain=toolchain) as cluster:
        view = cluster.read_all(["java-history", "java-history-pending"])
    read = {(one["topic"], one["queueId"], one["queueOffset"]) for one in view.messages}
    sent = [*written.all("sent")[:COUNT], *continued.all("sent")]
    places = {(one["topic"], one["queueId"], one["queueOffset"]) for one in sent}
    assert len(places) == len(sent) == COUNT + QUEUES
    assert places <= read
    pending = [one for one in view.messages if one["topic"] == "java-history-pending"]
    assert len(pending) == 1, "of the transaction that Java began and we have ended"
