from pathlib import Path

from flintmq.format.message_id import decode_offset_id
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.query import (
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from tests.kits.broker.broker_kit import START_MS, Wire, consumer, records, site


def query(key: str, *, unique: bool | None = None, maximum: int = 32) -> QueryMessageRequest:
    return QueryMessageRequest(
        topic="orders",
        key=key,
        max_num=maximum,
        begin_timestamp=0,
        end_timestamp=START_MS + 10_000,
        unique_key_query=unique,
    )


async def bodies(wire: Wire, header: QueryMessageRequest) -> list[bytes]:
    answer = await wire.call(RequestCode.QUERY_MESSAGE, header)
    assert answer.code == ResponseCode.SUCCESS, answer
    return sorted(bytes(record.body) for record in records(answer.body))


async def test_messages_are_found_by_key_and_by_unique_key(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for number in range(5):
            await wire.send(
                "orders",
                b"%d" % number,
                properties={"KEYS": f"all k{number}", "UNIQ_KEY": f"U{number}"},
            )
        assert await bodies(wire, query("k3")) == [b"3"]
        assert await bodies(wire, query("all")) == [b"0", b"1", b"2", b"3", b"4"]
        assert len(await bodies(wire, query("all", maximum=2))) == 2
        assert await bodies(wire, query("U4", unique=True, maximum=0)) == [b"4"]
        answer = await wire.call(RequestCode.QUERY_MESSAGE, query("none"))
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        found = QueryMessageResponse.decode(answer.ext_fields)
        # Who finds nothing is told nothing of the index, as by Java.
        assert found.index_last_update_timestamp == 0
        assert found.index_last_update_phyoffset == 0
        one = await wire.call(RequestCode.QUERY_MESSAGE, query("k3"))
        found = QueryMessageResponse.decode(one.ext_fields)
        assert found.index_last_update_timestamp == START_MS


async def test_a_message_is_found_by_its_place_in_the_log(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        sent = await wire.send("orders", b"here")
        _, offset = decode_offset_id(sent.msg_id)
        answer = await wire.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset))
        assert [record.body for record in records(answer.body)] == [b"here"]
        for wrong in (-1, offset + 1, 999_999_999):
            answer = await wire.call(
                RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=wrong)
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_units_of_a_queue_are_shown_with_the_judgement_of_a_group(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for tag in ("TagA", "TagB", "TagA"):
            await wire.send("orders", properties={"TAGS": tag})
        await wire.heartbeat(consumer=consumer("g", "orders", expression="TagA"))
        header = QueryConsumeQueueRequest(
            topic="orders", queue_id=0, index=1, count=5, consumer_group="g"
        )
        shown = await wire.ask(RequestCode.QUERY_CONSUME_QUEUE, header)
        assert (shown["minQueueIndex"], shown["maxQueueIndex"]) == (0, 3)
        assert [unit["eval"] for unit in shown["queueData"]] == [False, True]
        assert [unit["tagsCode"] for unit in shown["queueData"]] == [2598920, 2598919]
        assert shown["subscriptionData"]["subString"] == "TagA"
        header = QueryConsumeQueueRequest(topic="orders", queue_id=0, index=7, count=5)
        answer = await wire.call(RequestCode.QUERY_CONSUME_QUEUE, header)
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"")
        header = QueryConsumeQueueRequest(topic="none", queue_id=0, index=0, count=5)
        answer = await wire.call(RequestCode.QUERY_CONSUME_QUEUE, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
