import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.statistics.broker_statistics import GotQueue
from flintmq.format.wire.bodies.delays import DelayProgress
from flintmq.format.wire.bodies.dialect import queue_from
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import (
    BrokerConsumeStatsRequest,
    BrokerStatsRequest,
    CloneGroupOffsetRequest,
    ConsumeStatsRequest,
    ConsumeTimeSpanRequest,
    CorrectionOffsetRequest,
    CreateTopicRequest,
    DeleteGroupRequest,
    GroupConfigRequest,
    TopicRequest,
)
from flintmq.format.wire.headers.clients import ConsumerGroupRequest, ProducerGroupRequest
from flintmq.model.message_queue import MessageQueue
from flintmq.model.steps import finish
from flintmq.settings import read_properties
from flintmq.store.upkeep.waiting_state import WaitingState
from tests.kits.broker.broker_kit import START_MS, Wire, consumer, eventually, site


def create(topic: str, **more: Any) -> CreateTopicRequest:
    values = {"read_queue_nums": 2, "write_queue_nums": 2, "perm": 6} | more
    return CreateTopicRequest(topic=topic, **values)


def queue(queue_id: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def by_queue(table: dict[Any, Any]) -> dict[MessageQueue, Any]:
    return {queue_from(key): value for key, value in table.items()}


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the clock of this machine show the time of Tokyo."""
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def told(wire: Wire) -> dict[str, str]:
    """Return the runtime info."""
    table: dict[str, str] = (await wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    return table


async def test_write_buffers_and_what_is_in_them_only_are_told(tmp_path: Path) -> None:
    settings = {
        "transientStorePoolEnable": "true",
        "transientStorePoolSize": 3,
        # Only the test commits.
        "commitIntervalCommitLog": 600_000,
    }
    async with site(tmp_path, **settings) as here:
        wire, store = await here.client(), here.broker.context.store
        assert (await told(wire))["remainHowManyDataToCommit"] == "0 B"
        await wire.send("orders", bytes(100))
        size = store.log.end_offset
        assert 100 < size < 1000
        assert (await told(wire))["remainHowManyDataToCommit"] == f"{size} B"
        store.durability.commit()
        assert (await told(wire))["remainHowManyDataToCommit"] == "0 B"
        # The file that is written has one of the three.
        assert (await told(wire))["remainTransientStoreBufferNumbs"] == "2"
    async with site(tmp_path / "other") as here:
        table = (await (await here.client()).ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert table["remainTransientStoreBufferNumbs"] == str(2**31 - 1)
        assert "remainHowManyDataToCommit" not in table


async def test_topics_are_made_changed_told_and_deleted(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("orders"))
        await wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("orders", read_queue_nums=5))
        one = await wire.ask(RequestCode.GET_TOPIC_CONFIG, TopicRequest(topic="orders"))
        every = await wire.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert one == every["topicConfigTable"]["orders"]
        assert (one["readQueueNums"], one["writeQueueNums"], one["perm"]) == (5, 2, 6)
        assert every["dataVersion"]["counter"] == 2
        await wire.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic="orders"))
        gone = await wire.call(RequestCode.GET_TOPIC_CONFIG, TopicRequest(topic="orders"))
        assert gone.code == ResponseCode.TOPIC_NOT_EXIST


async def test_topics_and_groups_survive_a_restart(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("orders"))
        body = b'{"groupName":"g","retryMaxTimes":3}'
        await wire.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    async with site(tmp_path) as here:
        wire = await here.client()
        one = await wire.ask(RequestCode.GET_TOPIC_CONFIG, TopicRequest(topic="orders"))
        assert one["writeQueueNums"] == 2
        header = GroupConfigRequest(group="g")
        group = await wire.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        assert group["retryMaxTimes"] == 3


@pytest.mark.parametrize("topic", ["TBW102", "broker-a", "TestCluster", "rmq_sys_x", "a b", ""])
@pytest.mark.parametrize("deletes", [True, False])
async def test_system_topics_and_bad_names_are_left_alone(
    tmp_path: Path, topic: str, deletes: bool
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        answer = (
            await wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic=topic))
            if deletes
            else await wire.call(RequestCode.UPDATE_AND_CREATE_TOPIC, create(topic))
        )
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_the_system_topics_are_told(tmp_path: Path) -> None:
    async with site(tmp_path, traceTopicEnable="true") as here:
        wire = await here.client()
        found = await wire.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "TestCluster", "broker-a"} <= set(
            found["topicList"]
        )
        trace = here.broker.context.topics.get("RMQ_SYS_TRACE_TOPIC")
        assert trace is not None
        assert trace.write_queue_count == 1


async def test_topic_stats_tell_the_bounds_of_every_queue(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("orders"))
        await wire.send("orders")
        here.clock.advance(500)
        await wire.send("orders")
        found = await wire.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicRequest(topic="orders"))
        table = by_queue(found["offsetTable"])
        missing = await wire.call(RequestCode.GET_TOPIC_STATS_INFO, TopicRequest(topic="x"))
    assert table == {
        queue(0): {"lastUpdateTimestamp": START_MS + 500, "maxOffset": 2, "minOffset": 0},
        queue(1): {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0},
    }
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST


async def test_groups_are_told_and_deleted_with_their_offsets(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders")
        await wire.pull_raw("orders", consumer_group="g", sys_flag=5, commit_offset=1)
        every = await wire.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert "g" in every["subscriptionGroupTable"]
        who = await wire.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequest(topic="orders"))
        assert who["groupList"] == ["g"]
        await wire.ask(
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            DeleteGroupRequest(group_name="g", remove_offset=True),
        )
        assert (await wire.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)) == {"offsetTable": {}}
        header = GroupConfigRequest(group="g")
        answer = await wire.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_the_progress_of_a_group_is_told(tmp_path: Path, in_tokyo: None) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("orders"))
        for _ in range(3):
            await wire.send("orders")
            here.clock.advance(1000)
        here.broker.context.offsets.commit("g", "orders", 0, 2)
        here.broker.context.offsets.commit("g", "deleted", 0, 2)
        here.broker.context.groups.get("g")
        expected = {
            queue(0): {
                "brokerOffset": 3,
                "consumerOffset": 2,
                "lastTimestamp": START_MS + 1000,
            },
            queue(1): {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0},
        }
        for topic in ("orders", None):
            header = ConsumeStatsRequest(consumer_group="g", topic=topic)
            found = await wire.ask(RequestCode.GET_CONSUME_STATS, header)
            assert by_queue(found["offsetTable"]) == expected
        every = await wire.ask(
            RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequest(is_order=False)
        )
        assert every["totalDiff"] == 1
        (row,) = [group["g"] for group in every["consumeStatsList"] if "g" in group]
        assert by_queue(row[0]["offsetTable"]) == expected
        spans = await wire.ask(
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            ConsumeTimeSpanRequest(topic="orders", group="g"),
        )
        first, second = spans["consumeTimeSpanSet"]
        assert first["minTimeStamp"] == START_MS
        assert first["maxTimeStamp"] == START_MS + 2000
        assert first["consumeTimeStamp"] == START_MS + 1000
        assert first["delayTime"] == 1000
        assert second["consumeTimeStampStr"] == "1970-01-01#08:59:59:999"


async def test_offsets_are_cloned_and_compared(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for _ in range(9):
            await wire.send("orders")
        offsets = here.broker.context.offsets
        offsets.commit("a", "orders", 0, 7)
        offsets.commit("b", "orders", 0, 4)
        await wire.ask(
            RequestCode.CLONE_GROUP_OFFSET,
            CloneGroupOffsetRequest(src_group="a", dest_group="c", topic="orders"),
        )
        assert offsets.get("c", "orders", 0) == 7
        header = CorrectionOffsetRequest(compare_group="a", topic="orders")
        found = await wire.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)
        assert found == {"correctionOffsets": {0: 4}}
        header = CorrectionOffsetRequest(compare_group="a", topic="orders", filter_groups="b")
        found = await wire.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)
        assert found == {"correctionOffsets": {0: 7}}


async def test_connections_are_told(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        offline = await wire.call(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequest(consumer_group="g")
        )
        nobody = await wire.call(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequest(producer_group="p")
        )
        await wire.heartbeat("me", consumer=consumer("g", "orders"), producer="p")
        online = await wire.ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequest(consumer_group="g")
        )
        every = await wire.ask(RequestCode.GET_ALL_PRODUCER_INFO)
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert nobody.code == ResponseCode.SYSTEM_ERROR
    (connection,) = online["connectionSet"]
    assert (connection["clientId"], connection["language"]) == ("me", "JAVA")
    assert online["subscriptionTable"]["orders"]["subString"] == "*"
    assert every["data"]["p"][0]["clientId"] == "me"


async def test_the_settings_are_told_by_rocketmqs_names(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        answer = await wire.call(RequestCode.GET_BROKER_CONFIG)
        shown = read_properties(answer.body)
        assert shown["brokerName"] == "broker-a"
        assert shown["mappedFileSizeCommitLog"] == str(1 << 20)
        assert shown["listenPort"] == str(here.broker.port)
        assert "counter" in answer.ext_fields["version"]


async def test_the_runtime_info_has_what_the_tools_look_for(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for _ in range(3):
            await wire.send("orders")
        await wire.pull("orders")
        table = (await wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    assert table["msgPutTotalTodayNow"] == "3"
    assert table["msgGetTotalTodayNow"] == "3"
    assert table["brokerVersionDesc"] == "V4_9_8"
    needed = (
        "putTps getTransferedTps getTransferredTps sendThreadPoolQueueSize "
        "pullThreadPoolQueueSize sendThreadPoolQueueHeadWaitTimeMills pageCacheLockTimeMills "
        "earliestMessageTimeStamp commitLogDiskRatio bootTimestamp runtime getTotalTps "
        "commitLogMaxOffset remainHowManyDataToFlush commitLogDirCapacity"
    )
    assert set(needed.split()) <= table.keys()
    assert all(isinstance(value, str) for value in table.values())


async def test_statistics_of_the_last_minute_hour_and_day(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        header = BrokerStatsRequest(stats_name="TOPIC_PUT_NUMS", stats_key="orders")
        missing = await wire.call(RequestCode.VIEW_BROKER_STATS_DATA, header)
        await wire.send("orders")
        statistics = here.broker.context.statistics
        finish(statistics.sample())
        for _ in range(6):
            await wire.send("orders")
            here.clock.advance(10_000)
            finish(statistics.sample())
        found = await wire.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    assert missing.code == ResponseCode.SYSTEM_ERROR
    assert found["statsMinute"] == {"avgpt": 1.0, "sum": 7, "tps": 7 / 60}


async def test_statistics_tell_of_queues_and_how_far_a_group_is_behind(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.heartbeat(consumer=consumer("g", "orders"))

        async def stats(name: str, key: str) -> dict[str, Any]:
            header = BrokerStatsRequest(stats_name=name, stats_key=key)
            found = await wire.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
            minute: dict[str, Any] = found["statsMinute"]
            return minute

        for number in range(4):
            await wire.send("orders", b"%d" % number)
            here.clock.advance(1000)
        first = await wire.pull("orders", consumer_group="g", max_msg_nums=3, sub_version=1)
        assert len(first) == 3
        last = here.broker.context.store.look(first[-1].physical_offset)
        assert last is not None
        end = here.broker.context.store.log.end_offset
        behind = end - last.physical_offset - last.size
        assert (await stats("GROUP_GET_FALL_SIZE", "0@orders@g"))["sum"] == behind > 0
        assert (await stats("GROUP_GET_FALL_TIME", "0@orders@g"))["sum"] == 2000
        # Of what has a counter, the minute is that between two samples.
        statistics, got = here.broker.context.statistics, sum(one.size for one in first)
        finish(statistics.sample())
        queue = GotQueue("orders", "g", 0)
        for micros in (7_400, 4_700):
            statistics.add_get(queue, 2, 500, next_offset=4, micros=micros)
        statistics.add_put("orders", 0, 3, 900)
        here.clock.advance(10_000)
        finish(statistics.sample())
        for name, key, wanted, per_time in (
            ("QUEUE_PUT_NUMS", "orders@0", 4 + 3, 1),
            ("QUEUE_PUT_SIZE", "orders@0", end + 900, (end + 900) / 7),
            ("QUEUE_GET_NUMS", "orders@0@g", 3 + 4, 7 / 3),
            ("QUEUE_GET_SIZE", "orders@0@g", got + 1000, (got + 1000) / 3),
            ("GROUP_GET_LATENCY", "0@orders@g", 12, 4),
        ):
            found = await stats(name, key)
            assert (found["sum"], found["avgpt"]) == (wanted, per_time), name
            assert found["tps"] > 0
        header = BrokerStatsRequest(stats_name="GROUP_GET_FALL_SIZE", stats_key="1@orders@g")
        missing = await wire.call(RequestCode.VIEW_BROKER_STATS_DATA, header)
        assert missing.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
    ],
)
async def test_cleaning_leaves_what_is_in_use(tmp_path: Path, code: int) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders", b"kept")
        await wire.ask(code)
        assert [record.body for record in await wire.pull("orders")] == [b"kept"]


async def test_delay_offsets_are_told(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("orders", properties={"DELAY": "1"})
        here.clock.advance(1000)
        here.broker.context.store.schedule.deliver_due()
        found = await wire.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert found == {"offsetTable": {1: 1}}


async def test_how_far_messages_that_name_a_time_are_is_told_beside_delay_offsets(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire, store = await here.client(), here.broker.context.store
        await wire.send("orders", properties={"TIMER_DELAY_MS": "500"})
        here.clock.advance(500)
        await eventually(lambda: store.waiting.delivered_count == 1)
        store.waiting.progress.persist()
        found = await wire.ask(RequestCode.GET_ALL_DELAY_OFFSET)
        assert found["deliverAt"] == store.waiting.progress.saved_json()
        progress = DelayProgress.from_json(found)
        assert WaitingState.from_json(progress.waiting) == store.waiting.progress.saved
        assert [bytes(record.body) for record in await wire.pull("orders")] == [b"body"]
