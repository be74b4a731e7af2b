import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from flintmq.format.wire.bodies.heartbeat import MESSAGE_MODELS
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import TopicRequest
from tests.kits.broker.broker_kit import (
    consumer,
    eventually,
    pull_header,
    records,
    site,
)

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


async def test_a_pull_tells_where_to_go_on(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for number in range(10):
            await wire.send("orders", b"%d" % number)
        answer = await wire.pull_raw("orders", queue_offset=3, max_msg_nums=4)
    assert answer.code == ResponseCode.SUCCESS
    assert [record.body for record in records(answer.body)] == [b"3", b"4", b"5", b"6"]
    assert answer.remark == "FOUND"
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "7",
        "minOffset": "0",
        "maxOffset": "10",
    }


@pytest.mark.parametrize(
    ("topic", "offset", "code", "next_offset"),
    [
        ("orders", 3, ResponseCode.PULL_NOT_FOUND, "3"),
        ("orders", 4, ResponseCode.PULL_OFFSET_MOVED, "3"),
        ("orders", -5, ResponseCode.PULL_OFFSET_MOVED, "0"),
        ("empty", 0, ResponseCode.PULL_NOT_FOUND, "0"),
        ("empty", 7, ResponseCode.PULL_OFFSET_MOVED, "0"),
    ],
)
async def test_an_offset_outside_of_the_queue_is_corrected(
    tmp_path: Path, topic: str, offset: int, code: int, next_offset: str
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for _ in range(3):
            await wire.send("orders")
        here.broker.context.topics.ensure("empty", 1)
        answer = await wire.pull_raw(topic, queue_offset=offset)
        events = await wire.pull("OFFSET_MOVED_EVENT")
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (code, next_offset)
    assert len(events) == (code == ResponseCode.PULL_OFFSET_MOVED)
    if events:
        assert events[0].properties["TAGS"] == "consumers"


async def test_tags_are_chosen_by_the_broker_and_a_pull_without_a_match_moves_on(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for tag in ("A", "B", "A", "C", ""):
            await wire.send("orders", tag.encode(), properties={"TAGS": tag} if tag else None)
        found = await wire.pull("orders", subscription="A || C")
        nothing = await wire.pull_raw("orders", subscription="D")
    assert [record.body for record in found] == [b"A", b"A", b"C"]
    assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert nothing.ext_fields["nextBeginOffset"] == "5"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": -1}, ResponseCode.SYSTEM_ERROR),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"subscription": "a > 1", "expression_type": "SQL92"}, ResponseCode.SYSTEM_ERROR),
        ({"sys_flag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"topic": "write-only"}, ResponseCode.NO_PERMISSION),
    ],
)
async def test_a_pull_that_may_not_be_is_refused_with_its_code(
    tmp_path: Path, change: dict[str, Any], code: int
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders")
        here.broker.context.topics.ensure("write-only", 1, perm=2)
        answer = await wire.pull_raw(change.pop("topic", "orders"), **change)
    assert answer.code == code, answer


async def test_a_registered_subscription_is_used_and_checked(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders", b"a", properties={"TAGS": "A"})
        await wire.send("orders", b"b", properties={"TAGS": "B"})
        await wire.heartbeat(consumer=consumer("consumers", "orders", expression="B"))
        (record,) = await wire.pull("orders", sys_flag=0, sub_version=1)
        newer = await wire.pull_raw("orders", sys_flag=0, sub_version=2)
        other = await wire.pull_raw("TBW102", sys_flag=0)
    assert record.body == b"b"
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert other.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_groups_may_be_kept_from_consuming(tmp_path: Path) -> None:
    async with site(tmp_path, autoCreateSubscriptionGroup="false") as here:
        wire = await here.client()
        await wire.send("orders")
        missing = await wire.pull_raw("orders")
        await wire.ask(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            b'{"groupName":"consumers","consumeEnable":false}',
        )
        disabled = await wire.pull_raw("orders")
        await wire.ask(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            b'{"groupName":"consumers","consumeBroadcastEnable":false}',
        )
        model = MESSAGE_MODELS[0]
        await wire.heartbeat(consumer=consumer("consumers", "orders", message_model=model))
        broadcast = await wire.pull_raw("orders", sys_flag=0)
    assert missing.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert disabled.code == broadcast.code == ResponseCode.NO_PERMISSION


async def test_a_pull_commits_an_offset_if_it_says_so(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders")
        await wire.pull_raw("orders", sys_flag=SUBSCRIPTION, commit_offset=11)
        offsets = here.broker.context.offsets
        assert offsets.get("consumers", "orders", 0) is None
        await wire.pull_raw("orders", sys_flag=SUBSCRIPTION | COMMIT, commit_offset=11)
        assert offsets.get("consumers", "orders", 0) == 11


async def test_a_held_pull_is_answered_when_a_message_comes(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire, other = await here.client(), await here.client()
        await wire.send("orders")
        # Nothing but the arrival can wake it in time: its own time is longer than the test's.
        header = pull_header(
            "orders",
            queue_offset=1,
            sys_flag=SUSPEND | SUBSCRIPTION,
            suspend_timeout_millis=3_600_000,
        )
        waiting = asyncio.create_task(wire.call(RequestCode.PULL_MESSAGE, header))
        await eventually(lambda: here.broker.context.held.count == 1)
        await other.send("orders", b"news")
        answer = await waiting
        assert [record.body for record in records(answer.body)] == [b"news"]
        assert here.broker.context.held.count == 0


async def test_a_held_pull_goes_by_what_its_group_may_do_when_a_message_comes(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire, other = await here.client(), await here.client()
        await wire.send("orders")
        header = pull_header("orders", queue_offset=1, sys_flag=SUSPEND | SUBSCRIPTION)
        waiting = asyncio.create_task(wire.call(RequestCode.PULL_MESSAGE, header))
        await eventually(lambda: here.broker.context.held.count == 1)
        body = json.dumps({"groupName": "consumers", "consumeEnable": False}).encode()
        await other.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        # Another group may still pull, and what is known of pulls is brought up to date by that.
        assert len(await other.pull("orders", consumer_group="others")) == 1
        await other.send("orders", b"news")
        answer = await waiting
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_a_held_pull_is_not_woken_by_what_it_does_not_want(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire, other = await here.client(), await here.client()
        await wire.send("orders", properties={"TAGS": "A"})
        header = pull_header(
            "orders", queue_offset=1, sys_flag=SUSPEND | SUBSCRIPTION, subscription="B"
        )
        waiting = asyncio.create_task(wire.call(RequestCode.PULL_MESSAGE, header))
        held = here.broker.context.held
        await eventually(lambda: held.count == 1)
        await other.send("orders", b"a", properties={"TAGS": "A"})
        await other.send("orders", b"other queue", queue_id=1, properties={"TAGS": "B"})
        assert held.count == 1
        await other.send("orders", b"b", properties={"TAGS": "B"})
        answer = await waiting
    assert [record.body for record in records(answer.body)] == [b"b"]


async def test_a_held_pull_is_told_that_there_is_nothing_when_its_time_is_up(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders")
        answer = await wire.pull_raw(
            "orders",
            queue_offset=1,
            sys_flag=SUSPEND | SUBSCRIPTION,
            suspend_timeout_millis=30,
        )
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.ext_fields["nextBeginOffset"] == "1"


async def test_the_pulls_of_a_client_that_is_gone_are_let_go(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire, other = await here.client(), await here.client()
        await other.send("orders")
        header = pull_header("orders", queue_offset=1, sys_flag=SUSPEND | SUBSCRIPTION)
        waiting = asyncio.create_task(wire.call(RequestCode.PULL_MESSAGE, header))
        held = here.broker.context.held
        await eventually(lambda: held.count == 1)
        await wire.client.close()
        await asyncio.gather(waiting, return_exceptions=True)
        await eventually(lambda: len(here.broker.server.connections) == 1)
        await other.send("orders", b"nobody there")
        assert held.count == 0


async def test_a_delayed_message_comes_when_it_is_due_and_wakes_who_waits(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire, other = await here.client(), await here.client()
        await wire.send("orders")
        await wire.send("orders", b"late", properties={"DELAY": "2"})
        header = pull_header("orders", queue_offset=1, sys_flag=SUSPEND | SUBSCRIPTION)
        waiting = asyncio.create_task(other.call(RequestCode.PULL_MESSAGE, header))
        await eventually(lambda: here.broker.context.held.count == 1)
        here.clock.advance(4999)
        assert not waiting.done()
        here.clock.advance(1)
        (record,) = records((await waiting).body)
    assert record.body == b"late"
    assert record.properties["REAL_TOPIC"] == "orders"


async def test_a_store_that_is_deleted_from_says_so(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders")
        await wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic="orders"))
        answer = await wire.pull_raw("orders")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
