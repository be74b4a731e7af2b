"""Producers name a time of delivery, and take it back; consumers get the message then."""

import pytest

from flintmq import Message, Producer
from flintmq.client.errors import ResponseError, UsageError
from flintmq.client.wall_clock import wall_ms
from flintmq.model.topics import WAITING_TOPIC
from flintmq.testing import EmbeddedCluster

HOUR_MS = 3_600_000


def test_a_message_comes_at_its_time_and_a_cancelled_one_never() -> None:
    with EmbeddedCluster(manual_clock=True) as mq:
        due_ms = wall_ms() + HOUR_MS
        with Producer(namesrv=mq.namesrv) as producer:
            wanted = [
                Message(topic="orders", body=b"at %d" % number, deliver_at_ms=due_ms + number)
                for number in range(20)
            ]
            for message in wanted:
                producer.send(message)
            producer.send(Message(topic="orders", body=b"after", delay_ms=3 * HOUR_MS))
            producer.send(Message(topic="orders", body=b"now"))
            regretted = Message(topic="orders", body=b"never", deliver_at_ms=due_ms)
            sent = producer.send(regretted)
            producer.cancel(regretted, sent)
        assert [one.body for one in mq.messages("orders")] == [b"now"]
        waiting = mq.wait_for(WAITING_TOPIC, len(wanted) + 3)
        assert {one.properties["REAL_TOPIC"] for one in waiting} == {"orders"}
        mq.advance(HOUR_MS + 60_000)
        mq.wait_for("orders", 21)
        mq.advance(2 * HOUR_MS)
        found = mq.wait_for("orders", 22)
        bodies = sorted(one.body for one in found)
    assert bodies == sorted([b"now", b"after", *(message.body for message in wanted)])


def test_it_can_be_too_late_to_cancel() -> None:
    with EmbeddedCluster(manual_clock=True) as mq, Producer(namesrv=mq.namesrv) as producer:
        message = Message(topic="orders", body=b"x", deliver_at_ms=wall_ms() + HOUR_MS)
        sent = producer.send(message)
        mq.advance(2 * HOUR_MS)
        with pytest.raises(ResponseError, match="too late to cancel"):
            producer.cancel(message, sent)
        with pytest.raises(UsageError, match="deliver_at_ms"):
            producer.cancel(Message(topic="orders", body=b"x"), sent)


def test_a_time_too_far_ahead_is_refused_by_the_broker() -> None:
    with EmbeddedCluster(manual_clock=True) as mq, Producer(namesrv=mq.namesrv) as producer:
        message = Message(topic="orders", body=b"x", delay_ms=100 * 365 * 24 * HOUR_MS)
        with pytest.raises(ResponseError, match="timerMaxDelaySec"):
            producer.send(message)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"deliver_at_ms": -1}, "deliver_at_ms must be from 0"),
        ({"delay_ms": "3"}, "delay_ms must be int"),
        ({"delay_level": 2, "delay_ms": 3}, "one of these: delay_level, delay_ms"),
        ({"properties": {"TIMER_DELAY_SEC": "3"}}, "not for users"),
    ],
)
def test_a_message_that_cannot_be_held_back_so_is_refused(
    fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        Message(topic="orders", body=b"x", **fields)  # type: ignore[arg-type]


def test_the_messages_of_a_batch_have_no_time() -> None:
    messages = [Message(topic="orders", body=b"x", delay_ms=5)]
    with (
        EmbeddedCluster() as mq,
        Producer(namesrv=mq.namesrv) as producer,
        pytest.raises(UsageError, match="no delay"),
    ):
        producer.send_batch(messages)
