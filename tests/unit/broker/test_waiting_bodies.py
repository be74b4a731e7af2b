"""Requests that are worked on keep nothing of their bodies: a peer may send thousands of them."""

import asyncio
import gc
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker.processors import replies
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.clients import ConsumerRunningInfoRequest
from flintmq.remoting import RemotingClient, Request, RequestTable
from flintmq.remoting.processors import Answer
from tests.kits.broker.broker_kit import Site, Wire, consumer, eventually, send_header, site

BODY: Final = b"a body that is nowhere else" * 100


async def silent_client(here: Site, code: int, may_answer: asyncio.Event) -> Wire:
    """Return a client that answers a code only when it may."""

    async def wait(request: Request[Any]) -> Answer:
        await may_answer.wait()
        return Answer(parts=[request.body])

    client = await here._stack.enter_async_context(RemotingClient(RequestTable({code: wait})))
    return Wire(here.broker, client, [])


def kept_bodies() -> int:
    """Return how many commands with the body are alive, besides those of the clients."""
    return sum(
        1
        for one in gc.get_objects()
        if type(one).__name__ == "Command" and getattr(one, "body", b"") == BODY
    )


async def test_a_request_that_waits_for_another_client_keeps_no_body(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire, may_answer = await here.client(), asyncio.Event()
        asked = await silent_client(here, RequestCode.GET_CONSUMER_RUNNING_INFO, may_answer)
        await asked.heartbeat("c1", consumer=consumer("g", "T"))
        header = ConsumerRunningInfoRequest(consumer_group="g", client_id="c1")
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        calls = [asyncio.create_task(wire.call(code, header, BODY)) for _ in range(20)]
        connections = here.broker.server.connections
        await eventually(lambda: sum(len(one.tasks) for one in connections) == 20)
        # The client has its twenty commands, the broker none.
        assert kept_bodies() <= 20
        may_answer.set()
        assert {(await call).code for call in calls} == {ResponseCode.SUCCESS}


async def test_replies_that_wait_for_their_clients_are_bounded_by_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "WAITING_SIZE_MAX", 3 * len(BODY))
    async with site(tmp_path) as here:
        wire, may_answer = await here.client(), asyncio.Event()
        pushed = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        asker = await silent_client(here, pushed, may_answer)
        await asker.heartbeat("asker", producer="producers")
        header = send_header("TestCluster_REPLY_TOPIC", properties={"REPLY_TO_CLIENT": "asker"})
        code = RequestCode.SEND_REPLY_MESSAGE_V2
        first = [asyncio.create_task(wire.call(code, header, BODY)) for _ in range(2)]
        connections = here.broker.server.connections
        await eventually(lambda: sum(len(one.tasks) for one in connections) == 2)
        refused = await wire.call(code, header, BODY)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        may_answer.set()
        assert {(await one).code for one in first} == {ResponseCode.SUCCESS}
        assert (await wire.call(code, header, BODY)).code == ResponseCode.SUCCESS
