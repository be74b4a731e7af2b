"""The oracle of soak runs finds what is planted, and nothing where all is well."""

import random

import pytest

from soak.oracle import MessageId, Oracle, Place, Queue

TOPIC = "orders"
QUEUE = Queue(TOPIC, 0)
CONSUMERS = ("first", "second")


def oracle() -> Oracle:
    return Oracle({TOPIC: CONSUMERS})


def send(judge: Oracle, number: int, *, offset: int | None = None) -> MessageId:
    """Send a message that is acknowledged, at the offset of its number unless told otherwise."""
    message = MessageId("p", number)
    judge.sending(message, TOPIC)
    judge.acknowledged(message, Place(QUEUE, number if offset is None else offset))
    return message


def deliver(judge: Oracle, *messages: MessageId) -> None:
    for consumer in CONSUMERS:
        for message in messages:
            judge.delivered(consumer, message)


def test_nothing_is_broken_where_everything_arrives() -> None:
    judge = oracle()
    messages = [send(judge, number) for number in range(10)]
    deliver(judge, *messages)
    judge.finish({QUEUE: dict(enumerate(messages))})
    assert not judge.violations
    assert judge.counts["checked at their place"] == 10


def test_a_message_may_arrive_before_its_answer_and_before_its_producer_was_heard() -> None:
    judge = oracle()
    message = MessageId("p", 0)
    judge.delivered("first", message)
    judge.sending(message, TOPIC)
    judge.delivered("second", message)
    judge.acknowledged(message, Place(QUEUE, 0))
    judge.finish({QUEUE: {0: message}})
    assert not judge.violations


def test_an_acknowledged_message_that_one_consumer_misses_is_found() -> None:
    judge = oracle()
    messages = [send(judge, number) for number in range(3)]
    deliver(judge, messages[0], messages[2])
    judge.delivered("first", messages[1])
    judge.finish({QUEUE: dict(enumerate(messages))})
    assert judge.violations == {"lost on the way": 1}
    assert "p:1" in judge.examples["lost on the way"][0]
    assert "second" in judge.examples["lost on the way"][0]


def test_a_message_that_is_gone_from_its_queue_is_found_although_it_was_delivered() -> None:
    judge = oracle()
    messages = [send(judge, number) for number in range(3)]
    deliver(judge, *messages)
    judge.finish({QUEUE: {0: messages[0], 2: messages[2]}})
    assert judge.violations == {"lost from its queue": 1}


def test_a_message_that_was_not_acknowledged_is_owed_to_nobody() -> None:
    judge = oracle()
    message = MessageId("p", 0)
    judge.sending(message, TOPIC)
    judge.failed(message)
    judge.finish({})
    assert not judge.violations
    deliver(judge, message)
    judge.finish({})
    assert not judge.violations


def test_a_message_that_nobody_sent_is_found() -> None:
    judge = oracle()
    judge.delivered("first", MessageId("p", 7))
    judge.finish({})
    assert judge.violations == {"message that nobody sent": 1}


def test_a_place_given_twice_and_an_order_turned_round_are_found() -> None:
    judge = oracle()
    send(judge, 0, offset=5)
    send(judge, 1, offset=5)
    assert judge.violations == {"one place for two messages": 1, "order of a producer": 1}


def test_what_was_sent_before_a_deletion_may_be_gone_and_what_came_after_may_not() -> None:
    judge = Oracle({})
    send(judge, 0)
    under_way = MessageId("p", 2)
    judge.topic_deletion_began(TOPIC)
    send(judge, 1, offset=0)
    judge.sending(under_way, TOPIC)
    judge.topic_deleted(TOPIC)
    judge.acknowledged(under_way, Place(QUEUE, 1))
    judge.finish({})
    assert not judge.violations
    send(judge, 3, offset=0)
    judge.finish({})
    assert judge.violations == {"lost from its queue": 1}


def test_expiry_takes_messages_only_if_it_was_asked_for() -> None:
    judge = oracle()
    deliver(judge, send(judge, 0))
    judge.begins_at(QUEUE, 1)
    assert judge.violations == {"expiry that nobody asked for": 1}
    judge = oracle()
    send(judge, 0)
    judge.expiry_requested()
    judge.begins_at(QUEUE, 1)
    judge.finish({QUEUE: {}})
    assert not judge.violations
    assert judge.counts["expired before it was consumed"] == len(CONSUMERS)


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_planted_anywhere_is_found(seed: int) -> None:
    chosen = random.Random(seed)
    judge = oracle()
    messages = [send(judge, number) for number in range(50)]
    lost = chosen.choice(messages)
    is_lost_from_queue = chosen.random() < 0.5
    deliver(judge, *(one for one in messages if is_lost_from_queue or one != lost))
    kept = {one.number: one for one in messages if not is_lost_from_queue or one != lost}
    judge.finish({QUEUE: kept})
    kind, expected = ("lost from its queue", 1) if is_lost_from_queue else ("lost on the way", 2)
    assert judge.violations == {kind: expected}


async def test_one_can_wait_until_nothing_is_owed() -> None:
    judge = oracle()
    message = send(judge, 0)
    deliver(judge, message)
    await judge.nothing_owed()


@pytest.mark.parametrize("body", ["", "no id", "x:y z"])
def test_a_body_without_an_id_is_refused(body: str) -> None:
    with pytest.raises(ValueError, match=r"no message of a soak run|invalid literal"):
        MessageId.parse(body)
    assert MessageId.parse("queue-1:17 xxxx") == MessageId("queue-1", 17)
