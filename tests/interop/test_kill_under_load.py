"""A broker killed by SIGKILL while Java clients work loses nothing that it acknowledged."""

import hashlib
from collections import defaultdict
from pathlib import Path

import pytest

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.offline.dump import Dump, Selection
from flintmq.offline.layout import find_store
from flintmq.offline.verify import verify
from tests.interop.java_clients import find_clients, scenario_command
from tests.interop.line_process import Line, LineProcess
from tests.interop.serving import Serving

pytestmark = pytest.mark.interop

KILLS = 2
ACKNOWLEDGED_BETWEEN_KILLS = 300
LEVELS = DelayLevels.parse(DEFAULT_DELAY_LEVELS)


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
