"""A flood of peers is counted, and is no flood of the log."""

import logging

import pytest

from flintmq.remoting.paced_log import LOG_INTERVAL_S, PacedLog
from tests.kits.broker.remoting_kit import RawClient, eventually, serving

PEER_COUNT = 40


def test_one_of_each_kind_passes_in_a_while_and_tells_of_those_between() -> None:
    now = 10.0
    log: PacedLog[str] = PacedLog(lambda: now)
    assert [log.passes("a"), log.passes("a"), log.passes("a")] == [0, None, None]
    assert log.passes("b") == 0
    now += LOG_INTERVAL_S
    assert [log.passes("a"), log.passes("a")] == [2, None]
    assert log.passes("b") == 0


async def test_connections_of_another_protocol_are_counted_each_and_logged_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        server._rejected_log = PacedLog(lambda: 1.0)
        for _ in range(PEER_COUNT):
            async with RawClient.connect(server.ports[0]) as peer:
                peer.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert await peer.is_cut_off()
        await eventually(lambda: server.rejected_counts.total() == PEER_COUNT)
    lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "frame of 1195725856 bytes" in lines[0]
