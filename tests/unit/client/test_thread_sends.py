"""Sends that the calling thread makes by itself keep every promise of those that the loop makes."""

import contextlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from flintmq import (
    BatchFailedError,
    FlintError,
    Message,
    MessageQueue,
    Producer,
    SendFailedError,
    SendResult,
    UsageError,
)
from flintmq.client.messaging.unique_ids import UniqueIds
from flintmq.format.wire.command import Command
from flintmq.remoting import EncodedRequest
from flintmq.remoting.client_connection import ClientConnection
from flintmq.testing import EmbeddedCluster
from tests.kits.client.misbehaving_broker import BadSite, Fault

TOPIC: Final = "orders"
QUEUE_COUNT: Final = 4
SHORT_MS: Final = 200
WAIT_S: Final = 20
MESSAGE: Final = Message(topic=TOPIC, body=b"x")


class Watched:
    """Counts requests that threads have sent by themselves, and calls back after each."""

    def __init__(self) -> None:
        self.begun_count = self.count = 0
        self.is_allowed = True
        self.after: Callable[[], object] = lambda: None


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    found, exchange = Watched(), ClientConnection.exchange_in_thread

    def counted(
        connection: ClientConnection, request: EncodedRequest, *, timeout_ms: int
    ) -> Command | None:
        if not found.is_allowed:
            return None
        found.begun_count += 1
        try:
            answer = exchange(connection, request, timeout_ms=timeout_ms)
        except FlintError:
            found.after()
            raise
        if answer is not None:
            found.count += 1
            found.after()
        return answer

    monkeypatch.setattr(ClientConnection, "exchange_in_thread", counted)
    return found


@pytest.fixture
def site() -> Iterator[BadSite]:
    with BadSite() as site:
        site.ensure(TOPIC, QUEUE_COUNT)
        yield site


@pytest.fixture
def producer(site: BadSite, watched: Watched) -> Iterator[Producer]:
    """A producer whose thread may send by itself."""
    with Producer(namesrv=site.namesrv, request_timeout_ms=SHORT_MS) as producer:
        while not watched.count:
            producer.send(MESSAGE)
        yield producer


def connection_of(producer: Producer) -> ClientConnection:
    """Return the connection on which the producer's threads send."""
    assert producer._member is not None
    connections = producer._member.client.remoting._made.values()
    (found,) = (one for one in connections if one._shared is not None)
    return found


def queues_of(results: list[SendResult]) -> Counter[int]:
    return Counter(result.queue.queue_id for result in results)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_queues_take_turns_whoever_sends(
    producer: Producer, watched: Watched, *, is_allowed: bool
) -> None:
    """If each attempt that a thread leaves to the loop took a turn, some queues would get none."""
    watched.is_allowed, before = is_allowed, watched.count
    results = [producer.send(MESSAGE) for _ in range(2 * QUEUE_COUNT)]
    assert queues_of(results) == Counter(dict.fromkeys(range(QUEUE_COUNT), 2))
    assert watched.count - before == (len(results) if is_allowed else 0)


def test_a_queue_that_is_given_is_the_one(producer: Producer, watched: Watched) -> None:
    queue, before = MessageQueue(TOPIC, "broker-a", 2), watched.count
    sent = [producer.send(MESSAGE, queue=queue) for _ in range(3)]
    sent += producer.send_batch([MESSAGE, MESSAGE], queue=queue)
    assert queues_of(sent) == Counter({2: 4})
    assert watched.count == before + 4


def test_batches_are_cut_and_their_results_come_in_order(
    producer: Producer, watched: Watched
) -> None:
    before = watched.count
    messages = [Message(topic=TOPIC, body=b"%d" % number * 400) for number in range(6)]
    results = producer.send_batch(messages, batch_size=1100)
    assert [len(result.message_id.split(",")) for result in results] == [2, 2, 2]
    assert watched.count == before + 3
    assert producer.send_batch([]) == []


def test_what_a_sharding_key_or_a_function_chooses_is_left_to_the_loop(
    producer: Producer, watched: Watched
) -> None:
    before = watched.count
    keyed = Message(topic=TOPIC, body=b"x", sharding_key="a")
    assert len(queues_of([producer.send(keyed) for _ in range(3)])) == 1
    chosen = producer.send(MESSAGE, queue=lambda queues, _: queues[3])
    assert chosen.queue.queue_id == 3
    assert watched.count == before


@pytest.mark.parametrize(
    "fault",
    # A connection that stays silent is given up only after several answers are missing.
    [pytest.param(fault, marks=pytest.mark.slow if fault is Fault.HALF else ()) for fault in Fault],
)
def test_a_send_ends_in_time_whatever_the_broker_does(
    site: BadSite, producer: Producer, fault: Fault
) -> None:
    with site.misbehaving(fault), contextlib.suppress(FlintError):
        assert producer.send(MESSAGE, timeout_ms=2 * SHORT_MS)
    is_ok = False
    while not is_ok:
        with contextlib.suppress(FlintError):
            is_ok = producer.send(MESSAGE).ok


def test_what_a_thread_could_not_send_is_tried_again_by_the_loop(
    site: BadSite, producer: Producer, watched: Watched
) -> None:
    watched.after = site.site.behave
    before = watched.count
    with site.misbehaving(Fault.REFUSED):
        assert producer.send(MESSAGE).ok
    assert watched.count == before + 1


def test_the_error_names_all_that_was_tried(site: BadSite, producer: Producer) -> None:
    with (
        site.misbehaving(Fault.SILENT),
        pytest.raises(SendFailedError, match="no answer of"),
    ):
        producer.send(MESSAGE, timeout_ms=SHORT_MS)
    with site.misbehaving(Fault.REFUSED), pytest.raises(SendFailedError) as raised:
        producer.send(MESSAGE, timeout_ms=SHORT_MS)
    assert str(raised.value).count("by a test") == 3
    with site.misbehaving(Fault.REFUSED), pytest.raises(FlintError, match="by a test"):
        producer.send(MESSAGE, queue=MessageQueue(TOPIC, "broker-a", 1))


def test_a_batch_that_fails_after_others_says_what_is_stored(
    site: BadSite, producer: Producer, watched: Watched
) -> None:
    messages = [Message(topic=TOPIC, body=b"%d" % number) for number in range(3)]
    watched.after = lambda: setattr(site.site._broker, "fault", Fault.REFUSED)
    with pytest.raises(BatchFailedError) as raised:
        producer.send_batch(messages, batch_size=1, timeout_ms=SHORT_MS)
    site.site.behave()
    failure = raised.value
    assert (failure.stored, failure.failed, failure.unsent) == tuple(
        [message] for message in messages
    )


def test_wrong_use_is_said_before_anything_is_sent(producer: Producer) -> None:
    with pytest.raises(UsageError, match="timeout_ms"):
        producer.send(MESSAGE, timeout_ms=0)
    with pytest.raises(UsageError, match="timeout_ms"):
        producer.send_batch([MESSAGE], timeout_ms=-1)
    with pytest.raises(UsageError, match="bytes"):
        producer.send(Message(topic=TOPIC, body=bytes(5 << 20)))


def test_a_send_out_of_the_thread_of_the_loop_is_refused(
    producer: Producer, watched: Watched
) -> None:
    failures: list[BaseException] = []
    asked, before = threading.Event(), watched.begun_count

    def send() -> None:
        try:
            producer.send(MESSAGE)
        except UsageError as error:
            failures.append(error)
        asked.set()

    assert producer._thread is not None
    producer._thread.call_soon(send)
    assert asked.wait(WAIT_S)
    assert "would wait for itself" in str(failures[0])
    assert watched.begun_count == before, "a request was sent whose answer nobody could read"


# -- threads and signals ---------------------------------------------------------------------


def test_each_of_several_threads_gets_its_own_result(producer: Producer, watched: Watched) -> None:
    def send(number: int) -> tuple[bytes, SendResult]:
        body = b"%d" % number
        return body, producer.send(Message(topic=TOPIC, body=body))

    before = watched.count
    with ThreadPoolExecutor(8) as pool:
        sent = dict(pool.map(send, range(400)))
    assert len({result.message_id for result in sent.values()}) == 400
    assert watched.count > before
    for body, result in list(sent.items())[::40]:
        assert producer.view_message(result.offset_message_id).body == body


def test_a_send_that_waits_ends_when_the_producer_is_closed(
    site: BadSite, producer: Producer
) -> None:
    outcomes: list[FlintError] = []

    def send() -> None:
        try:
            producer.send(MESSAGE, timeout_ms=60_000)
        except FlintError as error:
            outcomes.append(error)

    connection = connection_of(producer)
    with site.misbehaving(Fault.SILENT):
        waiting = threading.Thread(target=send)
        waiting.start()
        while not connection.in_flight_count:
            pass
        producer.close()
        waiting.join(WAIT_S)
    assert len(outcomes) == 1


class Interrupting:
    """Calls a function as a signal handler of Python, again and again while a block runs."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.count = 0
        self._function = function
        self._before: Any = None

    def _handle(self, *_: object) -> None:
        self.count += 1
        self._function()

    def soon(self) -> None:
        """Have the handler called once, wherever the program is by then."""
        signal.setitimer(signal.ITIMER_REAL, 0.0001)

    def __enter__(self) -> "Interrupting":
        self._before = signal.signal(signal.SIGALRM, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def test_an_interrupted_send_leaves_nothing_waiting(site: BadSite, producer: Producer) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    connection, main = connection_of(producer), threading.get_ident()

    def interrupt_what_waits() -> None:
        while not connection.in_flight_count:
            pass
        signal.pthread_kill(main, signal.SIGALRM)

    with site.misbehaving(Fault.SILENT), Interrupting(interrupt):
        thread = threading.Thread(target=interrupt_what_waits)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            producer.send(MESSAGE, timeout_ms=60_000)
        thread.join(WAIT_S)
    assert not connection.in_flight_count
    assert producer.send(MESSAGE).ok


def test_a_signal_handler_may_send_wherever_it_interrupts_a_send(producer: Producer) -> None:
    results: list[SendResult] = []
    with Interrupting(lambda: results.append(producer.send(MESSAGE))) as signals:
        while signals.count < 100:
            signals.soon()
            results.append(producer.send(MESSAGE))
    assert all(result.ok for result in results)
    assert len({result.message_id for result in results}) == len(results)


def test_a_signal_handler_may_close_the_producer_that_it_interrupts() -> None:
    with EmbeddedCluster() as mq:
        mq.create_topic(TOPIC)
        for _ in range(10):
            producer = Producer(namesrv=mq.namesrv).start()
            producer.send(MESSAGE)
            producer.send(MESSAGE)
            with Interrupting(producer.close) as signals, pytest.raises(FlintError):  # noqa: PT012
                signals.soon()
                while True:
                    producer.send(MESSAGE)
            assert signals.count == 1


# -- what threads share ----------------------------------------------------------------------


def test_unique_ids_of_several_threads_are_unique() -> None:
    ids = UniqueIds("127.0.0.1", now_ms=lambda: 1)

    def take(_: int) -> list[str]:
        return [
            one for _ in range(100) for one in (ids.next(), *ids.next_ones(3).listed.split(","))
        ]

    with ThreadPoolExecutor(8) as pool:
        taken = [one for some in pool.map(take, range(100)) for one in some]
    assert len(set(taken)) == len(taken) == 40_000
