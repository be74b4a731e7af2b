"""How long log files are kept may be changed while a broker runs, and is kept itself."""

from pathlib import Path
from typing import Final

from flintmq.broker import read_settings, run_broker
from flintmq.format.wire.codes import RequestCode
from flintmq.remoting import RemotingClient
from flintmq.settings.property_files import read_properties
from flintmq.store.upkeep.retention import FIRST_RUN_MS
from tests.kits.broker.broker_kit import SMALL, TIMEOUT_MS, Site, Wire, site

BODY: Final = bytes(100_000)
RUNS: Final = 3


async def fill_first_log_file(wire: Wire) -> None:
    for _ in range(12):
        await wire.send("orders", BODY)


def delete_expired(here: Site) -> int:
    """Let the time of some runs pass; return where the log begins now."""
    store = here.broker.context.store
    store.retention.request_manual_delete()
    store.checkpoint()
    for _ in range(RUNS):
        here.clock.advance(FIRST_RUN_MS)
        store.retention.step(here.clock.now_ms())
    return store.log.min_offset


async def test_a_shorter_time_takes_effect_and_is_told(tmp_path: Path) -> None:
    async with site(tmp_path, fileReservedTime=1_000_000) as here:
        wire = await here.client()
        await fill_first_log_file(wire)
        assert delete_expired(here) == 0
        answer = await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=0")
        assert answer.code == 0, answer
        assert delete_expired(here) == int(SMALL["mappedFileSizeCommitLog"])
        shown = await wire.call(RequestCode.GET_BROKER_CONFIG)
        assert read_properties(shown.body)["fileReservedTime"] == "0"


async def test_a_changed_time_outlives_a_restart(tmp_path: Path) -> None:
    settings = SMALL | {"storePathRootDir": str(tmp_path / "store"), "fileReservedTime": "48"}
    overlay = tmp_path / "changes.properties"

    async def hours(change: bytes) -> int:
        async with run_broker(*read_settings(settings), overlay=overlay) as broker:
            if change:
                async with RemotingClient() as client:
                    code = RequestCode.UPDATE_BROKER_CONFIG
                    await client.call(broker.address, code, None, change, timeout_ms=TIMEOUT_MS)
            return broker.context.store.config.file_reserved_hours

    assert await hours(b"") == 48
    assert await hours(b"fileReservedTime=24") == 24
    assert await hours(b"") == 24
    assert await hours(b"fileReservedTime=-1") == 24
