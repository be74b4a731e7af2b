"""No request of one client holds the loop that serves all others."""

from pathlib import Path

from flintmq.format.wire.codes import RequestCode
from flintmq.remoting import RemotingClient
from tests.kits.processes.serve_client import send
from tests.kits.processes.serve_process import serving, take_long_turns


async def test_a_long_turn_of_a_served_broker_is_seen_by_its_log(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--set=longTurnMillis=1") as group:
        async with RemotingClient() as client:
            # The first send makes the files of its queue: with a threshold so low it is long.
            await send(client, group.brokers[0], b"x" * 100_000)
            answer = await client.call(
                group.brokers[0], RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=10_000
            )
            assert b"longTurnCauses" in answer.body
        ended = group.stop()
    assert "turn of the loop took long: cause=" in ended.err
    assert take_long_turns(1)
