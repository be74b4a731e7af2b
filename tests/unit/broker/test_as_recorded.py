"""What the recorded conversations of the Java broker showed to be otherwise than we had it."""

import asyncio
from pathlib import Path

import pytest

from flintmq.broker.transactions.transaction_check import TransactionCheck
from flintmq.format.stored.record import Record, decode_record
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import BrokerConsumeStatsRequest, CreateTopicRequest
from flintmq.format.wire.headers.clients import PushReplyRequest, ResetOffsetRequest
from flintmq.format.wire.headers.transaction import EndTransactionRequest
from tests.kits.broker.broker_kit import Site, consumer, eventually, pull_header, records, site

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
HALF_PROPERTIES = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "U1", "WAIT": "true"}


def stored(here: Site, topic: str) -> list[Record]:
    """Return what lies in the first queue of a topic that clients may not read."""
    store = here.broker.context.store
    store.dispatch()
    result = store.get_messages(topic, 0, 0, 32, None)
    assert result is not None
    found = [decode_record(bytes(message)) for message in result.messages]
    result.release()
    return found


async def test_half_messages_are_stored_with_wait(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders", sys_flag=4, properties=HALF_PROPERTIES)
        await wire.send("orders", properties={"WAIT": "true"})
        (half,) = stored(here, HALF)
        (plain,) = await wire.pull("orders")
    assert half.properties["WAIT"] == "true"
    assert "WAIT" not in plain.properties


async def test_the_record_of_a_decision_is_stored_with_wait(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        sent = await wire.send("orders", sys_flag=4, properties=HALF_PROPERTIES)
        (half,) = stored(here, HALF)
        await wire.call(
            RequestCode.END_TRANSACTION,
            EndTransactionRequest(
                producer_group="producers",
                tran_state_table_offset=sent.queue_offset,
                commit_log_offset=half.physical_offset,
                commit_or_rollback=12,
                msg_id="U1",
            ),
        )
        (decision,) = stored(here, OP)
    assert decision.properties == {"WAIT": "true", "TAGS": "d"}


async def test_who_is_asked_about_a_transaction_is_told_that_nothing_waits(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        await wire.send("orders", sys_flag=4, properties=HALF_PROPERTIES)
        here.clock.advance(100_000)
        assert TransactionCheck(here.broker.context).run() == 1
        await eventually(lambda: len(wire.asked) == 1)
        (asked,) = records(wire.asked[0].body)
        kept = stored(here, HALF)[-1]
    assert asked.properties["WAIT"] == "false"
    assert kept.properties["WAIT"] == "true"


async def test_a_held_pull_is_checked_again_when_it_is_answered(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        puller, sender = await here.client(), await here.client()
        await sender.send("orders")
        header = pull_header("orders", sys_flag=6, queue_offset=1)
        pulling = asyncio.ensure_future(puller.call(RequestCode.PULL_MESSAGE, header))
        await eventually(lambda: here.broker.context.held.count == 1)
        closed = CreateTopicRequest(topic="orders", read_queue_nums=4, write_queue_nums=4, perm=2)
        await sender.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, closed)
        await sender.send("orders")
        answer = await pulling
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_nothing_is_added_to_a_reply(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        asker, replier = await here.client(code), await here.client()
        await asker.heartbeat("asker", producer="askers")
        properties = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "c", "MSG_TYPE": "reply"}
        await replier.send_raw(
            "replies", code=RequestCode.SEND_REPLY_MESSAGE_V2, properties=properties
        )
        await eventually(lambda: any(one.code == code for one in asker.asked))
        (pushed,) = [one for one in asker.asked if one.code == code]
        (kept,) = await replier.pull("replies")
    told = PushReplyRequest.decode(pushed.ext_fields).properties or ""
    names = {pair.partition("\x01")[0] for pair in told.split("\x02")}
    assert names == properties.keys() | {"PUSH_REPLY_TIME"}
    assert kept.properties == properties


async def test_members_are_not_told_that_a_reset_was_forced(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        member, admin = await here.client(code), await here.client()
        await admin.send("orders", default_topic_queue_nums=1)
        here.broker.context.offsets.commit("g", "orders", 0, 1)
        await member.heartbeat(consumer=consumer("g", "orders"))
        header = ResetOffsetRequest(topic="orders", group="g", timestamp=0, is_force=True)
        await admin.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        await eventually(lambda: any(one.code == code for one in member.asked))
        (told,) = [one for one in member.asked if one.code == code]
    assert told.ext_fields["isForce"] == "false"


@pytest.mark.parametrize("is_order", [False, True])
async def test_ordered_topics_are_among_all_topics(tmp_path: Path, is_order: bool) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.heartbeat(consumer=consumer("g", "plain", "ordered"))
        for topic in ("plain", "ordered"):
            await wire.send(topic, default_topic_queue_nums=1)
            here.broker.context.offsets.commit("g", topic, 0, 0)
        here.broker.context.topics.set_order(frozenset({"ordered"}))
        asked = BrokerConsumeStatsRequest(is_order=is_order)
        body = await wire.ask(RequestCode.GET_BROKER_CONSUME_STATS, asked)
    (rows,) = [one["g"] for one in body["consumeStatsList"] if "g" in one]
    assert len(rows) == (1 if is_order else 2)
