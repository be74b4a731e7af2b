"""Metrics and health of real servers, scraped over loopback."""

import asyncio
from pathlib import Path
from typing import Final

from flintmq.remoting import RemotingClient
from tests.kits.broker.scrape_kit import http_get, scrape
from tests.kits.processes.serve_client import send
from tests.kits.processes.serve_process import Group, ServeProcess, serving
from tests.kits.processes.serve_process import run as run_command

POLL_S: Final = 0.05


def metrics_of(group: Group) -> list[str]:
    words = [word.partition("=") for word in group.ready_line.split()]
    return next(value for key, _, value in words if key == "metrics").split(",")


async def test_a_group_in_one_process_shows_its_broker_and_its_name_server(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--metrics-port", "0") as group:
        broker, namesrv = metrics_of(group)
        async with RemotingClient() as client:
            await send(client, group.brokers[0], b"one")
        scraped = await scrape(broker)
        assert scraped.value("flintmq_store_puts_total", node_type="broker") == 1
        assert scraped.value("flintmq_store_recovery_clean") == 1
        told = await scrape(namesrv)
        assert told.value("flintmq_namesrv_brokers", role="master") == 1
        assert told.value("flintmq_connections", node_type="nameserver") >= 1
        for address in (broker, namesrv):
            assert address.startswith("127.0.0.1:")
            assert (await http_get(address, "/readyz")).status == 200
            assert (await http_get(address, "/healthz")).status == 200
        assert group.stop().code == 0


async def test_each_process_of_a_group_has_an_endpoint_and_the_gap_is_told(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--replicas", "1", "--metrics-port", "0") as group:
        master, slave, namesrv = metrics_of(group)
        assert (await scrape(namesrv)).value("flintmq_namesrv_topics") > 0
        while (await scrape(master)).value("flintmq_slaves") != 1:  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(POLL_S)
        while (await http_get(slave, "/readyz")).status != 200:  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(POLL_S)
        assert (await scrape(slave)).value("flintmq_replication_gap_bytes", peer="master") == 0
        assert group.stop().code == 0


async def test_a_name_server_and_a_broker_tell_where_their_metrics_are(tmp_path: Path) -> None:
    pairs = f"--set=kvConfigPath={tmp_path / 'pairs'}"
    process = ServeProcess("namesrv", "--set=listenPort=0", pairs, "--metrics-port=0")
    try:
        line = process.wait_for("metrics: http://")
        address = line.removeprefix("metrics: http://").removesuffix("/metrics")
        assert (await http_get(address, "/readyz")).body == b"[+] listening: ok\nready\n"
    finally:
        process.close()


def test_an_exporter_that_there_is_not_is_refused(tmp_path: Path) -> None:
    ended = run_command(
        "broker", f"--set=storePathRootDir={tmp_path}", "--set=metricsExporterType=OTLP_GRPC"
    )
    assert ended.code != 0
    assert "DISABLE or PROM" in ended.err


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--metrics-port", "0") as group:
        taken = metrics_of(group)[0].rpartition(":")[2]
        ended = run_command(
            "serve",
            f"--data={tmp_path / 'other'}",
            "--namesrv-port=0",
            "--broker-port=0",
            f"--metrics-port={taken}",
        )
    assert ended.code != 0
    assert f":{taken}" in ended.err
