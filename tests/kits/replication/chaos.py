"""A synchronous master and its slave as processes, under Java clients and random faults."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Final

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.offline.dump import Dump, Selection
from flintmq.offline.layout import find_store
from flintmq.offline.verify.store_verify import verify
from flintmq.testing import TcpProxy
from tests.kits.processes.broker_process import (
    SLAVE,
    OurBroker,
    OurNamesrv,
    wait_for_same_logs,
)
from tests.kits.processes.java_clients import find_clients, scenario_command
from tests.kits.processes.line_process import Line, LineProcess
from tests.kits.replication.pair_faults import Pair

CLIENT_VERSION: Final = "4.9.8"
LEVELS: Final = DelayLevels.parse(DEFAULT_DELAY_LEVELS)
ACKNOWLEDGED_BETWEEN: Final = 120
SETTINGS: Final = {
    "flushConsumerOffsetInterval": 500,
    "haSendHeartbeatInterval": 300,
    "haHousekeepingInterval": 2000,
    "mappedFileSizeCommitLog": 256 << 10,
    "maxMessageSize": 64 << 10,
}


def run_pair(directory: Path, seed: int, fault_count: int) -> list[str]:
    """Run a pair under load and faults, and judge it; return the faults, in their order."""
    rng = Random(seed)
    clients = find_clients(CLIENT_VERSION)
    faults = []
    with OurNamesrv(directory / "namesrv") as names:
        master = OurBroker(
            directory / "master", names.address, {**SETTINGS, "brokerRole": "SYNC_MASTER"}
        )
        with master, TcpProxy(f"127.0.0.1:{master.port + 1}") as stream:
            settings = {**SETTINGS, **SLAVE, "haMasterAddress": stream.address}
            home = directory / "home"
            command = scenario_command(clients, home, names.address, ["load"])
            with (
                OurBroker(directory / "slave", names.address, settings) as slave,
                LineProcess(command, home=home) as load,
            ):
                for _ in range(fault_count):
                    wait_for_progress(load)
                    fault = rng.choice(
                        ["kill master", "kill slave", "stop slave", "stop master", "cut", "stall"]
                    )
                    faults.append(fault)
                    seconds = rng.choice([0.2, 1.0 if fault == "stop master" else 2.5])
                    Pair(master, slave, stream).cause(fault, seconds)
                wait_for_progress(load)
                load.end_input()
                consumed = load.wait_for("consumed")[0]
                acknowledged = load.all("acknowledged")
                wait_for_same_logs(master.store, slave.store)
    assert consumed["acknowledged"] == len(acknowledged)
    for broker in (master, slave):
        assert_stored(broker.store, acknowledged)
    return faults


def wait_for_progress(load: LineProcess) -> None:
    """Wait until some more messages were acknowledged."""
    load.wait_for("acknowledged", len(load.all("acknowledged")) + ACKNOWLEDGED_BETWEEN)


def assert_stored(store: Path, acknowledged: list[Line]) -> None:
    """Each acknowledged message lies where its answer said; queues have no holes; all is sound."""
    layout = find_store(store)
    selection = Selection(topic="java-load", scan=True)
    stored = list(Dump(layout, selection, delay_levels=LEVELS).messages())
    places = {(message["queueId"], message["queueOffset"]): message for message in stored}
    assert len(places) == len(stored)
    offsets = defaultdict(list)
    for queue_id, queue_offset in sorted(places):
        offsets[queue_id].append(queue_offset)
    assert all(found == list(range(len(found))) for found in offsets.values())
    for line in acknowledged:
        message = places[line["queueId"], line["queueOffset"]]
        assert message["bodySha256"] == hashlib.sha256(line["body"].encode()).hexdigest()
    report = verify(layout, delay_levels=LEVELS)
    assert report.is_sound, report.findings
