"""What ``flintmq serve`` gives each broker, and when it starts one again."""

from dataclasses import replace
from pathlib import Path

import pytest

from flintmq.cli.servers.serve_plan import Member, ServePlan
from flintmq.cli.servers.supervision import (
    LASTING_RUN_S,
    RESTART_COUNT_MAX,
    RESTART_DELAY_MAX_S,
    Restarts,
)
from flintmq.settings.metrics_settings import MetricsExporter
from flintmq.store.config import BrokerRole


def plan(**settings: str) -> ServePlan:
    return ServePlan(
        data=Path("/data"),
        host="127.0.0.1",
        namesrv_port=0,
        broker_port=0,
        count=3,
        settings=settings,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"storePathCommitLog": "/logs/"},
        {"storePathRootDir": "/store"},
        {"storePathCommitLog": "/one,/two", "readOnlyCommitLogStorePaths": "/two"},
    ],
)
def test_no_directory_is_given_to_two_brokers(settings: dict[str, str]) -> None:
    seen: set[Path] = set()
    for index in range(3):
        _, store = plan(**settings).broker_settings(Member(index), "")
        own = {store.root, *store.commit_log_paths, *store.read_only_commit_log_paths}
        assert not own & seen
        seen |= own


def test_the_first_broker_keeps_a_directory_and_others_get_one_beside_it() -> None:
    paths = [
        plan(storePathCommitLog="/logs/").broker_settings(Member(index), "")[1].commit_log_paths
        for index in range(3)
    ]
    assert paths == [(Path("/logs"),), (Path("/logs-broker-b"),), (Path("/logs-broker-c"),)]


def test_the_sizes_of_a_log_are_found_wherever_it_lies(tmp_path: Path) -> None:
    """Java's files of 1 GiB could not be opened as ours of 128 MiB."""
    for place, settings in (
        (tmp_path / "root" / "commitlog", {}),
        (tmp_path / "logs", {"storePathCommitLog": f"{tmp_path / 'logs'}"}),
        (tmp_path / "two", {"storePathCommitLog": f"{tmp_path / 'one'}, {tmp_path / 'two'}"}),
    ):
        place.mkdir(parents=True)
        with (place / ("0" * 20)).open("wb") as file:
            file.truncate(1 << 30)
        whole = plan(storePathRootDir=str(tmp_path / "root"), **settings)
        _, store = whole.broker_settings(Member(0), "")
        assert store.commit_log_file_size == 1 << 30
        (place / ("0" * 20)).unlink()


def test_slaves_get_ports_and_directories_of_their_own() -> None:
    whole = replace(plan(brokerRole="SYNC_MASTER"), broker_port=10911, count=2, replica_count=2)
    ports: set[int] = set()
    roots: set[Path] = set()
    for member in whole.members():
        broker, store = whole.broker_settings(member, "127.0.0.1:9876")
        own = {broker.listen_port, broker.listen_port - 2, store.ha_listen_port}
        assert store.ha_listen_port == broker.listen_port + 1
        assert not own & ports
        assert store.root not in roots
        ports |= own
        roots.add(store.root)
        role = BrokerRole.SLAVE if member.replica else BrokerRole.SYNC_MASTER
        assert (store.broker_role, broker.broker_id) == (role, member.replica)
        assert broker.name == f"broker-{'ab'[member.group_index]}"
    assert len(roots) == 6


def test_name_servers_get_ports_and_directories_of_their_own() -> None:
    configs = replace(plan(), namesrv_port=9876, namesrv_count=2).namesrv_configs()
    assert [config.listen_port for config in configs] == [9876, 9877]
    assert len({config.kv_config_path for config in configs}) == 2


def test_a_broker_is_started_again_later_each_time_and_not_for_ever() -> None:
    restarts = Restarts()
    delays = [restarts.next_delay_s(0.1) for _ in range(RESTART_COUNT_MAX)]
    assert delays == [1, 2, 4, 8, 16, RESTART_DELAY_MAX_S]
    assert restarts.next_delay_s(0.1) is None


def test_a_run_that_lasted_begins_the_count_anew() -> None:
    restarts = Restarts()
    for _ in range(RESTART_COUNT_MAX):
        restarts.next_delay_s(0.1)
    assert restarts.next_delay_s(LASTING_RUN_S) == 1


def test_metrics_of_brokers_come_first_and_those_of_name_servers_behind() -> None:
    shown = replace(plan(), metrics_port=5000, replica_count=1, namesrv_count=2)
    brokers = [shown.broker_settings(member, "")[0] for member in shown.members()]
    servers = [*brokers, *shown.namesrv_configs()]
    assert [one.metrics_port for one in servers] == list(range(5000, 5008))
    assert {one.metrics_exporter for one in servers} == {MetricsExporter.PROM}
    assert {one.metrics_host for one in servers} == {"127.0.0.1"}


def test_metrics_are_shown_nowhere_unless_asked_and_on_free_ports_if_that_is_asked() -> None:
    hidden = plan()
    servers = [hidden.broker_settings(Member(0), "")[0], *hidden.namesrv_configs()]
    assert {one.metrics_exporter for one in servers} == {MetricsExporter.DISABLE}
    free = replace(plan(metricsPromExporterHost="0.0.0.0"), metrics_port=0)
    servers = [free.broker_settings(Member(1), "")[0], *free.namesrv_configs()]
    assert {(one.metrics_host, one.metrics_port) for one in servers} == {("0.0.0.0", 0)}


def test_the_ready_line_tells_where_metrics_are_only_if_they_are_somewhere() -> None:
    alone = replace(plan(), count=1)
    line = alone.ready_line("n:1", ["b:2"], ["m:3", "m:4"])
    assert line == "ready: namesrv=n:1 broker=b:2 metrics=m:3,m:4 data=/data"
    assert (
        alone.ready_line("n:1", ["b:2"], [None, None]) == "ready: namesrv=n:1 broker=b:2 data=/data"
    )
