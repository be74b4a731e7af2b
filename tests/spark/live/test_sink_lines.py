"""Sending in lines: order, bounds, answers.  The producer is a fake whose answers a test gives."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from flintmq.client.errors import NoPermissionError, SendFailedError
from flintmq.client.messaging.messages import Message, SendResult, SendStatus
from flintmq.client.producing.producer import AsyncProducer
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live import live_session
from flintmq.spark.sink.errors import SendError
from flintmq.spark.sink.sender import BATCH_COUNT_MAX, Pace, QueueLines
from flintmq.spark.sink.sink_options import SinkOptions, parse_sink_options
from flintmq.spark.sink.task_time import SinkTime
from tests.kits.spark.sink_kit import queue

DEADLINE_S = 30


class FakeRoutes:
    async def fetch(self, topic: str) -> None:
        """There is nothing new."""


class FakeClient:
    routes = FakeRoutes()


class FakeProducer:
    """Keeps what it is sent; ``answer`` decides how each request ends."""

    client = FakeClient()

    def __init__(self) -> None:
        self.requests: list[tuple[MessageQueue, list[bytes]]] = []
        self.under_way: defaultdict[MessageQueue, int] = defaultdict(int)
        self.answer: Callable[[MessageQueue], Exception | SendStatus] = lambda _: SendStatus.SEND_OK
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, message: Message, *, queue: MessageQueue) -> SendResult:
        return (await self.send_batch([message], queue=queue))[0]

    async def send_batch(self, messages: list[Message], *, queue: MessageQueue) -> list[SendResult]:
        self.under_way[queue] += 1
        assert self.under_way[queue] == 1, "two requests of one line"
        self.requests.append((queue, [message.body for message in messages]))
        await self.gate.wait()
        self.under_way[queue] -= 1
        answer = self.answer(queue)
        if isinstance(answer, Exception):
            raise answer
        return [
            SendResult(
                status=answer, message_id="", offset_message_id="", queue=queue, queue_offset=0
            )
        ]


def options(**more: str) -> SinkOptions:
    return parse_sink_options({"namesrv": "127.0.0.1:9876", **more})


def lines_of(producer: FakeProducer, **more: str) -> QueueLines:
    return QueueLines(cast("AsyncProducer", producer), options(**more))


def message(number: int, **fields: Any) -> Message:
    return Message(topic="orders", **({"body": b"%d" % number} | fields))


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work

    asyncio.run(limited())


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_session, "PAUSE_FIRST_S", 0.0)


def test_messages_of_a_queue_keep_their_order_and_share_requests() -> None:
    async def scenario() -> None:
        producer = FakeProducer()
        lines = lines_of(producer)
        for number in range(1000):
            await lines.put(queue(number % 2), message(number))
        await lines.drain()
        assert lines.acknowledged == 1000
        for line in (0, 1):
            sent = [
                int(body) for to, part in producer.requests if to == queue(line) for body in part
            ]
            assert sent == list(range(line, 1000, 2))
        assert max(len(part) for _, part in producer.requests) == BATCH_COUNT_MAX

    run(scenario())


def test_what_is_delayed_or_large_travels_alone() -> None:
    async def scenario() -> None:
        producer = FakeProducer()
        lines = lines_of(producer)
        for number in range(6):
            await lines.put(
                queue(0),
                message(number, delay_level=1) if number == 2 else message(number),
            )
        await lines.put(queue(0), message(6, body=b"x" * 5000))
        await lines.put(queue(0), message(7))
        await lines.drain()
        sizes = [len(part) for _, part in producer.requests]
        assert sizes == [2, 1, 3, 1, 1]

    run(scenario())


def test_no_more_is_under_way_than_allowed() -> None:
    async def scenario() -> None:
        producer = FakeProducer()
        producer.gate.clear()
        lines = lines_of(producer, maxInFlight="3")
        for number in range(3):
            await lines.put(queue(number), message(number))
        fourth = asyncio.create_task(lines.put(queue(0), message(3)))
        await asyncio.sleep(0)
        assert not fourth.done()
        producer.gate.set()
        await fourth
        await lines.drain()
        assert lines.acknowledged == 4

    run(scenario())


def test_bytes_are_bounded_too_but_a_message_beyond_the_bound_gets_through() -> None:
    async def scenario() -> None:
        producer = FakeProducer()
        producer.gate.clear()
        lines = lines_of(producer, maxInFlightBytes="1k")
        await lines.put(queue(0), message(0, body=b"x" * 3000))
        second = asyncio.create_task(lines.put(queue(1), message(1)))
        await asyncio.sleep(0)
        assert not second.done()
        producer.gate.set()
        await second
        await lines.drain()

    run(scenario())


def test_what_is_not_acknowledged_is_sent_to_the_same_queue_again_before_what_follows() -> None:
    async def scenario() -> None:
        producer = FakeProducer()
        failures = iter([SendFailedError("lost"), SendFailedError("lost")])
        producer.answer = lambda _: next(failures, None) or SendStatus.SEND_OK
        lines = lines_of(producer)
        await lines.put(queue(3), message(0))
        await asyncio.sleep(0)
        await lines.put(queue(3), message(1))
        await lines.drain()
        assert producer.requests == [(queue(3), [b"0"])] * 3 + [(queue(3), [b"1"])]

    run(scenario())


@pytest.mark.parametrize(
    ("error", "words", "attempts"),
    [
        (SendFailedError("nobody answers"), "given up after 3 attempts: nobody answers", 3),
        (NoPermissionError("read only"), "read only", 1),
    ],
)
def test_a_message_that_nobody_takes_is_an_error_with_the_cause(
    error: Exception, words: str, attempts: int
) -> None:
    async def scenario() -> None:
        producer = FakeProducer()
        producer.answer = lambda to: error if to == queue(1) else SendStatus.SEND_OK
        lines = lines_of(producer, retries="2")
        await lines.put(queue(0), message(0))
        await lines.drain()
        await lines.put(queue(1), message(1))
        with pytest.raises(SendError, match=words) as caught:
            await lines.drain()
        assert caught.value.acknowledged == 1
        assert str(caught.value).startswith("orders queue 1 of broker-a, 1 messages: ")
        assert len(producer.requests) == 1 + attempts
        with pytest.raises(SendError, match=words):
            await lines.put(queue(0), message(2))
        await lines.close()

    run(scenario())


def test_a_mistake_of_our_own_does_not_leave_anybody_waiting() -> None:
    async def scenario() -> None:
        producer = FakeProducer()
        producer.answer = lambda _: ZeroDivisionError("a mistake")
        lines = lines_of(producer)
        await lines.put(queue(0), message(0))
        with pytest.raises(ZeroDivisionError):
            await lines.drain()

    run(scenario())


@pytest.mark.parametrize(
    "status", [status for status in SendStatus if status is not SendStatus.SEND_OK]
)
def test_less_than_was_promised_counts_only_if_the_user_says_so(status: SendStatus) -> None:
    async def scenario() -> None:
        producer = FakeProducer()
        producer.answer = lambda _: status
        strict = lines_of(producer)
        await strict.put(queue(0), message(0))
        with pytest.raises(SendError, match=status.value):
            await strict.drain()
        lenient = lines_of(producer, acceptStatus=status.value)
        await lenient.put(queue(0), message(0))
        await lenient.drain()
        assert lenient.acknowledged == 1

    run(scenario())


def test_a_pace_is_kept_and_rest_is_not_saved_up() -> None:
    now = 100.0

    async def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def scenario() -> None:
        nonlocal now
        pace = Pace(100, SinkTime(monotonic=lambda: now, sleep=pass_time))
        for _ in range(200):
            await pace.step()
        assert 1.9 <= now - 100 <= 2.0
        now += 60
        began = now
        for _ in range(200):
            await pace.step()
        assert 1.8 <= now - began <= 2.0

    asyncio.run(scenario())
