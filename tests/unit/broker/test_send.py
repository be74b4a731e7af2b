from pathlib import Path
from typing import Any

import pytest

from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.format.wire.headers.send import SendMessageRequest
from tests.kits.broker.broker_kit import records, send_header, site


async def test_a_message_is_stored_as_it_came_with_the_cluster_and_without_wait(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        sent = await wire.send(
            "orders",
            b"hello",
            queue_id=2,
            flag=7,
            properties={"KEYS": "k1 k2", "WAIT": "true", "TAGS": "A", "user": "naïve"},
        )
        (record,) = await wire.pull("orders", queue_id=2)
    assert (sent.queue_id, sent.queue_offset) == (2, 0)
    assert sent.msg_id == record.message_id
    assert (sent.region, sent.trace_on) == ("DefaultRegion", True)
    assert (record.body, record.flag, record.topic) == (b"hello", 7, "orders")
    assert record.properties == {
        "KEYS": "k1 k2",
        "TAGS": "A",
        "user": "naïve",
        "CLUSTER": "TestCluster",
    }


async def test_of_a_property_that_stands_twice_the_later_counts(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        header = send_header("orders")
        text = "a\x011\x02a\x012\x02\x02empty\x01\x02WAIT\x01false\x02"
        values = {name: getattr(header, name) for name in header.__dataclass_fields__}
        await wire.call(
            RequestCode.SEND_MESSAGE_V2, type(header)(**(values | {"properties": text}))
        )
        (record,) = await wire.pull("orders")
    assert record.properties == {"a": "2", "CLUSTER": "TestCluster"}


async def test_the_long_field_names_mean_the_same(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        header = send_header("orders", queue_id=1)
        values = {name: getattr(header, name) for name in header.__dataclass_fields__}
        answer = await wire.call(
            RequestCode.SEND_MESSAGE, SendMessageRequest(**values), b"version one"
        )
        (record,) = await wire.pull("orders", queue_id=1)
    assert answer.code == ResponseCode.SUCCESS
    assert record.body == b"version one"


async def test_a_new_topic_has_as_many_queues_as_both_sides_allow(tmp_path: Path) -> None:
    async with site(tmp_path, defaultTopicQueueNums=6) as here:
        wire = await here.client()
        await wire.send("four")
        await wire.send("six", default_topic_queue_nums=100)
        topics = here.broker.context.topics
        four, six = topics.get("four"), topics.get("six")
    assert four is not None
    assert six is not None
    assert (four.read_queue_count, four.write_queue_count, four.perm) == (4, 4, 6)
    assert six.write_queue_count == 6


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"topic": "no such char!"}, ResponseCode.SYSTEM_ERROR, "characters"),
        ({"topic": "t" * 128}, ResponseCode.SYSTEM_ERROR, "longer"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"topic": "SELF_TEST_TOPIC"}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"topic": "new", "default_topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        ({"topic": "known", "queue_id": 4}, ResponseCode.SYSTEM_ERROR, "queueId"),
        ({"topic": "known", "body": b"x" * 2001}, ResponseCode.MESSAGE_ILLEGAL, "2001"),
        (
            {"topic": "known", "properties": {"a": "x" * 40_000}},
            ResponseCode.MESSAGE_ILLEGAL,
            "properties",
        ),
    ],
)
async def test_what_may_not_be_sent_is_refused_with_its_code(
    tmp_path: Path, change: dict[str, Any], code: int, words: str
) -> None:
    async with site(tmp_path, maxMessageSize=2000) as here:
        wire = await here.client()
        await wire.send("known")
        answer = await wire.send_raw(change.pop("topic"), change.pop("body", b"x"), **change)
        assert (await wire.pull_raw("known")).ext_fields["maxOffset"] == "1"
    assert answer.code == code, answer
    assert words in (answer.remark or "")
    # Clients look at these even then.
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


async def test_without_auto_creation_an_unknown_topic_is_refused_and_tbw102_keeps_its_permission(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("known")
        await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"autoCreateTopicEnable=false")
        assert (await wire.send_raw("unknown")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await wire.send_raw("known")).code == ResponseCode.SUCCESS
        await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"autoCreateTopicEnable=true")
        assert (await wire.send_raw("unknown")).code == ResponseCode.SUCCESS


async def test_a_negative_queue_id_is_any_queue_that_can_be_written(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        chosen = {(await wire.send("orders", queue_id=-1)).queue_id for _ in range(60)}
    assert chosen == {0, 1, 2, 3}


@pytest.mark.parametrize("code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_batch_is_known_by_its_flag_alone(tmp_path: Path, code: int) -> None:
    items = [BatchItem(flag=n, body=b"m%d" % n, properties=b"TAGS\x01T%d" % n) for n in range(5)]

    async with site(tmp_path) as here:
        wire = await here.client()
        sent = await wire.send("orders", encode_batch(items), code=code, batch=True)
        found = await wire.pull("orders")
    assert sent.msg_id.split(",") == [record.message_id for record in found]
    assert [record.body for record in found] == [item.body for item in items]
    assert [record.properties["TAGS"] for record in found] == ["T0", "T1", "T2", "T3", "T4"]
    assert {record.properties["CLUSTER"] for record in found} == {"TestCluster"}


async def test_a_batch_to_a_retry_topic_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        body = encode_batch([BatchItem(flag=0, body=b"x", properties=b"")])
        answer = await wire.send_raw("%RETRY%g", body, batch=True)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_retry_too_many_goes_to_the_dead_letters(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.send("%RETRY%g", b"again", reconsume_times=15)
        await wire.send("%RETRY%g", b"dead", reconsume_times=16)
        await wire.send("%RETRY%g", b"dead too", reconsume_times=3, max_reconsume_times=3)
        again = await wire.pull("%RETRY%g")
        dead = await wire.pull("%DLQ%g")
    assert [record.body for record in again] == [b"again"]
    assert [record.body for record in dead] == [b"dead", b"dead too"]


async def test_a_retry_for_a_group_that_may_not_be_made_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, autoCreateSubscriptionGroup="false") as here:
        wire = await here.client()
        answer = await wire.send_raw("%RETRY%g")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_nothing_is_accepted_before_the_time_that_was_set(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        until = here.clock.now_ms() + 1000
        body = f"startAcceptSendRequestTimeStamp={until}".encode()
        await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, body)
        assert (await wire.send_raw("orders")).code == ResponseCode.SYSTEM_ERROR
        here.clock.advance(1000)
        assert (await wire.send_raw("orders")).code == ResponseCode.SUCCESS


async def test_multi_tag_topics_mark_their_messages(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        await wire.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            CreateTopicRequest.decode(
                {
                    "topic": "multi",
                    "readQueueNums": "1",
                    "writeQueueNums": "1",
                    "perm": "6",
                    "topicFilterType": "MULTI_TAG",
                }
            ),
        )
        await wire.send("multi", properties={"TAGS": "a || b"})
        answer = await wire.pull_raw("multi")
    assert records(answer.body)[0].sys_flag & 2


async def test_with_synchronous_flush_an_answer_waits_for_the_disk(tmp_path: Path) -> None:
    async with site(tmp_path, flushDiskType="SYNC_FLUSH") as here:
        wire = await here.client()
        sent = await wire.send("orders", b"durable")
        store = here.broker.context.store
        assert store.log.files.flushed_where > 0
        (record,) = await wire.pull("orders")
    assert (record.body, record.message_id) == (b"durable", sent.msg_id)


async def test_the_fast_channel_serves_the_same(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        answer = await wire.call(
            RequestCode.SEND_MESSAGE_V2, send_header("orders"), b"x", port=here.broker.port - 2
        )
        assert answer.code == ResponseCode.SUCCESS
        assert len(await wire.pull("orders")) == 1


async def test_only_what_may_be_changed_is_changed(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        wire = await here.client()
        for body in (
            b"storePathRootDir=/tmp/elsewhere",
            b"traceOn=false\nbrokerName=other",
            b"traceOn=perhaps",
            b"regionId=a\\nb",
        ):
            answer = await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, body)
            assert answer.code == ResponseCode.NO_PERMISSION, body
        assert (await wire.send("orders")).trace_on is True
        answer = await wire.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"traceOn=false")
        assert answer.code == ResponseCode.SUCCESS
        assert (await wire.send("orders")).trace_on is False


async def test_while_the_disk_is_slow_a_broker_says_which_limit_was_hit(tmp_path: Path) -> None:
    async with site(tmp_path, flushDiskType="SYNC_FLUSH", sendThreadPoolQueueCapacity=2) as here:
        wire = await here.client()
        await wire.send("orders")
        puts = here.broker.context.puts
        puts.waiting_count += 2  # As if two messages could not be flushed.
        busy = await wire.send_raw("orders")
        puts.waiting_count -= 2
        assert (await wire.send_raw("orders")).code == ResponseCode.SUCCESS
    assert busy.code == ResponseCode.SYSTEM_BUSY
    assert (busy.remark or "").startswith("[OVERLOAD]")
    assert "sendThreadPoolQueueCapacity" in (busy.remark or "")
