"""What peers may take of a server is said by settings, and refusals are counted by reason."""

import asyncio
import contextlib
import threading
import zlib
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.namesrv import RegisterBrokerRequest
from flintmq.namesrv import NamesrvConfig, route_processors, run_namesrv
from flintmq.remoting import Answer, Limits, RemotingClient, Request
from flintmq.remoting.refusal_counts import (
    ADDRESS_CONNECTIONS,
    CONNECTIONS,
    HELD_PULLS,
    PEER_REQUEST_BYTES,
    REQUEST_BYTES,
    UNREAD_ANSWERS,
    WAITING_REQUESTS,
)
from tests.kits.broker.broker_kit import Site, eventually, pull_header, site
from tests.kits.broker.remoting_kit import PATIENT_MS, RawClient, request, serving

MIB: Final = 1 << 20
WAITS: Final = 6
"""The pull brings its subscription and may wait."""


async def told(here: Site) -> str:
    """Return what a broker says that it refused."""
    wire = await here.client()
    table = (await wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    reasons: str = table["refusedReasons"]
    return reasons


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("maxConnections", CONNECTIONS), ("maxConnectionsPerAddress", ADDRESS_CONNECTIONS)],
)
async def test_a_connection_too_many_is_closed(tmp_path: Path, setting: str, reason: str) -> None:
    async with site(tmp_path, **{setting: 2}) as here, contextlib.AsyncExitStack() as stack:
        wire, port = await here.client(), here.broker.port
        await wire.send("T")
        peer = await stack.enter_async_context(RawClient.connect(port))
        await peer.send(request(1, code=RequestCode.GET_BROKER_RUNTIME_INFO))
        assert (await peer.receive()).code == ResponseCode.SUCCESS
        third = await stack.enter_async_context(RawClient.connect(port))
        assert await third.is_cut_off()
        table = (await wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert (table["refusedCount"], table["refusedReasons"]) == ("1", f"{reason}:1")
        # Once one of them has gone there is room again.
        peer.writer.close()
        await eventually(lambda: len(here.broker.server.connections) == 1)
        fourth = await stack.enter_async_context(RawClient.connect(port))
        await fourth.send(request(1, code=RequestCode.GET_BROKER_RUNTIME_INFO))
        assert (await fourth.receive()).code == ResponseCode.SUCCESS


def pulls(count: int, **more: Any) -> list[Command]:
    header = pull_header("T", **more)
    return [
        Command(code=RequestCode.PULL_MESSAGE, opaque=number, ext_fields=header.encode())
        for number in range(count)
    ]


async def test_a_pull_too_many_is_not_held(tmp_path: Path) -> None:
    async with (
        site(tmp_path, maxHeldPulls=2) as here,
        RawClient.connect(here.broker.port) as peer,
    ):
        await (await here.client()).send("T")
        await peer.send(*pulls(3, queue_offset=1, sys_flag=WAITS))
        answer = await peer.receive()
        assert (answer.opaque, answer.code) == (2, ResponseCode.PULL_NOT_FOUND)
        assert here.broker.context.held.count == 2
        assert await told(here) == f"{HELD_PULLS}:1"


async def test_a_peer_that_leaves_its_share_unread_is_read_from_no_more(tmp_path: Path) -> None:
    size = 50_000
    async with (
        site(tmp_path, maxUnreadAnswerBytesPerPeer=64 << 10) as here,
        RawClient.connect(here.broker.port, receive_buffer=4096) as peer,
    ):
        wire, account = await here.client(), here.broker.server.unread_answers
        assert account is not None
        await wire.send("T", bytes(size))
        asked = asyncio.create_task(peer.send(*pulls(200)))
        await eventually(lambda: account.total_size > 64 << 10)
        for number in range(20):
            await wire.send("T", b"others are served %d" % number)
        # The kernel takes some, and the answer that goes over the limit is written whole.
        assert account.peak_size < (64 << 10) + 2 * size
        assert [(await peer.receive()).opaque for _ in range(200)] == list(range(200))
        await asked


async def test_peers_that_leave_too_much_unread_together_are_dropped(tmp_path: Path) -> None:
    async with (
        site(tmp_path, maxUnreadAnswerBytes=32 * MIB) as here,
        contextlib.AsyncExitStack() as stack,
    ):
        wire, refused = await here.client(), here.broker.context.refused
        await wire.send("T", bytes(900 << 10))
        for _ in range(45):
            peer = await stack.enter_async_context(
                RawClient.connect(here.broker.port, receive_buffer=4096)
            )
            await peer.send(*pulls(8))
        await eventually(lambda: refused[UNREAD_ANSWERS] > 0)
        account = here.broker.server.unread_answers
        assert account is not None
        assert account.peak_size <= 32 * MIB
        assert UNREAD_ANSWERS in await told(here)


async def test_a_connection_has_only_so_many_requests_under_way() -> None:
    may_end = asyncio.Event()

    async def wait(asked: Request[Any]) -> Answer:
        await may_end.wait()
        return Answer()

    code = RequestCode.LOCK_BATCH_MQ
    async with (
        serving({code: wait}, limits=Limits(waiting_count_max=2)) as server,
        RawClient.connect(server.ports[0]) as peer,
    ):
        await peer.send(*(request(number, code=code) for number in range(3)))
        answer = await peer.receive()
        assert (answer.opaque, answer.code) == (2, ResponseCode.SYSTEM_BUSY)
        assert server.refused.by_reason() == {WAITING_REQUESTS: 1}
        may_end.set()
        assert {(await peer.receive()).code for _ in range(2)} == {ResponseCode.SUCCESS}


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("maxInFlightBytesPerPeer", PEER_REQUEST_BYTES), ("maxInFlightBytes", REQUEST_BYTES)],
)
async def test_registrations_that_are_being_read_are_bounded_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, reason: str
) -> None:
    may_end, read = threading.Event(), route_processors._registration_of

    def read_slowly(asked: Any) -> Any:
        assert may_end.wait(30)
        return read(asked)

    monkeypatch.setattr(route_processors, "_registration_of", read_slowly)
    settings = {"listenPort": "0", setting: str(16 * MIB)}
    paths = {"kvConfigPath": str(tmp_path / "kv"), "configStorePath": str(tmp_path / "own")}
    config = NamesrvConfig.from_properties(settings | paths)
    body = b'{"topicConfigSerializeWrapper":{}}'.ljust(6 * MIB)
    header = RegisterBrokerRequest(
        broker_name="a",
        broker_addr="127.0.0.1:1",
        cluster_name="C",
        ha_server_addr="127.0.0.1:2",
        broker_id=0,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
    )
    async with run_namesrv(config) as namesrv, RemotingClient() as client:

        async def register() -> Command:
            code = RequestCode.REGISTER_BROKER
            return await client.call(namesrv.address, code, header, body, timeout_ms=PATIENT_MS)

        accounted = namesrv.server.request_bytes
        assert accounted is not None
        first = [asyncio.create_task(register()) for _ in range(2)]
        await eventually(lambda: accounted.total_size == 12 * MIB)
        refused = await register()
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "bytes of requests" in (refused.remark or "")
        assert namesrv.server.refused.by_reason() == {reason: 1}
        may_end.set()
        assert {(await one).code for one in first} == {ResponseCode.SUCCESS}
        assert accounted.total_size == 0
        assert (await register()).code == ResponseCode.SUCCESS
