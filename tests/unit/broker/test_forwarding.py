from pathlib import Path
from typing import Any

import pytest

from flintmq.format.wire.bodies.dialect import dumps_body, loads_body, queue_from
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.clients import (
    ConsumeDirectlyRequest,
    ConsumerRunningInfoRequest,
    ConsumerStatusRequest,
    ResetOffsetRequest,
)
from flintmq.format.wire.headers.send import SendMessageResponse
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import Answer, RemotingClient, Request, RequestTable
from tests.kits.broker.broker_kit import (
    START_MS,
    Site,
    Wire,
    consumer,
    eventually,
    records,
    send_header,
    site,
)

QUEUE = MessageQueue("orders", "broker-a", 0)


async def answering(here: Site, code: int, body: bytes) -> tuple[Wire, list[Command]]:
    """Return a client that answers one kind of request with a body."""
    asked: list[Command] = []

    def answer(request: Request[Any]) -> Answer:
        asked.append(request.command)
        return Answer(parts=[body])

    def ignore(request: Request[Any]) -> Answer:
        return Answer()

    table = RequestTable({RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: ignore, code: answer})
    client = RemotingClient(table)
    here._stack.push_async_callback(client.close)
    return Wire(here.broker, client, asked), asked


async def test_a_consumer_is_asked_how_it_is_doing(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        client, asked = await answering(here, code, b'{"mqTable":{}}')
        admin = await here.client()
        await client.heartbeat("c1", consumer=consumer("g", "orders"))
        header = ConsumerRunningInfoRequest(consumer_group="g", client_id="c1")
        answer = await admin.call(code, header)
        missing = await admin.call(
            code, ConsumerRunningInfoRequest(consumer_group="g", client_id="nobody")
        )
    assert answer.body == b'{"mqTable":{}}'
    assert asked[0].ext_fields["clientId"] == "c1"
    assert missing.code == ResponseCode.SYSTEM_ERROR
    assert "not online" in (missing.remark or "")


async def test_a_consumer_is_handed_one_message(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        client, asked = await answering(here, code, b'{"consumeResult":"CR_SUCCESS"}')
        admin = await here.client()
        await client.heartbeat("c1", consumer=consumer("g", "orders"))
        sent = await admin.send("orders", b"this one")
        header = ConsumeDirectlyRequest(consumer_group="g", client_id="c1", msg_id=sent.msg_id)
        answer = await admin.call(code, header)
    assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
    assert asked[0].ext_fields["brokerName"] == "broker-a"
    assert [record.body for record in records(asked[0].body)] == [b"this one"]


async def test_members_are_sent_to_a_time_in_their_own_form(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        member, admin = await here.client(code), await here.client()
        for _ in range(5):
            await admin.send("orders", default_topic_queue_nums=1)
            here.clock.advance(1000)
        header = ResetOffsetRequest(
            topic="orders", group="g", timestamp=START_MS + 2000, is_force=True
        )
        reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        unknown = await admin.call(reset, header)
        here.broker.context.offsets.commit("g", "orders", 0, 4)
        offline = await admin.call(reset, header)
        await member.heartbeat(consumer=consumer("g", "orders"))
        found = await admin.ask(reset, header)
        await eventually(lambda: any(one.code == code for one in member.asked))
        (told,) = [one for one in member.asked if one.code == code]
    assert unknown.code == ResponseCode.SYSTEM_ERROR
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert {queue_from(k): v for k, v in found["offsetTable"].items()} == {QUEUE: 2}
    table = loads_body(told.body)["offsetTable"]
    assert {queue_from(k): v for k, v in table.items()} == {QUEUE: 2}


async def test_the_status_of_all_members_is_gathered(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        body = dumps_body({"messageQueueTable": {QUEUE: 3}})
        client, _ = await answering(here, code, body)
        admin = await here.client()
        header = ConsumerStatusRequest(topic="orders", group="g")
        ask = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        offline = await admin.call(ask, header)
        await client.heartbeat("c1", consumer=consumer("g", "orders"))
        found = await admin.ask(ask, header)
    assert offline.code == ResponseCode.SYSTEM_ERROR
    table = found["consumerTable"]["c1"]
    assert {queue_from(k): v for k, v in table.items()} == {QUEUE: 3}


async def test_a_reply_is_brought_to_who_waits_for_it(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        requester, asked = await answering(here, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"")
        replier = await here.client()
        await requester.heartbeat("asker", producer="p")
        header = send_header(
            "TestCluster_REPLY_TOPIC",
            properties={"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "c", "MSG_TYPE": "reply"},
        )
        answer = await replier.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"42")
        assert answer.code == ResponseCode.SUCCESS
        sent = SendMessageResponse.decode(answer.ext_fields)
        (pushed,) = asked
        assert pushed.body == b"42"
        assert "CORRELATION_ID\x01c" in pushed.ext_fields["properties"]
        assert "PUSH_REPLY_TIME" in pushed.ext_fields["properties"]
        (kept,) = await replier.pull("TestCluster_REPLY_TOPIC")
        assert kept.message_id == sent.msg_id


async def test_a_reply_that_reaches_nobody_says_so(tmp_path: Path) -> None:
    async with site(tmp_path, storeReplyMessageEnable="false") as here:
        wire = await here.client()
        for properties in ({"REPLY_TO_CLIENT": "nobody"}, {"CORRELATION_ID": "c"}):
            header = send_header("TestCluster_REPLY_TOPIC", properties=properties)
            answer = await wire.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"42")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.ext_fields["TRACE_ON"] == "true"
        assert await wire.pull("TestCluster_REPLY_TOPIC") == []


async def test_odd_offsets_of_a_client_are_refused_and_not_logged_as_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(tmp_path) as here:
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        body = dumps_body({"messageQueueTable": {QUEUE: [None]}})
        client, _ = await answering(here, code, body)
        await client.heartbeat("c1", consumer=consumer("g", "orders"))
        admin = await here.client()
        header = ConsumerStatusRequest(topic="orders", group="g")
        answer = await admin.call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no integer" in (answer.remark or "")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
