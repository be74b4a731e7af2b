import asyncio
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from flintmq import (
    AsyncProducer,
    AsyncPushConsumer,
    ClientError,
    Message,
    MessageQueue,
    NoRouteError,
    Producer,
    ReceivedMessage,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
    SendStatus,
)
from flintmq.client.errors import UsageError
from flintmq.client.instance import ClientInstance
from flintmq.client.messaging.transaction_listener import TransactionState
from flintmq.client.options import ClientOptions
from flintmq.format.compression import CompressionType
from flintmq.format.wire.codes import ResponseCode
from flintmq.remoting import bind
from flintmq.testing import AsyncEmbeddedCluster, EmbeddedCluster


async def test_a_message_arrives_as_it_was_sent() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        result = await producer.send(
            Message(
                topic="orders",
                body=b"hello",
                tag="A",
                keys=["k1", "k2"],
                properties={"colour": "grün"},
                flag=7,
            )
        )
        (message,) = mq.messages("orders")
    assert result.ok
    assert (message.body, message.tag, message.keys, message.flag) == (
        b"hello",
        "A",
        ("k1", "k2"),
        7,
    )
    assert message.properties["colour"] == "grün"
    assert message.message_id == result.message_id
    assert message.offset_message_id == result.offset_message_id


async def test_queues_take_turns() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        message = Message(topic="orders", body=b"x")
        queues = [(await producer.send(message)).queue.queue_id for _ in range(8)]
    assert sorted(queues) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_sharding_key_keeps_to_one_queue_and_a_queue_can_be_named() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        message = Message(topic="orders", body=b"x", sharding_key="order-1001")
        chosen = {(await producer.send(message)).queue for _ in range(5)}
        named = MessageQueue("orders", "broker-a", 2)
        result = await producer.send(Message(topic="orders", body=b"y"), queue=named)
    # 708180863, the hash in Java, leaves 3 when divided by 4.
    assert chosen == {MessageQueue("orders", "broker-a", 3)}
    assert result.queue == named


async def test_a_function_chooses_the_queue_for_every_way_to_send() -> None:
    asked: list[bytes] = []

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        asked.append(message.body)
        return queues[int(message.body)]

    messages = [Message(topic="orders", body=b"%d" % number) for number in (2, 0, 2)]
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        results = [await producer.send(message, queue=select) for message in messages]
        batches = await producer.send_batch(messages, queue=select)
        await producer.send_one_way(messages[0], queue=select)
        with pytest.raises(RequestTimeoutError):
            await producer.request(messages[0], queue=select, timeout_ms=500)
        assert len(await producer.queues("orders")) == 4
    assert [result.queue.queue_id for result in results] == [2, 0, 2]
    assert [(batch.queue.queue_id, batch.queue_offset) for batch in batches] == [(2, 2), (0, 1)]
    assert asked == [b"2", b"0", b"2"] * 2 + [b"2", b"2"]


async def test_a_function_that_chooses_no_queue_of_the_topic_is_an_error() -> None:
    elsewhere = MessageQueue("orders", "broker-z", 0)
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        with pytest.raises(UsageError, match="none of its queues"):
            await producer.send(Message(topic="orders", body=b"x"), queue=lambda *_: elsewhere)


class _Commits:
    def execute(self, message: Message, argument: object) -> TransactionState:
        return TransactionState.COMMIT

    def check(self, message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT


async def test_every_way_to_send_goes_by_the_sharding_key() -> None:
    """Batches, transactions and requests went to any queue."""

    key = "order-1001"
    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv, transaction_listener=_Commits()) as producer,
    ):
        for number in range(3):
            message = Message(topic="orders", body=b"%d" % number, sharding_key=key)
            await producer.send_one_way(message)
            await producer.send_in_transaction(message)
            await producer.send_batch([message, message])
            with pytest.raises(RequestTimeoutError):
                await producer.request(message, timeout_ms=50)
        stored = await mq.wait_for("orders", 15)
    assert {message.queue.queue_id for message in stored} == {3}


async def test_a_batch_with_several_keys_is_cut_by_their_queues() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        messages = [
            Message(topic="orders", body=b"%03d" % number, sharding_key=f"order-{number % 7}")
            for number in range(70)
        ]
        alone = [(await producer.send(message)).queue for message in messages[:7]]
        results = await producer.send_batch(messages)
        named = await producer.send_batch(messages, queue=alone[0])
        without = await producer.send_batch([Message(topic="orders", body=b"x")] * 3)
        stored = await mq.wait_for("orders", 7 + 70 + 70 + 3)
    assert {result.queue for result in results} == set(alone)
    assert len(results) == len(set(alone))
    assert [result.queue for result in named] == [alone[0]]
    assert len(without) == 1
    for index, queue in enumerate(alone):
        bodies = [b"%03d" % number for number in range(index, 70, 7)]
        own = sorted(
            (one for one in stored if one.queue == queue), key=lambda one: one.queue_offset
        )
        # One sent alone, then the batch in its order; the named queue has all once more.
        assert [one.body for one in own if one.body in bodies][1:11] == bodies


@pytest.mark.parametrize("kind", CompressionType)
async def test_large_bodies_are_compressed_on_the_way(kind: CompressionType) -> None:
    body = b"0123456789" * 1000

    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv, compression=kind) as producer,
    ):
        await producer.send(Message(topic="orders", body=body))
        await producer.send(Message(topic="orders", body=body[:4095]))
        sizes = sorted(message.store_size for message in mq.messages("orders"))
        bodies = sorted(len(message.body) for message in mq.messages("orders"))
    assert bodies == [4095, 10_000]
    assert sizes[0] < 1000 < sizes[1]


async def test_batches_are_cut_by_size_and_every_message_has_its_own_id() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        messages = [Message(topic="orders", body=b"%03d" % n * 50) for n in range(100)]
        results = await producer.send_batch(messages, batch_size=5000)
        found = mq.messages("orders")
        assert await producer.send_batch([]) == []
    assert len(results) > 3
    assert sorted(one.body for one in found) == [one.body for one in messages]
    ids = [one for result in results for one in result.message_id.split(",")]
    assert len(set(ids)) == 100
    assert {one.message_id for one in found} == set(ids)


async def test_a_one_way_message_arrives_too() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        await producer.send_one_way(Message(topic="orders", body=b"gone"))
        assert [one.body for one in await mq.wait_for("orders", 1)] == [b"gone"]


async def test_what_makes_no_sense_is_refused_before_anything_is_sent() -> None:
    cases: list[dict[str, Any]] = [
        {"topic": "", "body": b"x"},
        {"topic": "a b", "body": b"x"},
        {"topic": "t", "body": b""},
        {"topic": "t", "body": b"x", "properties": {"UNIQ_KEY": "mine"}},
        {"topic": "t", "body": b"x", "properties": {" ": "v"}},
        {"topic": "t", "body": b"x", "delay_level": -1},
    ]
    for wrong in cases:
        with pytest.raises(UsageError):
            Message(**wrong)
    with pytest.raises(UsageError):
        AsyncProducer(group="no good")
    with pytest.raises(UsageError):
        AsyncProducer(namesrv="nonsense")

    producer = AsyncProducer(namesrv="127.0.0.1:1")
    with pytest.raises(UsageError, match="not open"):
        await producer.send(Message(topic="t", body=b"x"))


async def test_the_causes_of_no_route_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    message = Message(topic="orders", body=b"x")

    async def cause(**options: Any) -> str:
        async with AsyncProducer(**options) as producer:
            with pytest.raises(ClientError) as caught:
                await producer.send(message)
        return str(caught.value)

    assert "NAMESRV_ADDR" in await cause()
    assert "127.0.0.1:1" in await cause(namesrv="127.0.0.1:1")
    async with AsyncEmbeddedCluster(autoCreateTopicEnable="false") as mq:
        assert "autoCreateTopicEnable" in await cause(namesrv=mq.namesrv)
        topics = mq.broker.context.topics
        topics.ensure("orders-1", 1)
        await _routed(mq, "orders-1")
        assert "misspelt" in await cause(namesrv=mq.namesrv)
        topics.ensure("orders", 4, perm=4)
        await _routed(mq, "orders")
        assert "may not be written" in await cause(namesrv=mq.namesrv)
        topics.delete("orders")
        topics.ensure("orders", 0)
        await _routed(mq, "orders", write_queue_count=0)
        assert "writeQueueNums" in await cause(namesrv=mq.namesrv)


async def _routed(mq: AsyncEmbeddedCluster, topic: str, write_queue_count: int = -1) -> None:
    """Wait until the name server tells of a topic as it is now."""
    async with ClientInstance(ClientOptions(namesrv=mq.namesrv)) as client:
        while True:
            try:
                route = await client.routes.fetch(topic)
            except ResponseError:
                await asyncio.sleep(0.001)
                continue
            if write_queue_count in (-1, route.queues[0].write_queue_count):
                return
            await asyncio.sleep(0.001)


async def test_a_refused_message_is_an_error_with_the_code_and_the_reason() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        await producer.send(Message(topic="orders", body=b"x"))
        with pytest.raises(ResponseError) as caught:
            await producer.send(Message(topic="orders", body=random.randbytes(3 << 20)))
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
        with mq.refusing_sends("for a test"), pytest.raises(SendFailedError) as failed:
            await producer.send(Message(topic="orders", body=b"x"))
        assert "for a test" in str(failed.value)
        assert (await producer.send(Message(topic="orders", body=b"x"))).ok


async def test_a_dropped_connection_costs_nothing_but_a_retry() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        for number in range(20):
            if number % 5 == 4:
                assert mq.drop_connections() > 0
            result = await producer.send(Message(topic="orders", body=b"%d" % number))
            assert result.status is SendStatus.SEND_OK
        bodies = {one.body for one in mq.messages("orders")}
    assert bodies == {b"%d" % number for number in range(20)}


class Ledger:
    """A listener that does as its messages say."""

    def __init__(self) -> None:
        self.checked: list[bytes] = []

    def execute(self, message: Message, argument: Any) -> TransactionState:
        return TransactionState[argument]

    async def check(self, message: Any) -> TransactionState:
        self.checked.append(message.body)
        return TransactionState.COMMIT


async def test_transactions_in_all_three_outcomes() -> None:
    ledger = Ledger()
    async with (
        AsyncEmbeddedCluster(transactionTimeOut=500, transactionCheckInterval=50) as mq,
        AsyncProducer(namesrv=mq.namesrv, group="bank", transaction_listener=ledger) as producer,
    ):
        await producer.send(Message(topic="other", body=b"route"))
        await producer.client.heartbeat()
        for outcome in ("COMMIT", "ROLLBACK", "UNKNOWN"):
            result = await producer.send_in_transaction(
                Message(topic="orders", body=outcome.encode()), outcome
            )
            assert result.state is TransactionState[outcome]
        found = await mq.wait_for("orders", 2)
        assert sorted(one.body for one in found) == [b"COMMIT", b"UNKNOWN"]
    assert b"ROLLBACK" not in ledger.checked
    assert b"UNKNOWN" in ledger.checked


async def test_a_request_gets_the_reply_of_who_answers_it() -> None:
    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv, group="askers") as asker,
        AsyncProducer(namesrv=mq.namesrv, group="answerers") as answerer,
    ):

        async def answer() -> None:
            (asked,) = await mq.wait_for("questions", 1)
            await answerer.reply(asked, b"42")

        task = asyncio.create_task(answer())
        reply = await asker.request(Message(topic="questions", body=b"6 x 7?"))
        await task
        assert reply.body == b"42"
        with pytest.raises(ClientError, match="nobody has replied"):
            await asker.request(Message(topic="questions", body=b"?"), timeout_ms=100)


async def test_names_in_a_namespace_are_kept_apart() -> None:
    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv, namespace="NS") as producer,
    ):
        await producer.send(Message(topic="orders", body=b"x"))
        assert len(mq.messages("NS%orders")) == 1
        assert mq.messages("orders") == []


def test_the_blocking_producer_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    with EmbeddedCluster() as mq:
        with Producer(namesrv=mq.namesrv) as producer:
            senders = [
                threading.Thread(
                    target=lambda: [
                        producer.send(Message(topic="orders", body=b"x")) for _ in range(20)
                    ]
                )
                for _ in range(4)
            ]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            assert len(mq.wait_for("orders", 80)) == 80
            assert len(producer.queues("orders")) == 4
        with pytest.raises(UsageError):
            producer.send(Message(topic="orders", body=b"x"))
    assert set(threading.enumerate()) == before


def test_a_blocking_producer_that_cannot_connect_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    with Producer(namesrv="127.0.0.1:1") as producer, pytest.raises(ClientError):
        producer.send(Message(topic="orders", body=b"x"))
    assert set(threading.enumerate()) == before


def test_no_route_is_one_of_the_errors_a_user_can_catch() -> None:
    error = NoRouteError("t", "cause", "step")
    assert (error.topic, error.cause, error.next_step) == ("t", "cause", "step")
    assert error.retriable


class Watch:
    """A hook that notes what it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes, bool]] = []

    def before_send(self, message: Message) -> None:
        if message.body == b"forbidden":
            raise UsageError("not this one")
        self.seen.append(("before", message.body, True))

    def after_send(self, message: Message, result: Any, error: Exception | None) -> None:
        assert (result is None) != (error is None)
        self.seen.append(("after", message.body, result is not None))


async def test_hooks_see_every_message_and_may_stop_it() -> None:
    watch = Watch()
    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv, hooks=[watch]) as producer,
    ):
        await producer.send(Message(topic="orders", body=b"good"))
        with pytest.raises(UsageError, match="not this one"):
            await producer.send(Message(topic="orders", body=b"forbidden"))
        with mq.refusing_sends(), pytest.raises(SendFailedError):
            await producer.send(Message(topic="orders", body=b"refused"))
        assert [one.body for one in mq.messages("orders")] == [b"good"]
    assert watch.seen == [
        ("before", b"good", True),
        ("after", b"good", True),
        ("before", b"refused", True),
        ("after", b"refused", False),
    ]


async def test_the_trace_tells_of_every_send_and_is_found_by_its_keys() -> None:
    async with AsyncEmbeddedCluster() as mq:
        async with AsyncProducer(namesrv=mq.namesrv, group="traced", trace=True) as producer:
            first = await producer.send(Message(topic="orders", body=b"12345", keys=["k"]))
            await producer.send(Message(topic="orders", body=b"x", tag="T", delay_level=1))
        (trace,) = mq.messages("RMQ_SYS_TRACE_TOPIC")
    lines = [line.split("\x01") for line in trace.body.decode().split("\x02") if line]
    assert [line[0] for line in lines] == ["Pub", "Pub"]
    assert lines[0][3:8] == ["traced", "orders", first.message_id, "null", "k"]
    assert (lines[0][9], lines[0][11], lines[1][11]) == ("5", "0", "3")
    assert lines[0][12:] == [first.offset_message_id, "true"]
    assert {first.message_id, "k"} <= set(trace.keys)


async def test_the_trace_tells_of_each_message_of_a_batch() -> None:
    async with AsyncEmbeddedCluster() as mq:
        async with AsyncProducer(namesrv=mq.namesrv, trace=True) as producer:
            batch = [Message(topic="orders", body=b"%d" % n, keys=[f"k{n}"]) for n in range(5)]
            results = await producer.send_batch(batch, batch_size=300)
        stored = {message.message_id: message for message in mq.messages("orders")}
        lines = _trace_lines(mq)
    assert len(results) > 1
    assert [line[7] for line in lines] == ["k0", "k1", "k2", "k3", "k4"]
    assert {line[5] for line in lines} == stored.keys()
    for line in lines:
        assert line[12:] == [stored[line[5]].offset_message_id, "true"]


class _Bank:
    def execute(self, message: Message, argument: Any) -> TransactionState:
        return TransactionState(argument)

    def check(self, message: ReceivedMessage) -> TransactionState:
        return TransactionState.ROLLBACK


async def test_the_trace_tells_how_transactions_ended_and_who_said_so() -> None:
    async with AsyncEmbeddedCluster(
        manual_clock=True, transactionTimeOut=1000, transactionCheckInterval=1000
    ) as mq:
        async with AsyncProducer(
            namesrv=mq.namesrv, group="bank", transaction_listener=_Bank(), trace=True
        ) as producer:
            ids = []
            await mq.send("money", b"makes the topic")
            for state in (TransactionState.COMMIT, TransactionState.UNKNOWN):
                message = Message(topic="money", body=b"x", keys=["k"])
                result = await producer.send_in_transaction(message, state)
                ids.append(result.sent.message_id)
            await producer.client.heartbeat()
            while len(_ends(mq)) < 3:
                mq.advance(500)
                await asyncio.sleep(0.01)
        ends = _ends(mq)
    assert [(line[5], *line[9:10], *line[11:]) for line in ends[:3]] == [
        (ids[0], "2", "COMMIT_MESSAGE", "false"),
        (ids[1], "2", "UNKNOW", "false"),
        (ids[1], "2", "ROLLBACK_MESSAGE", "true"),
    ]
    assert {(line[3], line[4], line[7]) for line in ends} == {("bank", "money", "k")}


def _trace_lines(mq: AsyncEmbeddedCluster) -> list[list[str]]:
    messages = sorted(mq.messages("RMQ_SYS_TRACE_TOPIC"), key=lambda one: one.physical_offset)
    text = "".join(message.body.decode() for message in messages)
    return [line.split("\x01") for line in text.split("\x02") if line]


def _ends(mq: AsyncEmbeddedCluster) -> list[list[str]]:
    return [line for line in _trace_lines(mq) if line[0] == "EndTransaction"]


async def test_a_broker_that_has_come_back_elsewhere_is_found_by_the_next_try() -> None:
    """Sends failed until routes were refreshed, up to half a minute later."""
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        queues = await producer.queues("orders")
        with bind("127.0.0.1", 0) as gone:
            address = f"127.0.0.1:{gone.getsockname()[1]}"
        addresses = producer.client.routes._addresses
        addresses[queues[0].broker_name] = {0: address}
        assert (await producer.send(Message(topic="orders", body=b"x"), timeout_ms=10_000)).ok
        assert addresses[queues[0].broker_name] != {0: address}


async def test_a_reply_is_made_of_bytes() -> None:
    got: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv) as producer,
        AsyncPushConsumer(
            namesrv=mq.namesrv, group="readers", subscriptions={"orders": "*"}, handler=got.put
        ) as consumer,
    ):
        await mq.create_topic("orders")
        await consumer.rebalance()
        asking = asyncio.create_task(
            producer.request(Message(topic="orders", body=b"?"), timeout_ms=10_000)
        )
        asked = await got.get()
        with pytest.raises(UsageError, match="body must be bytes"):
            await producer.reply(asked, "text")  # type: ignore[arg-type]
        await producer.reply(asked, b"bytes")
        assert (await asking).body == b"bytes"
