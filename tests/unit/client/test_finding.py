"""Producers and consumers find messages by id and by key, as those of Java do."""

from collections.abc import Iterator

import pytest

from flintmq import (
    LitePullConsumer,
    MessageNotFoundError,
    Producer,
    PullConsumer,
    PushConsumer,
    TopicNotExistError,
    UsageError,
)
from flintmq.testing import EmbeddedCluster

UNKNOWN = "7F000001" + "0" * 24


@pytest.fixture(scope="module")
def mq() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as mq:
        yield mq


@pytest.fixture
def looked_after() -> None:
    """The cluster of this module outlives its tests."""


def faces(namesrv: str) -> list[Producer | PushConsumer | PullConsumer | LitePullConsumer]:
    return [
        Producer(namesrv=namesrv),
        PushConsumer(
            namesrv=namesrv, group="p", subscriptions={"orders": "*"}, handler=lambda _: None
        ),
        PullConsumer(namesrv=namesrv, group="q"),
        LitePullConsumer(namesrv=namesrv, group="l", subscriptions={"orders": "*"}),
    ]


@pytest.mark.parametrize("number", range(4))
def test_every_face_finds_a_message(mq: EmbeddedCluster, number: int) -> None:
    sent = mq.send("orders", b"found", keys=[f"order-{number}", "all"])
    with faces(mq.namesrv)[number] as face:
        for found in (
            face.view_message(sent.offset_message_id),
            face.view_message(sent.offset_message_id, topic="orders"),
            face.view_message(sent.message_id, topic="orders"),
            *face.query_messages("orders", f"order-{number}"),
            *face.query_messages("orders", "all", count_max=1),
        ):
            assert (found.message_id, found.body) == (sent.message_id, b"found")
        stored_ms = found.store_timestamp
        assert face.query_messages("orders", f"order-{number}", begin_ms=stored_ms + 1) == []
        assert len(face.query_messages("orders", f"order-{number}", end_ms=stored_ms)) == 1


def test_what_is_not_there_is_an_error_that_says_so(mq: EmbeddedCluster) -> None:
    mq.send("orders", b"x")
    with Producer(namesrv=mq.namesrv) as producer:
        for topic in (None, "orders"):
            with pytest.raises(MessageNotFoundError, match=f"no broker has the message {UNKNOWN}"):
                producer.view_message(UNKNOWN, topic=topic)
        with pytest.raises(UsageError):
            producer.view_message("no id")
        with pytest.raises(TopicNotExistError):
            producer.query_messages("nowhere", "k")
        assert producer.query_messages("orders", "nobody has this key") == []


def test_the_namespace_of_a_client_is_that_of_what_it_finds(mq: EmbeddedCluster) -> None:
    sent = mq.send("shop%orders", b"ours", keys=["k"])
    with Producer(namesrv=mq.namesrv, namespace="shop") as producer:
        found = [
            *producer.query_messages("orders", "k"),
            producer.view_message(sent.message_id, topic="orders"),
        ]
    assert [(one.topic, one.message_id) for one in found] == [("orders", sent.message_id)] * 2
