"""Pairs of ours under official Java clients: faults lose nothing, and restarts stop nobody."""

import asyncio
import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.offline.dump import Dump, Selection
from flintmq.offline.layout import find_store
from flintmq.remoting import RemotingClient
from tests.kits.processes.broker_process import (
    SLAVE,
    OurBroker,
    OurNamesrv,
    wait_for_same_logs,
)
from tests.kits.processes.java_clients import find_clients, scenario_command
from tests.kits.processes.java_cluster import HOST
from tests.kits.processes.line_process import LineProcess
from tests.kits.replication.chaos import (
    CLIENT_VERSION,
    LEVELS,
    SETTINGS,
    run_pair,
    wait_for_progress,
)

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("replication")]

SEEDS: Final = (3, 4)
FAULT_COUNT: Final = 4


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pair_under_faults_keeps_what_it_acknowledged(seed: int, tmp_path: Path) -> None:
    faults = run_pair(tmp_path, seed, FAULT_COUNT)
    assert len(faults) == FAULT_COUNT


async def create_topic(address: str) -> None:
    """Make the topic of the load on one master; the clients make it on one of them only."""
    header = CreateTopicRequest(
        topic="java-load", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6
    )
    async with RemotingClient() as client:
        answer = await client.call(
            address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_ms=5000
        )
    assert answer.code == ResponseCode.SUCCESS


def test_every_process_is_restarted_in_turn_under_load(tmp_path: Path) -> None:
    clients = find_clients(CLIENT_VERSION)
    with ExitStack() as stack:
        names = [
            stack.enter_context(OurNamesrv(tmp_path / f"namesrv-{number}")) for number in range(2)
        ]
        namesrv = ";".join(one.address for one in names)
        brokers = []
        for role in ({"brokerRole": "ASYNC_MASTER"}, SLAVE):
            for name in ("broker-a", "broker-b"):
                settings = {**SETTINGS, **role, "brokerName": name}
                directory = tmp_path / f"{name}-{role['brokerRole']}"
                brokers.append(stack.enter_context(OurBroker(directory, namesrv, settings)))
        for broker in brokers[:2]:
            asyncio.run(create_topic(f"{HOST}:{broker.port}"))
        home = tmp_path / "home"
        command = scenario_command(clients, home, namesrv, ["load"])
        with LineProcess(command, home=home) as load:
            wait_for_progress(load)
            servers: list[OurNamesrv | OurBroker] = [*names, *reversed(brokers)]
            for server in servers:
                server.stop()
                server.start()
                wait_for_progress(load)
            load.end_input()
            consumed = load.wait_for("consumed")[0]
            acknowledged = load.all("acknowledged")
        assert consumed["acknowledged"] == len(acknowledged)
        masters, slaves = brokers[:2], brokers[2:]
        for master, slave in zip(masters, slaves, strict=True):
            wait_for_same_logs(master.store, slave.store)
    bodies = {hashlib.sha256(line["body"].encode()).hexdigest() for line in acknowledged}
    for group in (masters, slaves):
        stored = set()
        for broker in group:
            selection = Selection(topic="java-load", scan=True)
            dump = Dump(find_store(broker.store), selection, delay_levels=LEVELS)
            stored |= {message["bodySha256"] for message in dump.messages()}
        assert bodies <= stored
