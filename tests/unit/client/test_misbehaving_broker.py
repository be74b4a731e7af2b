"""Every public call of the client against a broker that misbehaves: it ends, and in time.

A call returns or raises an error of ours within its stated time; so does the close that follows.
Once the broker behaves again, so does the client.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from flintmq import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ConsumeFrom,
    FlintError,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    SendStatus,
    TransactionState,
)
from flintmq.format.host import pack_host
from flintmq.format.properties import encode_properties
from flintmq.format.stored.record import decode_record
from flintmq.format.stored.record_encoding import encode_record
from flintmq.model import property_names
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.misbehaving_broker import BadSite, Fault

pytestmark = pytest.mark.slow

TOPIC: Final = "orders"
QUEUE_COUNT: Final = 4
SHORT_MS: Final = 300
CALL_S: Final = 25
"""No call has more time than twice the five seconds for a message that is given back."""

CLOSE_S: Final = 12
"""No close has more than a second; the rest is for slow machines."""

QUICK: Final[dict[str, Any]] = {
    "request_timeout_ms": SHORT_MS,
    "connect_timeout_ms": SHORT_MS,
    "heartbeat_interval_ms": 200,
    "route_interval_ms": 200,
    "offset_interval_ms": 50,
}


class Listener:
    def execute(self, message: Message, argument: object) -> TransactionState:
        return TransactionState.COMMIT

    def check(self, message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT


@pytest.fixture(scope="module")
def site() -> Iterator[BadSite]:
    with BadSite() as bad:
        bad.ensure(TOPIC, QUEUE_COUNT)
        bad.send(TOPIC, *(b"%d" % number for number in range(4 * QUEUE_COUNT)))
        yield bad


QUEUE: Final = MessageQueue(TOPIC, "broker-a", 0)
MESSAGE: Final = Message(topic=TOPIC, body=b"x")
TIMED: Final = Message(topic=TOPIC, body=b"x", deliver_at_ms=4_000_000_000_000)
SENT: Final = SendResult(
    status=SendStatus.SEND_OK,
    message_id="U1",
    offset_message_id="O1",
    queue=QUEUE,
    queue_offset=0,
)
SHARED: Final[dict[str, Any]] = {
    "subscriptions": {TOPIC: "*"},
    "consume_from": ConsumeFrom.FIRST_OFFSET,
}


def asked() -> ReceivedMessage:
    """Return a message of the topic that somebody waits for the reply to."""
    properties = {
        property_names.CLUSTER: "DefaultCluster",
        property_names.CORRELATION_ID: "1",
        property_names.REPLY_TO_CLIENT: "nobody",
    }
    host = pack_host("127.0.0.1", 1)
    data = encode_record(
        TOPIC.encode(), 0, 0, 0, 0, 0, 1, host, 1, host, 0, 0, b"x", encode_properties(properties)
    )
    return ReceivedMessage(decode_record(data), QUEUE)


Call = Callable[[Any], Any]
PRODUCER_CALLS: Final[dict[str, Call]] = {
    "send": lambda it: it.send(MESSAGE, timeout_ms=SHORT_MS),
    "send to a queue": lambda it: it.send(MESSAGE, queue=QUEUE, timeout_ms=SHORT_MS),
    "send of a new topic": lambda it: it.send(
        Message(topic="new-topic", body=b"x"), timeout_ms=SHORT_MS
    ),
    "send_batch": lambda it: it.send_batch([MESSAGE] * 3, timeout_ms=SHORT_MS),
    "send_one_way": lambda it: it.send_one_way(MESSAGE),
    "send_in_transaction": lambda it: it.send_in_transaction(MESSAGE, timeout_ms=SHORT_MS),
    "request": lambda it: it.request(MESSAGE, timeout_ms=SHORT_MS),
    "reply": lambda it: it.reply(asked(), b"answer"),
    "queues": lambda it: it.queues(TOPIC),
    "cancel": lambda it: it.cancel(TIMED, SENT, timeout_ms=SHORT_MS),
}
PULL_CALLS: Final[dict[str, Call]] = {
    "queues": lambda it: it.queues(TOPIC),
    "pull": lambda it: it.pull(QUEUE, 0, wait_ms=100),
    "begin_offset": lambda it: it.begin_offset(QUEUE),
    "end_offset": lambda it: it.end_offset(QUEUE),
    "offset_at": lambda it: it.offset_at(QUEUE, 0),
    "commit": lambda it: it.commit(QUEUE, 1),
    "committed": lambda it: it.committed(QUEUE),
    "lag": lambda it: it.lag(QUEUE),
    "send_back": lambda it: it.send_back(asked(), delay_level=1),
}
LITE_CALLS: Final[dict[str, Call]] = {
    "poll": lambda it: it.poll(timeout_ms=SHORT_MS),
    "queues": lambda it: it.queues(TOPIC),
    "watch_queues": lambda it: it.watch_queues(TOPIC, print),
    "seek": lambda it: it.seek(QUEUE, 1),
    "seek_to_begin": lambda it: it.seek_to_begin(QUEUE),
    "seek_to_end": lambda it: it.seek_to_end(QUEUE),
    "seek_to_time": lambda it: it.seek_to_time(QUEUE, 0),
    "commit": lambda it: it.commit(),
    "commit of an offset": lambda it: it.commit({QUEUE: 0}),
    "committed": lambda it: it.committed(QUEUE),
    "lag": lambda it: it.lag(),
    "subscribe": lambda it: it.subscribe("another"),
    "assign, which a subscriber may not": lambda it: it.assign([QUEUE]),
}
PUSH_CALLS: Final[dict[str, Call]] = {
    "subscribe": lambda it: it.subscribe("another"),
    "unsubscribe": lambda it: it.unsubscribe(TOPIC),
}


def producer(kind: Any, site: BadSite) -> Any:
    return kind(namesrv=site.namesrv, group="senders", transaction_listener=Listener(), **QUICK)


def puller(kind: Any, site: BadSite) -> Any:
    return kind(namesrv=site.namesrv, group="pullers", **QUICK)


def lite(kind: Any, site: BadSite) -> Any:
    return kind(namesrv=site.namesrv, group="lite", **SHARED, **QUICK)


async def ignore(message: ReceivedMessage) -> None:
    """Handle a message."""


def pushed(kind: Any, site: BadSite) -> Any:
    return kind(
        namesrv=site.namesrv,
        group="pushed",
        handler=ignore,
        stop_timeout_ms=1000,
        orderly=True,
        **SHARED,
        **QUICK,
    )


USERS: Final = {
    "producer": (producer, AsyncProducer, Producer, PRODUCER_CALLS),
    "pull consumer": (puller, AsyncPullConsumer, PullConsumer, PULL_CALLS),
    "lite pull consumer": (lite, AsyncLitePullConsumer, LitePullConsumer, LITE_CALLS),
    "push consumer": (pushed, AsyncPushConsumer, PushConsumer, PUSH_CALLS),
}


ASK_NOBODY: Final = {
    "start",
    "close",
    "wait",
    "run",
    "suspend",
    "resume",
    "pause",
    "position",
    "assigned",
}
"""What is tested by itself, or needs no answer."""


@pytest.mark.parametrize("user", USERS)
def test_every_call_of_a_user_is_tried(user: str) -> None:
    _, _, face, calls = USERS[user]
    tried = {name.replace(",", " ").split()[0] for name in calls}
    public = {name for name in vars(face) if not name.startswith("_")}
    assert public - ASK_NOBODY == tried


async def ends(name: str, work: Awaitable[object], limit_s: float) -> None:
    """Wait for a call; it has to end in time, with a result or an error of ours."""
    try:
        async with asyncio.timeout(limit_s):
            await work
    except TimeoutError:
        pytest.fail(f"{name} has not ended after {limit_s} s")
    except FlintError:
        pass


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
async def test_every_call_ends_in_time(site: BadSite, fault: Fault, user: str) -> None:
    make, kind, _, calls = USERS[user]
    one = make(kind, site)
    await one.start()
    try:
        with site.misbehaving(fault):
            await asyncio.gather(*(ends(name, call(one), CALL_S) for name, call in calls.items()))
            await ends("close", one.close(), CLOSE_S)
    finally:
        await one.close()


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
@pytest.mark.parametrize("where", ["broker", "name server"])
async def test_a_start_ends_in_time(site: BadSite, fault: Fault, user: str, where: str) -> None:
    make, kind, _, calls = USERS[user]
    one = make(kind, site)
    with site.misbehaving(fault, namesrv=where == "name server"):
        await ends("start", one.start(), CALL_S)
        for name, call in list(calls.items())[:1]:
            await ends(name, _awaited(call, one), CALL_S)
        await ends("close", one.close(), CLOSE_S)


async def _awaited(call: Call, one: Any) -> None:
    await call(one)


SPOILT: Final = [Fault.SILENT, Fault.HALF, Fault.RESET, Fault.NO_FIELDS, Fault.DEAF]


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("fault", SPOILT, ids=lambda fault: fault.name)
def test_every_call_of_a_blocking_face_ends_in_time(site: BadSite, fault: Fault, user: str) -> None:
    make, _, kind, calls = USERS[user]
    one = make(kind, site).start()
    problems: list[str] = []

    def run(name: str, call: Call, limit_s: float) -> None:
        began = time.monotonic()
        try:
            call(one)
        except FlintError:
            pass
        except BaseException as error:
            problems.append(f"{name} has raised {error!r}")
        if time.monotonic() - began > limit_s:
            problems.append(f"{name} has not ended after {limit_s} s")

    try:
        with site.misbehaving(fault), ThreadPoolExecutor(len(calls) or 1) as pool:
            for name, call in calls.items():
                pool.submit(run, name, call, CALL_S)
            pool.shutdown()
            run("close", lambda it: it.close(), CLOSE_S)
    finally:
        one.close()
    assert problems == []


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
async def test_once_the_broker_behaves_again_so_does_the_client(
    site: BadSite, fault: Fault
) -> None:
    topic = f"heal-{fault.name}"
    site.ensure(topic, QUEUE_COUNT)
    handled: set[bytes] = set()

    async def handle(message: ReceivedMessage) -> None:
        handled.add(message.body)

    async with (
        AsyncProducer(namesrv=site.namesrv, group="healing", **QUICK) as sending,
        AsyncPushConsumer(
            namesrv=site.namesrv,
            group="healing",
            subscriptions={topic: "*"},
            handler=handle,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            stop_timeout_ms=1000,
            **QUICK,
        ),
    ):
        await sending.send(Message(topic=topic, body=b"before"))
        await eventually(lambda: b"before" in handled)
        acknowledged = {b"before"}
        with site.misbehaving(fault):
            for number in range(8):
                body = b"%d" % number
                try:
                    await sending.send(Message(topic=topic, body=body), timeout_ms=SHORT_MS)
                    acknowledged.add(body)
                except FlintError:
                    pass
        for _ in range(100):
            try:
                await sending.send(Message(topic=topic, body=b"after"), timeout_ms=1000)
                break
            except FlintError:
                continue
        acknowledged.add(b"after")
        await eventually(lambda: handled >= acknowledged)
    assert threading.active_count() < 50
