from pathlib import Path
from typing import Any

from flintmq.broker.transactions.transaction_check import GROUP, TransactionCheck
from flintmq.format.message_id import decode_offset_id
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.admin import TopicRequest
from flintmq.format.wire.headers.send import SendMessageResponse
from flintmq.format.wire.headers.transaction import (
    CheckTransactionRequest,
    EndTransactionRequest,
    ResumeCheckRequest,
)
from tests.kits.broker.broker_kit import START_MS, Site, Wire, eventually, records, site
from tests.kits.broker.stuck_disk import slow_disk

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"


async def send_half(wire: Wire, body: bytes = b"half", **properties: str) -> SendMessageResponse:
    known = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "U1"} | properties
    return await wire.send("orders", body, queue_id=1, sys_flag=4, properties=known)


async def end(wire: Wire, sent: SendMessageResponse, how: int, **more: Any) -> Command:
    values: dict[str, Any] = {
        "producer_group": "producers",
        "tran_state_table_offset": sent.queue_offset,
        "commit_log_offset": decode_offset_id(sent.msg_id)[1],
        "commit_or_rollback": how,
        "msg_id": "U1",
    }
    header = EndTransactionRequest(**(values | more))
    return await wire.call(RequestCode.END_TRANSACTION, header)


async def test_a_half_message_is_seen_by_nobody_until_it_is_committed(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        sent = await send_half(wire)
        assert await wire.pull("orders", queue_id=1) == []
        assert (await end(wire, sent, COMMIT)).code == ResponseCode.SUCCESS
        (record,) = await wire.pull("orders", queue_id=1)
    assert record.body == b"half"
    assert record.sys_flag & 0xC == COMMIT
    assert record.prepared_transaction_offset == decode_offset_id(sent.msg_id)[1]
    assert record.properties["TRAN_MSG"] == "true"
    assert record.properties["REAL_TOPIC"] == "orders"


async def test_a_half_message_that_is_rolled_back_never_comes_and_is_not_asked_about(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        sent = await send_half(wire)
        assert (await end(wire, sent, ROLLBACK)).code == ResponseCode.SUCCESS
        here.clock.advance(100_000)
        assert TransactionCheck(here.broker.context).run() == 0
        assert await wire.pull("orders", queue_id=1) == []
        assert wire.asked == []


async def test_an_end_that_fits_no_half_message_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        sent = await send_half(wire)
        plain = await wire.send("orders", properties={"PGROUP": "producers"})
        for change in (
            {"producer_group": "others"},
            {"tran_state_table_offset": 5},
            {"commit_log_offset": 999_999},
            {"commit_log_offset": decode_offset_id(plain.msg_id)[1]},
        ):
            answer = await end(wire, sent, COMMIT, **change)
            assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await wire.pull("orders", queue_id=1) == []


async def test_transactions_may_be_forbidden(tmp_path: Path) -> None:
    async with site(tmp_path, rejectTransactionMessage="true") as here:
        wire = await here.client()
        answer = await wire.send_raw("orders", properties={"TRAN_MSG": "true"})
    assert answer.code == ResponseCode.NO_PERMISSION


async def _asked(here: Site, wire: Wire, count: int) -> CheckTransactionRequest:
    code = RequestCode.CHECK_TRANSACTION_STATE
    await eventually(lambda: sum(one.code == code for one in wire.asked) == count)
    last = [one for one in wire.asked if one.code == code][-1]
    (record,) = records(last.body)
    assert (record.topic, record.queue_id, record.body) == ("orders", 1, b"half")
    assert record.properties["TRANSACTION_CHECK_TIMES"] == str(count)
    return CheckTransactionRequest.decode(last.ext_fields)


async def test_the_producer_is_asked_and_its_answer_counts(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        await send_half(wire)
        check = TransactionCheck(here.broker.context)
        here.clock.advance(5_999)
        assert check.run() == 0
        here.clock.advance(2)
        assert check.run() == 1
        asked = await _asked(here, wire, 1)
        assert (asked.msg_id, asked.transaction_id) == ("U1", "U1")
        here.clock.advance(60_000)
        assert check.run() == 1
        asked = await _asked(here, wire, 2)
        header = EndTransactionRequest(
            producer_group="producers",
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=COMMIT,
            from_transaction_check=True,
            msg_id="U1",
        )
        assert (await wire.call(RequestCode.END_TRANSACTION, header)).code == 0
        here.clock.advance(60_000)
        assert check.run() == 0
        assert len(await wire.pull("orders", queue_id=1)) == 1
        offsets = here.broker.context.offsets
        end_of_half = here.broker.context.store.max_offset_in_queue(HALF, 0)
        assert offsets.get("CID_RMQ_SYS_TRANS", HALF, 0) == end_of_half


async def test_the_half_topic_has_the_group_that_java_lists_and_no_other(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        check = TransactionCheck(here.broker.context)

        async def groups() -> list[str]:
            found = await wire.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequest(topic=HALF))
            listed: list[str] = found["groupList"]
            return listed

        check.run()
        assert await groups() == [], "a check that found nothing commits nothing"
        await end(wire, await send_half(wire), COMMIT)
        here.clock.advance(60_000)
        check.run()
        assert await groups() == [GROUP]


async def test_what_was_put_again_is_waited_for_although_the_next_check_puts_nothing(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, flushDiskType="SYNC_FLUSH") as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        await send_half(wire)
        context = here.broker.context
        check = TransactionCheck(context)
        here.clock.advance(60_000)
        with slow_disk(context.store):
            assert check.run() == 1
            check.run()
            assert context.offsets.get(GROUP, HALF, 0) is None
        await eventually(lambda: not context.puts.waiting_count)
        check.run()
        assert context.offsets.get(GROUP, HALF, 0) == 1


async def test_a_transaction_that_is_asked_about_too_often_is_given_up_and_can_be_taken_up_again(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, transactionCheckMax=2) as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        await send_half(wire)
        check = TransactionCheck(here.broker.context)
        for expected in (1, 1, 0, 0):
            here.clock.advance(60_000)
            assert check.run() == expected
        (given_up,) = await wire.pull("TRANS_CHECK_MAX_TIME_TOPIC")
        assert given_up.properties["REAL_TOPIC"] == "orders"
        await wire.ask(
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            ResumeCheckRequest(msg_id=given_up.message_id),
        )
        here.clock.advance(60_000)
        assert check.run() == 1


async def test_a_transaction_is_asked_about_although_log_files_are_not_kept(tmp_path: Path) -> None:
    """It was given up at the first look, and lost if its end had got lost on the way."""
    settings = {"fileReservedTime": 0, "transactionCheckMax": 3, "transactionCheckInterval": 1000}
    async with site(tmp_path, **settings) as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        await send_half(wire)
        check = TransactionCheck(here.broker.context)
        here.clock.advance(here.broker.context.config.transaction_timeout_ms + 1)
        assert check.run() == 1
        here.clock.advance(10_000)
        assert check.run() == 0
        (given_up,) = await wire.pull("TRANS_CHECK_MAX_TIME_TOPIC")
        assert given_up.properties["REAL_TOPIC"] == "orders"


async def test_nobody_is_asked_before_the_immunity_of_a_message_is_over(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        await send_half(wire, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
        check = TransactionCheck(here.broker.context)
        asked = []
        for _ in range(4):
            here.clock.advance(30_000)
            asked.append(check.run())
    assert asked == [0, 0, 0, 1]


async def test_a_decision_during_immunity_counts_for_the_copy_too(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        sent = await send_half(wire, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
        check = TransactionCheck(here.broker.context)
        here.clock.advance(30_000)
        assert check.run() == 0
        await end(wire, sent, COMMIT)
        for _ in range(4):
            here.clock.advance(60_000)
            assert check.run() == 0
        assert len(await wire.pull("orders", queue_id=1)) == 1


async def test_many_transactions_are_followed_beyond_one_batch_of_decisions(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        halves = [await send_half(wire) for _ in range(100)]
        for number, sent in enumerate(halves):
            if number != 70:
                await end(wire, sent, COMMIT if number % 2 else ROLLBACK)
        here.clock.advance(60_000)
        assert TransactionCheck(here.broker.context).run() == 1
        committed = await wire.pull("orders", queue_id=1, max_msg_nums=32)
        assert committed
        assert here.clock.now_ms() == START_MS + 60_000
        offsets = here.broker.context.offsets
        assert offsets.get("CID_RMQ_SYS_TRANS", HALF, 0) == 100


async def test_a_check_of_many_half_messages_lets_others_have_their_turns(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for _ in range(40):
            await send_half(wire)
        here.clock.advance(100_000)
        steps = TransactionCheck(here.broker.context).steps()
        count = sum(1 for _ in steps)
        # One half message, or one read of op records, is the most between two interruptions.
        assert count >= 40


async def test_a_check_that_is_broken_off_keeps_what_it_has_done(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for _ in range(10):
            await send_half(wire)
        here.clock.advance(100_000)
        context = here.broker.context
        check = TransactionCheck(context)
        steps = check.steps()
        for _ in range(6):
            next(steps)
        steps.close()
        done = context.offsets.get(GROUP, HALF, 0)
        assert done is not None
        assert 0 < done < 10
        assert context.store.max_offset_in_queue(HALF, 0) == 10 + done
