"""A broker with too much to do, or with a disk that is stuck, says so in time and recovers."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker import broker_registrar
from flintmq.broker.config import BrokerConfig
from flintmq.broker.waiting.old_requests import OldRequests
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.offsets import QueueBoundRequest
from flintmq.remoting import Answer, Request
from flintmq.remoting.refusal_counts import (
    OLD_REQUESTS,
    STUCK_DISK,
    WAITING_SENDS,
    RefusalCounts,
)
from tests.kits.broker.broker_kit import eventually, site
from tests.kits.broker.remoting_kit import HOST, serving
from tests.kits.broker.stuck_disk import slow_disk

BUSY: Final = ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        (RequestCode.SEND_MESSAGE_V2, "waitTimeMillsInSendQueue"),
        (RequestCode.CONSUMER_SEND_MSG_BACK, "waitTimeMillsInSendQueue"),
        (RequestCode.PULL_MESSAGE, "waitTimeMillsInPullQueue"),
        (RequestCode.HEART_BEAT, "waitTimeMillsInHeartbeatQueue"),
        (RequestCode.END_TRANSACTION, "waitTimeMillsInTransactionQueue"),
    ],
)
def test_each_kind_of_request_has_its_own_age(code: int, setting: str) -> None:
    refused = RefusalCounts()
    config = BrokerConfig.from_properties({setting: "70"})
    is_old = OldRequests(lambda: config, refused)
    assert is_old(code, 0.069) is None
    assert is_old(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1000.0) is None
    remark = is_old(code, 0.07)
    assert remark is not None
    assert "TIMEOUT_CLEAN_QUEUE" in remark
    assert refused[OLD_REQUESTS] == 1
    off = BrokerConfig.from_properties({setting: "70", "brokerFastFailureEnable": "false"})
    assert OldRequests(lambda: off, refused)(code, 1000.0) is None


class NameServer:
    """Counts how often a broker has registered."""

    def __init__(self) -> None:
        self.count = 0

    def register(self, request: Request[Any]) -> Answer:
        self.count += 1
        return Answer()


async def test_a_disk_that_is_stuck_is_told_to_senders_and_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats to name servers and everything that needs no disk go on meanwhile."""
    monkeypatch.setattr(broker_registrar, "PERIOD_MS_MIN", 20)
    server = NameServer()
    async with (
        serving({RequestCode.REGISTER_BROKER: server.register}) as namesrv,
        site(
            tmp_path,
            flushDiskType="SYNC_FLUSH",
            syncFlushTimeout=50,
            namesrvAddr=f"{HOST}:{namesrv.ports[0]}",
            registerNameServerPeriod=20,
        ) as here,
    ):
        wire, context = await here.client(), here.broker.context
        await wire.send("T")
        with slow_disk(context.store) as begun:
            late = await wire.send_raw("T", b"stored, not flushed")
            assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
            await asyncio.to_thread(begun.wait, 10)
            end = context.store.log.end_offset
            for _ in range(3):
                refused = await wire.send_raw("T", b"refused")
                assert refused.code == BUSY
                assert "the disk is stuck" in (refused.remark or "")
            assert context.store.log.end_offset == end, "nothing more was stored"
            assert context.refused[STUCK_DISK] == 3
            beats = server.count
            await eventually(lambda: server.count >= beats + 3)
            header = QueueBoundRequest(topic="T", queue_id=0)
            assert (await wire.call(RequestCode.GET_MAX_OFFSET, header)).code == 0
            assert len(await wire.pull("T", suspend_timeout_millis=0)) == 1
        # The disk has it now: nobody has to do anything for the broker to take messages again.
        await eventually(lambda: not context.puts.is_disk_stuck)
        await wire.send("T", b"again")


async def test_without_fast_failure_messages_are_stored_while_the_disk_is_stuck(
    tmp_path: Path,
) -> None:
    async with site(
        tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout=50, brokerFastFailureEnable="false"
    ) as here:
        wire, context = await here.client(), here.broker.context
        await wire.send("T")
        with slow_disk(context.store):
            for _ in range(2):
                answer = await wire.send_raw("T", b"stored, not flushed")
                assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert context.refused[STUCK_DISK] == 0


async def test_more_sends_than_may_wait_for_the_disk_are_refused_and_counted(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, flushDiskType="SYNC_FLUSH", sendThreadPoolQueueCapacity=1) as here:
        wire, context = await here.client(), here.broker.context
        await wire.send("T")
        with slow_disk(context.store) as begun:
            first = asyncio.create_task(wire.send_raw("T", b"waits"))
            await asyncio.to_thread(begun.wait, 10)
            second = await wire.send_raw("T", b"one too many")
            assert second.code == BUSY
            assert context.refused[WAITING_SENDS] == 1
        assert (await first).code == ResponseCode.SUCCESS
