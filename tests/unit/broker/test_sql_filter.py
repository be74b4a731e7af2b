"""Consumers that choose messages by SQL92: at their start, in heartbeats, in pulls that wait."""

import asyncio
import base64
import json
import logging
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.broker.filtering.sql_filter import SCAN_COST_MAX
from flintmq.broker.processors import broker_admin
from flintmq.broker.tables import filter_table
from flintmq.filter.bloom import BloomFilter
from flintmq.filter.sql92 import compile_sql
from flintmq.format.subscription import build_subscription
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.clients import UnregisterClientRequest
from flintmq.format.wire.headers.query import QueryConsumeQueueRequest
from tests.kits.broker.broker_kit import START_MS, Site, Wire, eventually, records, site
from tests.kits.broker.sql_kit import ON, bodies, check, group_of, send_numbers, sql

DEFAULT_BLOOM: Final = BloomFilter.of(error_percent=20, consumer_count=32)
SUSPEND: Final = 2
REMARK: Final = (
    "org.apache.rocketmq.filter.parser.ParseException: "
    'Encountered "<EOF>" at line 1, column 3.\nWas expecting one of:\n'
)


async def test_an_expression_is_checked_before_a_consumer_starts(tmp_path: Path) -> None:
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        assert await check(wire, "n > 5 AND color = 'red'") == (ResponseCode.SUCCESS, None)
        code, remark = await check(wire, "n >")
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert remark is not None
        assert remark.startswith(REMARK)
        assert (await check(wire, "n > 5", "SQL93"))[0] == ResponseCode.SYSTEM_ERROR


async def test_a_pull_with_its_own_expression_gets_what_it_wants(tmp_path: Path) -> None:
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        await send_numbers(wire, 10)
        wanted = {"expression_type": "SQL92", "subscription": "n >= 5 AND color = 'red'"}
        assert await bodies(wire, **wanted) == [b"5", b"7", b"9"]
        nothing = await wire.pull_raw(
            "orders", expression_type="SQL92", subscription="color = 'blue'"
        )
        wrong = await wire.pull_raw("orders", expression_type="SQL92", subscription="n >")
    assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert nothing.ext_fields["nextBeginOffset"] == "10"
    assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert (wrong.remark or "").startswith(REMARK)


async def test_the_expression_of_heartbeats_is_used_and_its_version_checked(tmp_path: Path) -> None:
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        await send_numbers(wire, 6)
        await wire.heartbeat(consumer=group_of(sql("orders", "n > 3")))
        asked: dict[str, Any] = {"sys_flag": 0, "expression_type": "SQL92", "sub_version": 1}
        assert await bodies(wire, **asked) == [b"4", b"5"]
        newer = await wire.pull_raw("orders", **(asked | {"sub_version": 2}))
        await wire.heartbeat(consumer=group_of(sql("orders", "n < 2", version=2)))
        assert await bodies(wire, **(asked | {"sub_version": 2})) == [b"0", b"1"]
        assert await bodies(wire, **asked) == [b"0", b"1"]
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_a_wrong_expression_in_a_heartbeat_has_no_filter(tmp_path: Path) -> None:
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        await send_numbers(wire, 3)
        beat = await wire.heartbeat(consumer=group_of(sql("orders", "n >")))
        missing = await wire.pull_raw("orders", sys_flag=0, sub_version=1)
        await wire.heartbeat(consumer=group_of(sql("orders", "n > 1", version=2)))
        await wire.heartbeat(consumer=group_of(sql("orders", "n >", version=3)))
        old = await wire.pull_raw("orders", sys_flag=0, sub_version=3)
    assert beat.code == ResponseCode.SUCCESS
    assert missing.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert old.code == ResponseCode.FILTER_DATA_NOT_LATEST


async def test_without_the_setting_sql_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await send_numbers(wire, 1)
        await wire.heartbeat(consumer=group_of(sql("orders", "n > 1")))
        answer = await wire.pull_raw("orders", sys_flag=0, sub_version=1)
        assert here.broker.context.filters.get("orders", "consumers") is None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "The broker does not support consumer to filter message by SQL92"


async def test_the_parser_is_loaded_in_a_thread_when_sql_is_switched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded_by: list[int] = []
    monkeypatch.setattr(
        broker_admin, "load_parser", lambda: loaded_by.append(threading.get_ident())
    )
    async with site(tmp_path) as here:
        wire = await here.client()
        for lines in ("longPollingEnable=true", *["enablePropertyFilter=true"] * 2):
            answer = await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, lines.encode())
            assert answer.code == ResponseCode.SUCCESS
        assert len(loaded_by) == 1
        assert threading.get_ident() not in loaded_by
        assert await check(wire, "n > 1") == (ResponseCode.SUCCESS, None)


async def test_a_pull_that_waits_is_woken_by_a_message_that_matches(tmp_path: Path) -> None:
    async with site(tmp_path, **ON) as here:
        wire, sender = await here.client(), await here.client()
        await wire.heartbeat(consumer=group_of(sql("orders", "n = 7")))
        await send_numbers(sender, 1)
        held = here.broker.context.held
        waiting = asyncio.create_task(
            wire.pull_raw("orders", sys_flag=SUSPEND, sub_version=1, queue_offset=1)
        )
        await eventually(lambda: held.count == 1)
        await sender.send("orders", b"six", properties={"n": "6"})
        await sender.send("orders", b"none", properties={"n": "seven"})
        assert held.count == 1
        await sender.send("orders", b"seven", properties={"n": "7"})
        answer = await waiting
    assert answer.code == ResponseCode.SUCCESS
    assert [record.body for record in records(answer.body)] == [b"seven"]


async def test_an_expression_that_costs_much_is_asked_of_fewer_messages_at_a_time(
    tmp_path: Path,
) -> None:
    expression = " OR ".join(["n = 1000"] * 300)
    fewer = SCAN_COST_MAX // compile_sql(expression).cost
    assert fewer < 100
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        await send_numbers(wire, 100)
        wanted = {"expression_type": "SQL92", "subscription": expression}
        answer = await wire.pull_raw("orders", **wanted)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext_fields["nextBeginOffset"] == str(fewer)


async def read_again(wire: Wire) -> list[bytes]:
    asked: dict[str, Any] = {"sys_flag": 0, "sub_version": 1}
    return await bodies(wire, "%RETRY%consumers", **asked)


@pytest.mark.parametrize(("support", "expected"), [("false", [b"0", b"9"]), ("true", [b"9"])])
async def test_retries_are_chosen_by_the_first_topic_if_that_is_asked_for(
    tmp_path: Path, support: str, expected: list[bytes]
) -> None:
    async with site(tmp_path, filterSupportRetry=support, **ON) as here:
        wire = await here.client()
        retry = build_subscription("%RETRY%consumers", "*", version=1)
        await wire.heartbeat(consumer=group_of(sql("orders", "n > 5"), retry))
        for number in (b"0", b"9"):
            properties = {"n": number.decode(), "RETRY_TOPIC": "orders"}
            await wire.send("%RETRY%consumers", number, properties=properties)
        assert await read_again(wire) == expected


# -- what is kept ------------------------------------------------------------------------------


def kept(tmp_path: Path) -> dict[str, Any]:
    text = (tmp_path / "config" / "consumerFilter.json").read_text()
    found: dict[str, Any] = json.loads(text)["filterDataByTopic"]
    return found


def entry_of(here: Site, topic: str = "T", group: str = "CID_1") -> Any:
    return here.broker.context.filters.get(topic, group)


async def test_the_file_is_that_of_rocketmq(tmp_path: Path) -> None:
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        await wire.heartbeat(consumer=group_of(sql("T", "a > 1", version=7), group="CID_1"))
        here.clock.advance(5)
        await wire.call(
            RequestCode.UNREGISTER_CLIENT,
            UnregisterClientRequest(client_id="c1", consumer_group="CID_1", producer_group=None),
        )
    assert kept(tmp_path) == {
        "T": {
            "groupFilterData": {
                "CID_1": {
                    "bloomFilterData": {"bitNum": 112, "bitPos": [8, 56, 9]},
                    "bornTime": START_MS,
                    "clientVersion": 7,
                    "consumerGroup": "CID_1",
                    "dead": True,
                    "deadTime": START_MS + 5,
                    "expression": "a > 1",
                    "expressionType": "SQL92",
                    "topic": "T",
                }
            },
            "topic": "T",
        }
    }


async def test_an_entry_lives_again_with_the_same_version_and_is_forgotten_after_a_day(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        await wire.heartbeat(consumer=group_of(sql("T", "a > 1", version=7), group="CID_1"))
    async with site(tmp_path, **ON) as here:
        # It was alive when the broker stopped, and its time of birth is now.
        assert entry_of(here).dead_ms == START_MS
        wire = await here.client()
        await wire.heartbeat(consumer=group_of(sql("T", "a > 1", version=6), group="CID_1"))
        assert entry_of(here).dead_ms == START_MS
        await wire.heartbeat(consumer=group_of(sql("T", "a > 1", version=7), group="CID_1"))
        assert entry_of(here).dead_ms == 0
        await wire.heartbeat(consumer=group_of(sql("U", "a > 1", version=8), group="CID_1"))
        assert entry_of(here).dead_ms == START_MS
        here.clock.advance(86_399_999)
        here.broker.context.filters.clean()
        assert entry_of(here) is not None
        here.clock.advance(1)
        here.broker.context.filters.clean()
        assert entry_of(here) is None
        assert entry_of(here, "U") is not None


async def test_entries_with_other_bits_are_left_out(tmp_path: Path) -> None:
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        await wire.heartbeat(consumer=group_of(sql("T", "a > 1", version=7), group="CID_1"))
    async with site(tmp_path, expectConsumerNumUseFilter=64, **ON) as here:
        assert entry_of(here) is None


async def test_the_file_of_a_java_broker_is_read(tmp_path: Path) -> None:
    golden = Path(__file__).parents[2] / "golden/data/extended/store/config/consumerFilter.json"
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerFilter.json").write_bytes(golden.read_bytes())
    async with site(tmp_path, **ON) as here:
        entry = entry_of(here, "golden-sql", "golden-group-sql-b")
        filters = here.broker.context.filters
        bits = {
            group: filters.get("golden-sql", group).bits.positions  # type: ignore[union-attr]
            for group in ("golden-group-sql-a", "golden-group-sql-b", "golden-group-sql-c")
        }
    assert entry.expression == "color = 'red' AND n BETWEEN 5 AND 45"
    assert bits == {
        "golden-group-sql-a": (31, 43, 88),
        "golden-group-sql-b": (34, 108, 4),
        "golden-group-sql-c": (111, 72, 33),
    }


async def test_text_that_is_not_looked_at_is_told_to_the_operator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        assert (await check(wire, "n = 5 AMD m = 6"))[0] == ResponseCode.SUCCESS
    assert "'AMD m = 6'" in caplog.text


async def test_units_of_a_queue_are_told_for_an_sql_group(tmp_path: Path) -> None:
    async with site(tmp_path, **ON) as here:
        wire = await here.client()
        await send_numbers(wire, 2)
        await wire.heartbeat(consumer=group_of(sql("orders", "n > 5")))
        header = QueryConsumeQueueRequest(
            topic="orders", queue_id=0, index=0, count=2, consumer_group="consumers"
        )
        answer = await wire.call(RequestCode.QUERY_CONSUME_QUEUE, header)
    assert [unit["eval"] for unit in loads_body(answer.body)["queueData"]] == [True, True]


async def test_the_table_has_room_for_so_many_and_the_dead_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_table, "ENTRY_COUNT_MAX", 3)
    async with site(tmp_path, **ON) as here:
        wire, other = await here.client(), await here.client()
        topics = [sql(topic, "a > 1") for topic in ("T1", "T2", "T3", "T4")]
        await wire.heartbeat(consumer=group_of(*topics))
        assert [entry_of(here, topic, "consumers") is not None for topic in ("T3", "T4")] == [
            True,
            False,
        ]
        await wire.heartbeat(consumer=group_of(*topics[1:3]))
        await other.heartbeat(consumer=group_of(sql("T5", "a > 1"), group="others"))
        assert entry_of(here, "T1", "consumers") is None
        assert entry_of(here, "T5", "others") is not None
        monkeypatch.setattr(filter_table, "EXPRESSIONS_LENGTH_MAX", 20)
        await other.heartbeat(consumer=group_of(sql("T5", "a > 1 AND b > 2", version=2)))
        assert entry_of(here, "T5", "others").version == 1


# -- filter bits -------------------------------------------------------------------------------

BITS: Final = ON | {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}


async def units_of(wire: Wire, count: int) -> list[bool]:
    header = QueryConsumeQueueRequest(
        topic="orders", queue_id=0, index=0, count=count, consumer_group="consumers"
    )
    answer = await wire.call(RequestCode.QUERY_CONSUME_QUEUE, header)
    return [unit["eval"] for unit in loads_body(answer.body)["queueData"]]


async def test_units_are_shown_with_their_filter_bits(tmp_path: Path) -> None:
    async with site(tmp_path, **BITS) as here:
        wire = await here.client()
        await wire.heartbeat(consumer=group_of(sql("orders", "n > 1")))
        here.clock.advance(1)
        await send_numbers(wire, 3)
        header = QueryConsumeQueueRequest(topic="orders", queue_id=0, index=0, count=3)
        shown = (await wire.ask(RequestCode.QUERY_CONSUME_QUEUE, header))["queueData"]
        queue = here.broker.context.store.queues.get("orders", 0)
        assert queue is not None
        assert queue.ext is not None
        for offset, unit in enumerate(shown):
            found = queue.unit_at(offset)
            assert found is not None
            assert unit["tagsCode"] == found[2]
            ext = queue.resolve(found[2])
            assert ext is not None
            assert ext.bitmap is not None
            # One text of ones and zeros, the last byte first, with a line for each eight bytes.
            number = int.from_bytes(ext.bitmap, "little")
            assert unit["bitMap"].replace("\n", "") == f"{number:0112b}"
            assert [len(line) for line in unit["bitMap"].splitlines()] == [48, 64]
            told = json.loads(unit["extendDataJson"])
            assert base64.b64decode(told.pop("filterBitMap")) == ext.bitmap
            assert told == {
                "bitMapSize": 14,
                "msgStoreTime": ext.store_time,
                "size": ext.size,
                "tagsCode": ext.tags_code,
            }
        queue.ext.destroy()
        lost = (await wire.ask(RequestCode.QUERY_CONSUME_QUEUE, header))["queueData"]
        assert lost[0]["msg"] == f"Cq extend not exist!addr: {lost[0]['tagsCode']}"


async def test_the_notes_of_a_queue_rule_out_messages_that_came_after_the_subscription(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, **BITS) as here:
        wire = await here.client()
        await send_numbers(wire, 3)
        await wire.heartbeat(consumer=group_of(sql("orders", "n > 1")))
        await send_numbers(wire, 3)
        here.clock.advance(1)
        await send_numbers(wire, 3)
        # There are no notes on the first three, and those on the next are as old as the filter.
        assert await units_of(wire, 9) == [True] * 6 + [False, False, True]
        asked: dict[str, Any] = {"sys_flag": 0, "sub_version": 1}
        assert await bodies(wire, **asked) == [b"2", b"2", b"2"]
        queue = here.broker.context.store.queues.get("orders", 0)
        assert queue is not None
        noted = [queue.resolve(unit[2]) for n in range(9) if (unit := queue.unit_at(n))]
    bits = DEFAULT_BLOOM.bits_of("consumers", "orders")
    matching, other = DEFAULT_BLOOM.bitmap([bits]), bytes(14)
    bitmaps = [None if one is None else one.bitmap for one in noted]
    assert bitmaps == [None] * 3 + [other, other, matching] * 2


async def test_a_message_is_noted_for_a_group_that_is_away(tmp_path: Path) -> None:
    async with site(tmp_path, **BITS) as here:
        wire = await here.client()
        await wire.heartbeat(consumer=group_of(sql("orders", "n > 1")))
    async with site(tmp_path, **BITS) as here:
        wire = await here.client()
        here.clock.advance(1)
        await send_numbers(wire, 3)
        await wire.heartbeat(consumer=group_of(sql("orders", "n > 1")))
        assert await units_of(wire, 3) == [False, False, True]
        assert await bodies(wire, sys_flag=0, sub_version=1) == [b"2"]
