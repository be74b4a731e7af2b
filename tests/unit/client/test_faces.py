"""The blocking faces have all that their asynchronous twins have."""

import inspect
import threading
from typing import Any, Final

import pytest

import flintmq
from flintmq import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ConsumeFrom,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    TransactionState,
    UsageError,
)
from flintmq.client import errors
from flintmq.client.assigning.assignment import QueueUser
from flintmq.client.consuming.handlers import StoppableConsumer
from flintmq.client.consuming.running_info import ReportedConsumer
from flintmq.client.instance import ConsumerMember, ProducerMember
from flintmq.client.pulling.queue_pulling import PullOwner
from flintmq.testing import AsyncEmbeddedCluster, AsyncTcpProxy, EmbeddedCluster, TcpProxy

PROTOCOLS: Final = (
    ConsumerMember,
    ProducerMember,
    PullOwner,
    QueueUser,
    ReportedConsumer,
    StoppableConsumer,
)
"""What a client and its rooms ask of producers and consumers: it is not for users."""

OF_THE_LOOP: Final = {
    "client": "a client belongs to the event loop in which it was opened",
    "broker": "so does a broker",
    "slaves": "and so do its slaves",
}
TWINS: Final = [
    (AsyncProducer, Producer),
    (AsyncPushConsumer, PushConsumer),
    (AsyncPullConsumer, PullConsumer),
    (AsyncLitePullConsumer, LitePullConsumer),
    (AsyncEmbeddedCluster, EmbeddedCluster),
    (AsyncTcpProxy, TcpProxy),
]


def _public(kind: type) -> dict[str, Any]:
    """Return the methods and properties of a class that are for users, by name."""
    hidden = {name for protocol in PROTOCOLS for name in vars(protocol)} | OF_THE_LOOP.keys()
    return {
        name: member
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_")
        and name not in hidden
        and (inspect.isfunction(member) or isinstance(member, property))
    }


def _signature(function: Any) -> tuple[list[inspect.Parameter], str]:
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name != "client"]
    # Where one face gives something that has two faces, the other one gives its twin.
    return parameters, str(signature.return_annotation).removeprefix("Async")


@pytest.mark.parametrize(("asynchronous", "blocking"), TWINS)
def test_a_blocking_face_has_every_method_with_the_same_signature(
    asynchronous: type, blocking: type
) -> None:
    wanted, found = _public(asynchronous), _public(blocking)
    assert wanted.keys() - found.keys() == set()
    for name, member in wanted.items():
        if isinstance(member, property):
            assert isinstance(found[name], property), name
            assert _signature(found[name].fget) == _signature(member.fget), name
        else:
            assert _signature(found[name]) == _signature(member), name
    assert _signature(blocking.__init__)[0] == _signature(asynchronous.__init__)[0]  # type: ignore[misc]
    assert hasattr(asynchronous, "__aiter__") == hasattr(blocking, "__iter__")


def test_every_exported_name_is_there() -> None:
    for name in flintmq.__all__:
        assert getattr(flintmq, name) is not None
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.ClientError)
    }
    assert kinds <= set(flintmq.__all__)


class Payments:
    """A listener of plain methods, which use the blocking producer of their transaction."""

    def __init__(self) -> None:
        self.producer: Producer | None = None
        self.threads: set[str] = set()

    def execute(self, message: Message, argument: str) -> TransactionState:
        self.threads.add(threading.current_thread().name)
        assert self.producer is not None
        self.producer.send(Message(topic="journal", body=argument.encode()))
        return TransactionState[argument]

    def check(self, message: ReceivedMessage) -> TransactionState:
        self.threads.add(threading.current_thread().name)
        return TransactionState.COMMIT


def test_transactions_of_a_blocking_producer_may_use_it() -> None:
    payments = Payments()
    with (
        EmbeddedCluster(transactionTimeOut=500, transactionCheckInterval=50) as mq,
        Producer(
            namesrv=mq.namesrv,
            group="bank",
            transaction_listener=payments,
            heartbeat_interval_ms=50,
        ) as producer,
    ):
        payments.producer = producer
        for outcome in ("COMMIT", "ROLLBACK", "UNKNOWN"):
            message = Message(topic="paid", body=outcome.encode())
            result = producer.send_in_transaction(message, outcome)
            assert result.state is TransactionState[outcome]
        assert {one.body for one in mq.wait_for("paid", 2)} == {b"COMMIT", b"UNKNOWN"}
        assert len(mq.messages("journal")) == 3
    assert threading.current_thread().name not in payments.threads


def test_a_blocking_request_is_replied_to_by_a_blocking_handler() -> None:
    with EmbeddedCluster() as mq, Producer(namesrv=mq.namesrv, group="answers") as answers:

        def answer(message: ReceivedMessage) -> None:
            answers.reply(message, message.body.upper())

        with (
            PushConsumer(
                namesrv=mq.namesrv,
                group="answering",
                subscriptions={"questions": "*"},
                handler=answer,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ) as consumer,
            Producer(namesrv=mq.namesrv, group="asking") as asking,
        ):
            message = Message(topic="questions", body=b"louder?")
            assert asking.request(message, timeout_ms=30_000).body == b"LOUDER?"
            consumer.suspend()
            consumer.resume()
            assert isinstance(consumer.assigned, frozenset)


class Careless:
    """A hook that sends through the producer that calls it."""

    def __init__(self) -> None:
        self.producer: Producer | None = None
        self.refused_count = 0

    def before_send(self, message: Message) -> None:
        producer = self.producer
        assert producer is not None
        for call in (lambda: producer.send(message), producer.close):
            with pytest.raises(UsageError, match="would wait for itself"):
                call()
            self.refused_count += 1

    def after_send(
        self, message: Message, result: SendResult | None, error: Exception | None
    ) -> None:
        """Nothing is of interest here."""


def test_a_blocking_call_inside_a_hook_is_refused_and_does_not_wait_for_ever() -> None:
    hook = Careless()
    with EmbeddedCluster() as mq, Producer(namesrv=mq.namesrv, hooks=[hook]) as producer:
        hook.producer = producer
        assert producer.send(Message(topic="orders", body=b"x")).ok
        assert hook.refused_count == 2
        assert len(mq.messages("orders")) == 1


def test_a_message_that_was_pulled_can_be_sent_back() -> None:
    with (
        EmbeddedCluster() as mq,
        PullConsumer(namesrv=mq.namesrv, group="by-hand") as consumer,
    ):
        sent = mq.send("orders", b"again")
        (message,) = consumer.pull(sent.queue, sent.queue_offset, wait_ms=5000).messages
        assert consumer.send_back(message, delay_level=1)
