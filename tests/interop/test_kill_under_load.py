"""A broker killed by SIGKILL while Java clients work loses nothing that it acknowledged."""

from pathlib import Path

import pytest

from tests.kits.processes.java_clients import find_clients, scenario_command
from tests.kits.processes.line_process import LineProcess
from tests.kits.processes.serving import Serving
from tests.kits.replication.chaos import assert_stored

pytestmark = pytest.mark.interop

KILLS = 2
ACKNOWLEDGED_BETWEEN_KILLS = 300


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_killed_broker_keeps_what_it_acknowledged(flush: str, tmp_path: Path) -> None:
    toolchain = find_clients("4.9.8")
    settings = {"flushDiskType": flush, "flushConsumerOffsetInterval": "500"}
    with Serving(tmp_path / "data", settings) as servers:
        home = tmp_path / "home"
        command = scenario_command(toolchain, home, servers.namesrv, ["load"])
        with LineProcess(command, home=home) as load:
            for _ in range(KILLS):
                wait_for_progress(load)
                servers.kill()
                servers.start()
            wait_for_progress(load)
            # The producers stop; the consumer, which was there all the time, has to get the rest.
            load.end_input()
            consumed = load.wait_for("consumed")[0]
            acknowledged = load.all("acknowledged")
    assert consumed["acknowledged"] == len(acknowledged)
    assert_stored(tmp_path / "data" / "store", acknowledged)


def wait_for_progress(load: LineProcess) -> None:
    load.wait_for("acknowledged", len(load.all("acknowledged")) + ACKNOWLEDGED_BETWEEN_KILLS)
