import functools
from pathlib import Path

import pytest

from flintmq.format.message_id import decode_offset_id
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.send_back import SendBackRequest
from flintmq.store.message_store import MessageStore
from tests.kits.broker.broker_kit import Wire, eventually, site


def has_count(store: MessageStore, count: int) -> bool:
    return store.max_offset_in_queue("%RETRY%g", 0) == count


async def send_back(wire: Wire, offset: int, level: int = 0, **more: int) -> Command:
    header = SendBackRequest(offset=offset, group="g", delay_level=level, **more)  # type: ignore[arg-type]
    return await wire.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)


@pytest.mark.parametrize(("level", "delay_ms"), [(0, 10_000), (1, 1000), (4, 30_000)])
async def test_a_message_given_back_comes_again_after_its_delay(
    tmp_path: Path, level: int, delay_ms: int
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        sent = await wire.send("orders", b"oops", properties={"KEYS": "k"})
        _, offset = decode_offset_id(sent.msg_id)
        assert (await send_back(wire, offset, level)).code == ResponseCode.SUCCESS
        store = here.broker.context.store
        here.clock.advance(delay_ms - 1)
        assert await wire.pull("%RETRY%g") == []
        here.clock.advance(1)
        await eventually(lambda: store.max_offset_in_queue("%RETRY%g", 0) == 1)
        (record,) = await wire.pull("%RETRY%g")
    assert (record.body, record.reconsume_times) == (b"oops", 1)
    assert record.properties["RETRY_TOPIC"] == "orders"
    assert record.properties["ORIGIN_MESSAGE_ID"] == sent.msg_id
    assert record.properties["KEYS"] == "k"
    # As RocketMQ stores it: nobody waits for this message to be flushed.
    assert record.properties["WAIT"] == "false"


async def test_each_time_takes_longer_and_the_last_is_the_dead_letter_queue(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        sent = await wire.send("orders", b"oops")
        _, offset = decode_offset_id(sent.msg_id)
        store = here.broker.context.store
        for count, delay_ms in ((1, 10_000), (2, 30_000), (3, 60_000)):
            await send_back(wire, offset, max_reconsume_times=3)
            here.clock.advance(delay_ms)
            await eventually(functools.partial(has_count, store, count))
            (record,) = await wire.pull("%RETRY%g", queue_offset=count - 1)
            assert record.reconsume_times == count
            assert record.properties["ORIGIN_MESSAGE_ID"] == sent.msg_id
            offset = record.physical_offset
        await send_back(wire, offset, max_reconsume_times=3)
        (dead,) = await wire.pull("%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (b"oops", 4)
    assert dead.properties["RETRY_TOPIC"] == "orders"


async def test_a_negative_level_goes_to_the_dead_letters_at_once(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        sent = await wire.send("orders", b"oops")
        await send_back(wire, decode_offset_id(sent.msg_id)[1], -1)
        assert [record.body for record in await wire.pull("%DLQ%g")] == [b"oops"]


async def test_what_cannot_be_given_back_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, autoCreateSubscriptionGroup="false") as here:
        wire = await here.client()
        sent = await wire.send("orders")
        offset = decode_offset_id(sent.msg_id)[1]
        assert (await send_back(wire, offset)).code == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        body = b'{"groupName":"g"}'
        await wire.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        assert (await send_back(wire, 999_999)).code == ResponseCode.SYSTEM_ERROR
        end = here.broker.context.store.log.end_offset
        body = b'{"groupName":"g","retryQueueNums":0}'
        await wire.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        assert (await send_back(wire, offset)).code == ResponseCode.SUCCESS
        assert here.broker.context.store.log.end_offset == end
