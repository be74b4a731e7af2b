"""Functions of users that are called in the loop of a client: whatever they raise, it goes on."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pytest

from flintmq import (
    ConsumeFrom,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionState,
)
from flintmq.client.loop_thread import LoopThread
from flintmq.testing import EmbeddedCluster

TOPIC = "orders"
WAIT_S = 20
ENDS = [SystemExit, KeyboardInterrupt, pytest.fail.Exception, GeneratorExit]


class Hook:
    """Raises before the first message and after the second."""

    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].body == b"0":
            raise self._kind

    def after_consume(self, messages: Sequence[ReceivedMessage], outcome: object) -> None:
        if messages[0].body == b"1":
            raise self._kind


def consumes_all(mq: EmbeddedCluster, **keywords: Any) -> None:
    mq.create_topic(TOPIC, queue_count=1)
    got: list[bytes] = []
    is_all = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        if len(got) == 4:
            is_all.set()

    with PushConsumer(
        namesrv=mq.namesrv,
        group="readers",
        subscriptions={TOPIC: "*"},
        handler=handle,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        **keywords,
    ):
        for number in range(4):
            mq.send(TOPIC, b"%d" % number)
        assert is_all.wait(WAIT_S)
    assert mq.lag("readers", TOPIC) == 0


@pytest.mark.parametrize("kind", ENDS)
def test_a_hook_of_a_consumer_changes_nothing_by_what_it_raises(kind: type[BaseException]) -> None:
    """Messages were held for ever, or the loop ended and `close` waited for it."""
    with EmbeddedCluster() as mq:
        consumes_all(mq, hooks=[Hook(kind)])


@pytest.mark.parametrize("kind", ENDS)
def test_a_filter_that_raises_lets_messages_pass(kind: type[BaseException]) -> None:
    def fail(message: ReceivedMessage) -> NoReturn:
        raise kind

    with EmbeddedCluster() as mq:
        consumes_all(mq, filters=[fail])


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_listener_for_queues_is_called_again_after_it_has_raised(
    kind: type[BaseException], *, is_coroutine: bool
) -> None:
    told: list[int] = []
    is_told = threading.Event()

    def listen(topic: str, queues: list[MessageQueue]) -> None:
        told.append(len(queues))
        if len(queues) == 2:
            raise kind
        is_told.set()

    async def wait(topic: str, queues: list[MessageQueue]) -> None:
        listen(topic, queues)

    listener: Callable[[str, list[MessageQueue]], object] = wait if is_coroutine else listen
    with EmbeddedCluster() as mq:
        mq.create_topic(TOPIC, queue_count=1)
        with LitePullConsumer(
            namesrv=mq.namesrv, group="readers", subscriptions={TOPIC: "*"}, route_interval_ms=20
        ) as consumer:
            consumer.watch_queues(TOPIC, listener)
            mq.create_topic(TOPIC, queue_count=2)
            while not told:
                consumer.poll(timeout_ms=5)
            mq.create_topic(TOPIC, queue_count=3)
            assert is_told.wait(WAIT_S)
    assert told == [2, 3]


@pytest.mark.parametrize("kind", ENDS)
def test_a_listener_of_transactions_leaves_the_producer_alone(kind: type[BaseException]) -> None:
    class Listener:
        async def execute(self, message: Message, argument: object) -> TransactionState:
            raise kind

        async def check(self, message: ReceivedMessage) -> TransactionState:
            raise kind

    with (
        EmbeddedCluster() as mq,
        Producer(namesrv=mq.namesrv, transaction_listener=Listener()) as producer,
    ):
        sent = producer.send_in_transaction(Message(topic=TOPIC, body=b"x"))
        assert sent.state is TransactionState.UNKNOWN
        assert producer.send(Message(topic=TOPIC, body=b"y")).ok


def test_the_loop_of_a_blocking_client_goes_on_whatever_is_raised_in_it() -> None:
    """All who waited for it, and `close`, waited for ever."""

    async def answer() -> int:
        return 7

    def leave() -> NoReturn:
        raise SystemExit

    thread = LoopThread()
    thread.call_soon(leave)
    assert thread.run(answer()) == 7
    thread.close()
