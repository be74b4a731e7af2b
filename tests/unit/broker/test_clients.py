import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.processors import clients
from flintmq.broker.processors.clients import QUEUES_AT_ONCE_MAX, ClientProcessor
from flintmq.broker.processors.request_bodies import BODY_AT_ONCE_MAX, LargeBodies
from flintmq.broker.tables.client_tables import EXPIRY_MS
from flintmq.broker.tables.queue_lock_table import EXPIRY_MS as LOCK_EXPIRY_MS
from flintmq.broker.tables.queue_lock_table import QueueLocks
from flintmq.format.wire.bodies.dialect import REQUEST_SIZE_MAX, dumps_body, loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.clients import (
    ConsumerGroupRequest,
    ProducerGroupRequest,
    UnregisterClientRequest,
)
from flintmq.model.message_queue import MessageQueue
from tests.kits.broker.broker_kit import Wire, consumer, eventually, site


async def members(wire: Wire, group: str = "consumers") -> list[str]:
    header = ConsumerGroupRequest(consumer_group=group)
    answer = await wire.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    if answer.code != ResponseCode.SUCCESS:
        return []
    found = await wire.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    return sorted(found["consumerIdList"])


async def test_a_heartbeat_makes_group_and_retry_topic_and_tells_the_version(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        answer = await wire.heartbeat("me", consumer=consumer("consumers", "orders"))
        assert (answer.code, answer.version) == (ResponseCode.SUCCESS, 409)
        assert await members(wire) == ["me"]
        retry = here.broker.context.topics.get("%RETRY%consumers")
        assert retry is not None
        assert (retry.read_queue_count, retry.perm) == (1, 6)
        assert "consumers" in here.broker.context.groups


async def test_all_members_are_told_when_somebody_comes_or_goes(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        first, second = await here.client(), await here.client()
        await first.heartbeat("a", consumer=consumer("consumers", "orders"))
        await eventually(lambda: len(first.asked) == 1)
        await first.heartbeat("a", consumer=consumer("consumers", "orders"))
        await second.heartbeat("b", consumer=consumer("consumers", "orders"))
        await eventually(lambda: len(first.asked) == 2 and len(second.asked) == 1)
        assert await members(first) == ["a", "b"]
        await second.call(
            RequestCode.UNREGISTER_CLIENT,
            UnregisterClientRequest(client_id="b", consumer_group="consumers"),
        )
        await eventually(lambda: len(first.asked) == 3)
        assert await members(first) == ["a"]
        assert {command.ext_fields["consumerGroup"] for command in first.asked} == {"consumers"}


async def test_a_lost_connection_takes_its_members_along(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        first, second = await here.client(), await here.client()
        await first.heartbeat("a", consumer=consumer("consumers", "orders"), producer="p")
        await second.heartbeat("b", consumer=consumer("consumers", "orders"), producer="p")
        await second.client.close()
        await eventually(lambda: len(first.asked) >= 3)
        assert await members(first) == ["a"]
        found = await first.ask(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequest(producer_group="p")
        )
        assert [one["clientId"] for one in found["connectionSet"]] == ["a"]


async def test_a_client_with_a_new_connection_is_one_member(tmp_path: Path) -> None:
    """The old connection may have been dropped by a firewall that told nobody."""
    async with site(tmp_path) as here:
        old, new = await here.client(), await here.client()
        for wire in (old, new):
            await wire.heartbeat("a", consumer=consumer("consumers", "orders"))
        assert await members(new) == ["a"]


async def test_a_silent_client_is_gone_after_two_minutes(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.heartbeat("a", consumer=consumer("consumers", "orders"), producer="p")
        consumers, producers = here.broker.context.consumers, here.broker.context.producers
        here.clock.advance(EXPIRY_MS)
        consumers.expire(here.clock.now_ms())
        assert consumers.get("consumers") is not None
        here.clock.advance(1)
        consumers.expire(here.clock.now_ms())
        producers.expire(here.clock.now_ms())
        assert consumers.get("consumers") is None
        assert producers.members("p") == []


async def test_the_last_heartbeat_decides_what_a_group_subscribes_to(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.heartbeat(consumer=consumer("consumers", "orders", "payments"))
        await wire.heartbeat(consumer=consumer("consumers", "orders"))
        group = here.broker.context.consumers.get("consumers")
        assert group is not None
        assert list(group.subscriptions) == ["orders"]


HEARTBEATS = {
    "C++": b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,'
    b'"groupName":"CG","messageModel":1,"subscriptionDataSet":[{"codeSet":[2598919],'
    b'"subString":"TagA","subVersion":"1700000000000","tagsSet":["TagA"],"topic":"T"}]}],'
    b'"producerDataSet":[{"groupName":"P"}]}',
    "Go": b'{"clientID":"c","producerDataSet":[{"groupName":"P"}],"consumerDataSet":'
    b'[{"groupName":"CG","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
    b'"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"topic":"T",'
    b'"subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],"subVersion":1,'
    b'"expressionType":"TAG"}],"unitMode":false}]}',
    "5.x": b'{"clientID":"c","heartbeatFingerprint":0,"withoutSub":false,"consumerDataSet":'
    b'[{"groupName":"CG","subscriptionDataSet":[{"topic":"T","subString":"TagA",'
    b'"codeSet":[2598919]}]}],"producerDataSet":[{"groupName":"P"}]}',
}


async def test_heartbeats_of_all_clients_are_understood(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for body in HEARTBEATS.values():
            answer = await wire.call(RequestCode.HEART_BEAT, None, body)
            assert answer.code == ResponseCode.SUCCESS
            group = here.broker.context.consumers.get("CG")
            assert group is not None
            assert group.subscriptions["T"].codes == {2598919}
            assert group.message_model == "CLUSTERING"
            assert here.broker.context.producers.by_id("c") is not None


async def test_a_heartbeat_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for body, words in (
            (b"", "JSON"),
            (b"[]", "no object"),
            (b"{}", "clientID"),
            (b'{"clientID":"c","consumerDataSet":[{}]}', "groupName"),
            (b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":9}]}', "Type"),
        ):
            answer = await wire.call(RequestCode.HEART_BEAT, None, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert words in (answer.remark or ""), answer.remark


async def test_queues_are_locked_for_one_client_at_a_time(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        body = (
            b'{"clientId":"%s","consumerGroup":"g","mqSet":[{"brokerName":"broker-a",'
            b'"queueId":0,"topic":"T"},{"brokerName":"broker-a","queueId":1,"topic":"T"}]}'
        )
        both = await wire.ask(RequestCode.LOCK_BATCH_MQ, None, body % b"a")
        none = await wire.ask(RequestCode.LOCK_BATCH_MQ, None, body % b"b")
        assert [queue["queueId"] for queue in both["lockOKMQSet"]] == [0, 1]
        assert none["lockOKMQSet"] == []
        await wire.ask(RequestCode.UNLOCK_BATCH_MQ, None, body % b"b")
        assert (await wire.ask(RequestCode.LOCK_BATCH_MQ, None, body % b"b")) == none
        await wire.ask(RequestCode.UNLOCK_BATCH_MQ, None, body % b"a")
        assert (await wire.ask(RequestCode.LOCK_BATCH_MQ, None, body % b"b")) == both


def test_a_lock_that_nobody_renews_is_free_after_a_minute() -> None:
    locks, queue = QueueLocks(), MessageQueue("T", "b", 0)
    assert locks.lock("g", "a", [queue], 0) == [queue]
    assert locks.lock("g", "b", [queue], LOCK_EXPIRY_MS) == []
    assert locks.lock("g", "a", [queue], LOCK_EXPIRY_MS) == [queue]
    assert locks.lock("g", "b", [queue], LOCK_EXPIRY_MS + 1) == []
    assert locks.lock("g", "b", [queue], 2 * LOCK_EXPIRY_MS + 1) == [queue]
    locks.expire(10 * LOCK_EXPIRY_MS)
    assert locks.lock("g", "c", [queue], 10 * LOCK_EXPIRY_MS) == [queue]


async def test_an_sql_subscription_is_refused_where_there_is_no_property_filter(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        body = b'{"clientId":"c","group":"g","subscriptionData":{"topic":"T","subString":"%s",'
        tag = await wire.call(
            RequestCode.CHECK_CLIENT_CONFIG, None, body % b"A" + b'"expressionType":"TAG"}}'
        )
        sql = await wire.call(
            RequestCode.CHECK_CLIENT_CONFIG, None, body % b"a>1" + b'"expressionType":"SQL92"}}'
        )
    assert (tag.code, sql.code) == (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)


def many_groups(count: int) -> bytes:
    """Return a heartbeat of so many producer groups, of about a hundred bytes each."""
    groups = ",".join(f'{{"groupName":"{number:0>80}"}}' for number in range(count))
    return f'{{"clientID":"me","producerDataSet":[{groups}]}}'.encode()


async def test_a_large_heartbeat_is_read_by_a_parser_that_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []

    def loads(body: bytes) -> Any:
        at_once.append(len(body))
        return loads_body(body)

    monkeypatch.setattr(clients, "loads_body", loads)
    async with site(tmp_path) as here:
        wire = await here.client()
        small, large = many_groups(3), many_groups(2000)
        assert len(large) > BODY_AT_ONCE_MAX
        for body in (large, small, large):
            answer = await wire.call(RequestCode.HEART_BEAT, None, body)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert len(list(here.broker.context.producers)) == 2000
        assert at_once == [len(small)]
        # What is no JSON is found out there too.
        answer = await wire.call(RequestCode.HEART_BEAT, None, large[:-1])
        assert (answer.code, "JSON" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_large_body_whose_peer_has_gone_keeps_the_next_one_waiting() -> None:
    bodies, may_end, begun = LargeBodies(), threading.Event(), list[bytes]()

    def decode(body: bytes, *, loads: Callable[[bytes], Any]) -> bytes:
        begun.append(body)
        assert may_end.wait(30)
        if body == b"first":
            raise ValueError("nobody wants to know")
        return body

    first = asyncio.create_task(bodies.read(b"first", decode))
    await eventually(lambda: begun == [b"first"])
    first.cancel()
    second = asyncio.create_task(bodies.read(b"second", decode))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not first.done()
    assert begun == [b"first"]
    may_end.set()
    assert await second == b"second"
    assert first.cancelled()


async def test_more_json_than_any_client_has_to_say_is_refused_unread(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        body = b'{"clientID":"me"' + b" " * REQUEST_SIZE_MAX + b"}"
        for code in (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ):
            answer = await wire.call(code, None, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert str(REQUEST_SIZE_MAX) in (answer.remark or ""), answer.remark


async def test_thousands_of_queues_are_locked_and_given_back_in_steps(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        count = 3 * QUEUES_AT_ONCE_MAX
        queues = [MessageQueue("T", "broker-a", number) for number in range(count)]

        async def ask(code: RequestCode, client_id: str) -> list[int]:
            body = dumps_body({"clientId": client_id, "consumerGroup": "g", "mqSet": queues})
            found = await wire.ask(code, None, body)
            return [queue["queueId"] for queue in (found or {}).get("lockOKMQSet", [])]

        before = here.broker.context.turns.turn_count
        assert await ask(RequestCode.LOCK_BATCH_MQ, "a") == list(range(count))
        assert here.broker.context.turns.turn_count > before
        assert await ask(RequestCode.LOCK_BATCH_MQ, "b") == []
        await ask(RequestCode.UNLOCK_BATCH_MQ, "a")
        assert await ask(RequestCode.LOCK_BATCH_MQ, "b") == list(range(count))
        processor = ClientProcessor(here.broker.context)
        asked = clients._LockRequest("other", "c", queues)
        held = here.broker.context.locks._locks
        steps = [len(held["other"]) for _ in processor._lock_in_steps(asked)]
        assert steps[0] <= clients.QUEUES_IN_A_STEP
        assert len(steps) >= count / clients.QUEUES_IN_A_STEP
