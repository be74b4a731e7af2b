"""With synchronous flush no answer leaves before the disk has the message, or its time is up."""

import asyncio
from pathlib import Path

from flintmq.broker.transactions.transaction_check import GROUP, TransactionCheck
from flintmq.format.message_id import decode_offset_id
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.send_back import SendBackRequest
from flintmq.format.wire.headers.transaction import EndTransactionRequest
from flintmq.model.message import PutMessage
from flintmq.model.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.kits.broker.broker_kit import eventually, site
from tests.kits.broker.stuck_disk import slow_disk


async def test_a_message_given_back_is_on_the_disk_before_the_consumer_is_told(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, flushDiskType="SYNC_FLUSH") as here:
        wire = await here.client()
        sent = await wire.send("orders", b"oops")
        _, offset = decode_offset_id(sent.msg_id)
        header = SendBackRequest(offset=offset, group="g", delay_level=1)
        store = here.broker.context.store
        # The first one creates the topic of retries.
        assert (await wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
        before = store.log.end_offset
        with slow_disk(store) as begun:
            answer = asyncio.create_task(wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, header))
            await asyncio.to_thread(begun.wait, 10)
            assert store.log.end_offset > before
            done, _ = await asyncio.wait([answer], timeout=0.05)
            assert not done
        assert (await answer).code == ResponseCode.SUCCESS
        assert store.log.files.flushed_where == store.log.end_offset


async def test_the_time_that_a_send_waits_is_kept_while_a_sync_is_running(tmp_path: Path) -> None:
    async with site(tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout=200) as here:
        wire = await here.client()
        await wire.send("orders")
        context = here.broker.context
        with slow_disk(context.store):
            answers = await asyncio.gather(*(wire.send_raw("orders") for _ in range(3)))
            # The disk still works on it, and nobody waits any more.
            assert context.puts.waiting_count == 0
        assert {answer.code for answer in answers} == {ResponseCode.FLUSH_DISK_TIMEOUT}
        await eventually(lambda: context.store.max_offset_in_queue("orders", 0) == 4)
        assert (await wire.send_raw("orders")).code == ResponseCode.SUCCESS


async def test_a_half_message_put_again_counts_when_the_disk_has_it(tmp_path: Path) -> None:
    async with site(tmp_path, flushDiskType="SYNC_FLUSH") as here:
        wire = await here.client(RequestCode.CHECK_TRANSACTION_STATE)
        await wire.heartbeat(producer="producers")
        properties = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "U1"}
        await wire.send("orders", b"half", sys_flag=4, properties=properties)
        context = here.broker.context
        check = TransactionCheck(context)
        here.clock.advance(10_000)
        with slow_disk(context.store) as begun:
            assert check.run() == 1
            await asyncio.to_thread(begun.wait, 10)
            assert context.offsets.get(GROUP, TRANS_HALF_TOPIC, 0) in (None, 0)
            # The next pass goes on where this one ended, although that is not committed yet.
            assert check.run() == 0
        await eventually(lambda: context.offsets.get(GROUP, TRANS_HALF_TOPIC, 0) == 1)


async def test_a_peer_that_leaves_while_its_request_waits_for_the_disk_holds_up_nobody(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout=60_000) as here:
        wire, leaver = await here.client(), await here.client()
        await wire.heartbeat(producer="producers")
        properties = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "U1"}
        half = await wire.send("orders", b"half", sys_flag=4, properties=properties)
        _, offset = decode_offset_id(half.msg_id)
        commit = EndTransactionRequest(
            producer_group="producers",
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=offset,
            commit_or_rollback=8,
            from_transaction_check=False,
            msg_id="U1",
        )
        puts = here.broker.context.puts
        with slow_disk(here.broker.context.store) as begun:
            leaving = asyncio.create_task(leaver.call(RequestCode.END_TRANSACTION, commit))
            await asyncio.to_thread(begun.wait, 10)
            await eventually(lambda: puts.waiting_count == 1)
            behind = asyncio.create_task(wire.send_raw("orders"))
            await eventually(lambda: puts.waiting_count == 2)
            await leaver.client.close()
            await asyncio.wait([leaving])
            await eventually(lambda: len(here.broker.server.connections) == 1)
        assert (await behind).code == ResponseCode.SUCCESS
        await asyncio.wait_for(puts.idle(), 10)
        # What it asked for was done all the same: nobody would ask for the rest of it again.
        store = here.broker.context.store
        await eventually(lambda: store.max_offset_in_queue(TRANS_OP_HALF_TOPIC, 0) == 1)


async def test_whoever_gives_up_waiting_for_the_disk_takes_no_answer_from_others(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout=60_000) as here:
        wire = await here.client()
        await wire.send("orders")
        context = here.broker.context
        with slow_disk(context.store) as begun:
            host = context.store_host
            message = PutMessage(
                topic="orders", queue_id=0, body=b"", born_host=host, store_host=host
            )
            put = asyncio.create_task(context.puts.put_done(context.store.put(message)))
            await asyncio.to_thread(begun.wait, 10)
            behind = asyncio.create_task(wire.send_raw("orders"))
            await eventually(lambda: context.puts.waiting_count == 2)
            put.cancel()
            await asyncio.wait([put])
        assert (await behind).code == ResponseCode.SUCCESS
        await asyncio.wait_for(context.puts.idle(), 10)
