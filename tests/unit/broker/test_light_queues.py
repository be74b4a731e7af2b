"""Light queues (``%LMQ%``): fed by a property of messages, pulled, waited for and committed."""

import asyncio
from pathlib import Path
from typing import Any, Final

from flintmq.format.properties import encode_properties
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from flintmq.store.appending.put_admission import FURTHER_COUNT_MAX
from tests.kits.broker.broker_kit import Wire, eventually, records, send_header, site

LIGHT: Final[dict[str, Any]] = {"enableLmq": "true", "enableMultiDispatch": "true"}
GROUP: Final = "%LMQ%readers"
HOLD: Final = 2
"""The flag of a pull that may wait."""


def to(*names: str) -> dict[str, Any]:
    return {"properties": {"INNER_MULTI_DISPATCH": ",".join(names)}}


async def committed(wire: Wire, topic: str, group: str = GROUP) -> int | None:
    header = QueryConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=0)
    answer = await wire.call(RequestCode.QUERY_CONSUMER_OFFSET, header)
    return OffsetResponse.decode(answer.ext_fields).offset if answer.code == 0 else None


async def commit(wire: Wire, topic: str, offset: int, group: str = GROUP) -> None:
    header = UpdateConsumerOffsetRequest(
        consumer_group=group, topic=topic, queue_id=0, commit_offset=offset
    )
    assert (await wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def test_messages_are_pulled_from_their_light_queues(tmp_path: Path) -> None:
    async with site(tmp_path, **LIGHT) as here:
        wire = await here.client()
        await wire.send("orders", b"both", **to("%LMQ%a", "%LMQ%b"))
        await wire.send("orders", b"one", **to("%LMQ%a"))
        found = await wire.pull("%LMQ%a", consumer_group=GROUP)
        assert [bytes(record.body) for record in found] == [b"both", b"one"]
        assert {record.topic for record in found} == {"orders"}
        found = await wire.pull("%LMQ%b", consumer_group=GROUP)
        assert [bytes(record.body) for record in found] == [b"both"]
        answer = await wire.pull_raw("%LMQ%a", consumer_group=GROUP, queue_id=1)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        # They are in no table: thousands of them come and go.
        context = here.broker.context
        assert not [one.name for one in context.topics if one.name.startswith("%LMQ%")]
        assert not [one.name for one in context.groups if one.name.startswith("%LMQ%")]
    async with site(tmp_path / "plain") as here:
        answer = await (await here.client()).pull_raw("%LMQ%a", consumer_group=GROUP)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_pull_waits_for_a_message_of_a_light_queue(tmp_path: Path) -> None:
    async with site(tmp_path, **LIGHT) as here:
        reader, writer = await here.client(), await here.client()
        await writer.send("orders", b"first", **to("%LMQ%a"))
        pull = asyncio.create_task(
            reader.pull_raw(
                "%LMQ%a",
                consumer_group=GROUP,
                queue_offset=1,
                sys_flag=HOLD | 4,
                suspend_timeout_millis=30_000,
            )
        )
        await eventually(lambda: here.broker.context.held.count == 1)
        await writer.send("orders", b"elsewhere", **to("%LMQ%b"))
        await writer.send("orders", b"second", **to("%LMQ%a"))
        answer = await pull
        assert [bytes(record.body) for record in records(answer.body)] == [b"second"]


async def test_offsets_of_light_groups_have_a_place_of_their_own(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await commit(await here.client(), "orders", 3, "plain")
    async with site(tmp_path, **LIGHT) as here:
        wire = await here.client()
        assert await committed(wire, "orders", "plain") == 3
        await wire.send("orders", b"first", **to("%LMQ%a"))
        await commit(wire, "%LMQ%a", 1)
    # As Java writes it: queue ids without quotes.
    kept = "".join((tmp_path / "config" / "lmqConsumerOffset.json").read_text().split())
    assert kept == (
        '{"lmqOffsetTable":{"%LMQ%a@%LMQ%readers":1},"offsetTable":{"orders@plain":{0:3}}}'
    )
    async with site(tmp_path, **LIGHT) as here:
        wire = await here.client()
        assert await committed(wire, "%LMQ%a") == 1
        assert await committed(wire, "orders", "plain") == 3


async def test_there_are_only_so_many_light_queues(tmp_path: Path) -> None:
    async with site(tmp_path, maxLmqConsumeQueueNum=2, **LIGHT) as here:
        wire = await here.client()
        await wire.send("orders", b"two", **to("%LMQ%a", "%LMQ%b"))
        answer = await wire.send_raw("orders", b"three", **to("%LMQ%c"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        await wire.send("orders", b"again", **to("%LMQ%a"))
        assert len(await wire.pull("%LMQ%a", consumer_group=GROUP)) == 2


async def test_a_message_does_not_make_more_queues_than_there_may_be(tmp_path: Path) -> None:
    async with site(tmp_path, maxLmqConsumeQueueNum=5, **LIGHT) as here:
        wire = await here.client()
        for names in ([f"%LMQ%{number}" for number in range(6)], list("abcdef")):
            answer = await wire.send_raw("orders", b"six", **to(*names))
            assert answer.code == ResponseCode.SYSTEM_ERROR
        # The same ones twice are not more.
        await wire.send("orders", b"four", **to("%LMQ%a", "b", "%LMQ%c", "b", "%LMQ%c", "d"))
        light = [f"%LMQ%{number}" for number in range(4)]
        for names in (light, ["e", "f", "g", "h"]):
            answer = await wire.send_raw("orders", b"one too many", **to(*names))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            await wire.send("orders", b"just enough", **to(*names[1:]))
        await wire.send("orders", b"known", **to("b", "%LMQ%a"))
        assert len(await wire.pull("%LMQ%a", consumer_group=GROUP)) == 2
    made = {one.name for one in (tmp_path / "consumequeue").iterdir()}
    assert made == {"orders", "%LMQ%a", "b", "%LMQ%c", "d", *light[1:], "f", "g", "h"}


async def test_a_message_enters_a_bounded_number_of_queues(tmp_path: Path) -> None:
    names = [f"%LMQ%{number}" for number in range(FURTHER_COUNT_MAX + 1)]
    async with site(tmp_path, **LIGHT) as here:
        wire = await here.client()
        answer = await wire.send_raw("orders", b"too many", **to(*names))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "256" in (answer.remark or "")
        await wire.send("orders", b"all", **to(*names[1:]))
        assert len(await wire.pull(names[-1], consumer_group=GROUP)) == 1


async def test_no_batch_says_where_its_messages_are_in_further_queues(tmp_path: Path) -> None:
    """Queues that are made anew from the log would have them there, and their own ones behind."""
    forged = {"INNER_MULTI_DISPATCH": "%LMQ%a,other", "INNER_MULTI_QUEUE_OFFSET": "500,70000"}
    async with site(tmp_path, **LIGHT) as here:
        wire = await here.client()
        body = encode_batch([BatchItem(0, b"item", encode_properties(forged))])
        header = send_header("orders", batch=True)
        answer = await wire.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        # A message by itself is told its offsets, whatever it says.
        await wire.send("orders", b"alone", properties=forged)
        (found,) = await wire.pull("%LMQ%a", consumer_group=GROUP)
        assert found.properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"


async def test_light_queues_and_their_number_outlive_a_restart(tmp_path: Path) -> None:
    settings = LIGHT | {"maxLmqConsumeQueueNum": 2}
    async with site(tmp_path, **settings) as here:
        wire = await here.client()
        await wire.send("orders", b"first", **to("%LMQ%a", "%LMQ%b"))
    async with site(tmp_path, **settings) as here:
        wire = await here.client()
        await wire.send("orders", b"second", **to("%LMQ%a"))
        found = await wire.pull("%LMQ%a", consumer_group=GROUP)
        assert [bytes(record.body) for record in found] == [b"first", b"second"]
        assert found[-1].properties["INNER_MULTI_QUEUE_OFFSET"] == "1"
        answer = await wire.send_raw("orders", b"third", **to("%LMQ%c"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        # One that is deleted makes room for another one.
        assert here.broker.context.store.clean_unused_light_queue("%LMQ%b")
        await wire.send("orders", b"third", **to("%LMQ%c"))
    async with site(tmp_path, **settings) as here:
        wire = await here.client()
        found = await wire.pull("%LMQ%c", consumer_group=GROUP)
        assert [bytes(record.body) for record in found] == [b"third"]
