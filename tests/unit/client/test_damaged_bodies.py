"""One body that cannot be decompressed keeps no other message back."""

import zlib
from pathlib import Path
from typing import Any

import pytest

from flintmq import ConsumeFrom, Message, ReceivedMessage, UnreadableBodyError
from flintmq.client.messaging.messages import BodyBudget
from flintmq.client.pulling.lite_pull_consumer import AsyncLitePullConsumer
from flintmq.format.compression import CompressionType
from flintmq.format.errors import CompressionError
from flintmq.format.wire.codes import RequestCode, ResponseCode
from tests.kits.broker.broker_kit import eventually, send_header
from tests.kits.client.consumer_kit import GROUP, TOPIC, Site, queue, site

COMPRESSED = 0x1
GOOD = [b"%d" % number for number in range(6)]


async def send_with_damage(here: Site, damaged: bytes = b"not zlib", sys_flag: int = 1) -> None:
    """Send messages to one queue, with one among them whose body is not what its flag says."""
    for body in GOOD[:3]:
        await here.producer.send(Message(topic=TOPIC, body=body), queue=queue(1))
    header = send_header(TOPIC, queue_id=1, sys_flag=sys_flag)
    answer = await here.producer.client.call(
        here.broker.address, RequestCode.SEND_MESSAGE_V2, header, damaged, timeout_ms=5000
    )
    assert answer.code == ResponseCode.SUCCESS
    for body in GOOD[3:]:
        await here.producer.send(Message(topic=TOPIC, body=body), queue=queue(1))


@pytest.mark.parametrize("sys_flag", [COMPRESSED, COMPRESSED | 0x100, COMPRESSED | 0x700])
async def test_messages_around_a_damaged_body_are_consumed_and_it_is_tried_again(
    tmp_path: Path, sys_flag: int
) -> None:
    got: list[bytes] = []
    failed: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        try:
            got.append(message.body)
        except UnreadableBodyError as error:
            failed.append(f"{message.reconsume_times}: {error.reason}")
            assert message.stored_body == b"not zlib"
            raise

    async with site(tmp_path) as here:
        await send_with_damage(here, sys_flag=sys_flag)
        async with here.push(handle):
            await eventually(lambda: len(got) == len(GOOD) and len(failed) == 1)
            # It is one of the group's retries now, for after its delay.
            store = here.broker.context.store
            await eventually(lambda: store.max_offset_in_queue("SCHEDULE_TOPIC_XXXX", 2) == 1)
        assert sorted(got) == GOOD
        assert here.offsets()[1] == len(GOOD) + 1


async def test_lite_pull_hands_all_messages_out_and_names_the_damaged_one(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await send_with_damage(here)
        options: dict[str, Any] = {"consume_from": ConsumeFrom.FIRST_OFFSET}
        async with AsyncLitePullConsumer(
            group=GROUP, subscriptions={TOPIC: "*"}, namesrv=here.namesrv, **options
        ) as consumer:
            found: list[ReceivedMessage] = []
            while len(found) < len(GOOD) + 1:
                found += await consumer.poll(timeout_ms=5000)
        assert [one.stored_body for one in found] == [*GOOD[:3], b"not zlib", *GOOD[3:]]
        with pytest.raises(UnreadableBodyError, match="stored_body has its bytes"):
            _ = found[3].body
        assert [one.body for one in (*found[:3], *found[4:])] == GOOD


def test_the_bodies_of_one_pull_are_bounded_together() -> None:
    budget = BodyBudget(2500)
    bomb = zlib.compress(bytes(1000))
    assert len(budget.decompress(bomb, CompressionType.ZLIB)) == 1000
    assert len(budget.decompress(bomb, CompressionType.ZLIB)) == 1000
    with pytest.raises(CompressionError, match="more than 500 bytes"):
        budget.decompress(bomb, CompressionType.ZLIB)
