"""What a producer does when time is short, others are slow, or it is closed."""

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import AsyncIterator

import pytest

from flintmq import (
    AsyncProducer,
    AsyncPushConsumer,
    BatchFailedError,
    ClientInstance,
    ClientOptions,
    FlintError,
    Message,
    NoNameServerError,
    Producer,
    ReceivedMessage,
    RequestTimeoutError,
    SendFailedError,
    SendResult,
    TransactionState,
    UsageError,
)
from flintmq.client.loop_thread import LoopThread
from flintmq.remoting import bind
from flintmq.store.running_flags import RunningFlag
from flintmq.testing import AsyncEmbeddedCluster, AsyncTcpProxy, EmbeddedCluster
from tests.kits.broker.remoting_kit import eventually

SHORT_MS = 200
GENEROUS_S = 20
MESSAGE = Message(topic="orders", body=b"x")


@contextlib.asynccontextmanager
async def soon() -> AsyncIterator[None]:
    """A block that ends well before the times that have nothing to do with it."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < GENEROUS_S


def slow_options(namesrv: str) -> ClientOptions:
    """Options with which everything that has no shorter time of its own takes a minute."""
    return ClientOptions(
        namesrv=namesrv, request_timeout_ms=60_000, connect_timeout_ms=60_000, offset_interval_ms=50
    )


# -- time ------------------------------------------------------------------------------------


async def test_a_send_keeps_its_time_while_the_name_server_is_silent() -> None:
    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncTcpProxy(mq.namesrv) as proxy,
        AsyncProducer(options=slow_options(proxy.address)) as producer,
    ):
        with proxy.blackhole():
            for call in (
                functools.partial(producer.send, MESSAGE),
                functools.partial(producer.send_batch, [MESSAGE]),
                functools.partial(producer.request, MESSAGE),
            ):
                async with soon():
                    with pytest.raises(NoNameServerError):
                        await call(timeout_ms=SHORT_MS)
            proxy.drop_connections()
        assert (await producer.send(MESSAGE)).ok
        assert len(mq.messages("orders")) == 1


async def test_a_name_server_that_had_no_time_is_not_asked_first_again() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncTcpProxy(mq.namesrv) as proxy:
        servers = f"{proxy.address};{mq.namesrv}"
        with proxy.blackhole():
            async with AsyncProducer(options=slow_options(servers)) as producer:
                with contextlib.suppress(NoNameServerError, SendFailedError):
                    await producer.send(MESSAGE, timeout_ms=SHORT_MS)
                assert (await producer.send(MESSAGE, timeout_ms=30_000)).ok


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_no_time_at_all_is_an_error_and_not_the_default(timeout_ms: int) -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        for call in (
            functools.partial(producer.send, MESSAGE),
            functools.partial(producer.send_batch, [MESSAGE]),
            functools.partial(producer.request, MESSAGE),
        ):
            with pytest.raises(UsageError, match="timeout_ms"):
                await call(timeout_ms=timeout_ms)
        assert mq.messages("orders") == []


async def test_a_thousand_large_sends_at_once_are_all_stored() -> None:
    async with (
        # All in one file: a disk that is busy otherwise may be late with the next one.
        AsyncEmbeddedCluster(mappedFileSizeCommitLog=256 << 20) as mq,
        AsyncProducer(
            namesrv=mq.namesrv, send_timeout_ms=50_000, retries=0, compress_from=1 << 30
        ) as producer,
    ):
        body = bytes(100_000)
        sends = (producer.send(Message(topic="orders", body=body)) for _ in range(1000))
        results = await asyncio.gather(*sends)
        assert all(result.ok for result in results)
        assert len(mq.broker.server.connections) < 10


# -- request and reply -----------------------------------------------------------------------


async def test_a_request_does_not_wait_for_brokers_that_it_is_not_sent_to() -> None:
    async with AsyncEmbeddedCluster() as mq:
        options = slow_options(mq.namesrv)
        await mq.send("orders", b"there is a topic")
        # A broker that stands still: the system takes connections, and nobody answers.
        with bind("127.0.0.1", 0) as paused:
            paused.listen()
            async with AsyncProducer(options=options, group="answers") as answers:

                async def answer(message: ReceivedMessage) -> None:
                    await answers.reply(message, message.body.upper())

                async with (
                    AsyncPushConsumer(
                        namesrv=mq.namesrv,
                        group="answering",
                        subscriptions={"orders": "*"},
                        handler=answer,
                    ),
                    AsyncProducer(options=options, group="questions") as asking,
                ):
                    address = "{}:{}".format(*paused.getsockname())
                    asking.client.routes._addresses["broker-b"] = {0: address}
                    reply = await asking.request(MESSAGE, timeout_ms=30_000)
                    assert reply.body == b"X"
                    del asking.client.routes._addresses["broker-b"]


async def test_a_request_that_nobody_replies_to_ends_in_time() -> None:
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        await producer.send(MESSAGE)
        with pytest.raises(RequestTimeoutError):
            await producer.request(MESSAGE, timeout_ms=SHORT_MS)


# -- batches ---------------------------------------------------------------------------------


async def test_a_batch_that_fails_midway_says_what_is_stored() -> None:
    class Gate:
        """Refuses what comes after the first batches."""

        def __init__(self) -> None:
            self.seen = 0

        def before_send(self, message: Message) -> None:
            self.seen += 1
            if self.seen == 61:
                mq.broker.context.store.flags.set(RunningFlag.NOT_WRITABLE, "a test")

        def after_send(self, message: Message, result: object, error: object) -> None:
            """Look at nothing."""

    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv, hooks=[Gate()]) as producer,
    ):
        messages = [Message(topic="orders", body=b"%03d" % n * 50) for n in range(100)]
        with pytest.raises(BatchFailedError) as caught:
            await producer.send_batch(messages, batch_size=5000)
        error = caught.value
        stored = mq.messages("orders")
        assert sorted(one.body for one in stored) == sorted(
            one.body for one in messages[: error.stored_count]
        )
        assert 0 < error.stored_count < 100
        assert error.failed_count > 0
        assert [*error.stored, *error.failed, *error.unsent] == messages
        ids = [one for result in error.results for one in result.message_id.split(",")]
        assert sorted(ids) == sorted(one.message_id for one in stored)
        assert isinstance(error.__cause__, FlintError)


async def test_a_batch_with_a_message_that_cannot_be_sent_stores_nothing() -> None:
    """Batches before it were stored, and nobody was told."""
    small = [Message(topic="orders", body=b"x" * 600) for _ in range(20)]
    too_large = Message(topic="orders", body=b"x", properties={"a": "y" * 40_000})
    async with AsyncEmbeddedCluster() as mq, AsyncProducer(namesrv=mq.namesrv) as producer:
        with pytest.raises(UsageError, match="properties"):
            await producer.send_batch([*small, too_large], batch_size=5000)
        assert mq.messages("orders") == []


async def test_a_batch_whose_hook_raises_midway_says_what_is_stored() -> None:
    class Refusing:
        seen = 0

        def before_send(self, message: Message) -> None:
            self.seen += 1
            if self.seen == 61:
                raise LookupError("a hook of a test")

        def after_send(self, message: Message, result: object, error: object) -> None:
            """Look at nothing."""

    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv, hooks=[Refusing()]) as producer,
    ):
        messages = [Message(topic="orders", body=b"%03d" % n * 50) for n in range(100)]
        with pytest.raises(BatchFailedError) as caught:
            await producer.send_batch(messages, batch_size=5000)
        assert isinstance(caught.value.__cause__, LookupError)
        assert caught.value.stored_count == len(mq.messages("orders")) > 0


# -- transactions ----------------------------------------------------------------------------


class Listener:
    def execute(self, message: Message, argument: object) -> TransactionState:
        if isinstance(argument, BaseException):
            raise argument
        if isinstance(argument, threading.Event):
            argument.wait(GENEROUS_S)
        return TransactionState.COMMIT

    def check(self, message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT


async def test_a_transaction_does_not_wait_for_a_full_default_executor() -> None:
    release = threading.Event()
    # The broker has another loop, and so an executor of its own.
    with EmbeddedCluster() as mq:
        producer = AsyncProducer(namesrv=mq.namesrv, transaction_listener=Listener())
        await producer.start()
        busy = [asyncio.create_task(asyncio.to_thread(release.wait)) for _ in range(64)]
        try:
            result = await producer.send_in_transaction(MESSAGE)
        finally:
            release.set()
            await asyncio.gather(*busy)
            await producer.close()
        assert result.state is TransactionState.COMMIT


async def test_a_transaction_does_not_wait_for_the_listeners_of_others() -> None:
    release = threading.Event()
    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv, transaction_listener=Listener()) as producer,
    ):
        slow = [
            asyncio.create_task(producer.send_in_transaction(MESSAGE, release)) for _ in range(40)
        ]
        try:
            result = await producer.send_in_transaction(MESSAGE)
            assert not any(task.done() for task in slow)
        finally:
            release.set()
            await asyncio.gather(*slow)
        assert result.state is TransactionState.COMMIT


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(1), StopIteration(), KeyboardInterrupt()]
)
async def test_whatever_a_listener_raises_means_that_nothing_is_known(error: BaseException) -> None:
    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(namesrv=mq.namesrv, transaction_listener=Listener()) as producer,
    ):
        result = await producer.send_in_transaction(MESSAGE, error)
        assert result.state is TransactionState.UNKNOWN
        assert (await producer.send(MESSAGE)).ok


# -- hooks -----------------------------------------------------------------------------------


class BlockingHook:
    """Sends with the blocking producer that it is a hook of."""

    def __init__(self) -> None:
        self.producer: Producer | None = None
        self.errors: list[Exception] = []

    def _send(self) -> None:
        assert self.producer is not None
        try:
            self.producer.send(MESSAGE)
        except UsageError as error:
            self.errors.append(error)
        try:
            self.producer.close()
        except UsageError as error:
            self.errors.append(error)

    def before_send(self, message: Message) -> None:
        self._send()

    def after_send(self, message: Message, result: SendResult | None, error: object) -> None:
        self._send()
        raise RuntimeError("a hook that fails afterwards")


def test_a_blocking_send_inside_a_hook_raises_instead_of_waiting_for_itself() -> None:
    hook = BlockingHook()
    with EmbeddedCluster() as mq, Producer(namesrv=mq.namesrv, hooks=[hook]) as producer:
        hook.producer = producer
        assert producer.send(MESSAGE).ok
        assert len(hook.errors) == 4
        assert len(mq.messages("orders")) == 1


# -- the end ---------------------------------------------------------------------------------


async def test_sends_after_close_raise_and_make_no_connections() -> None:
    async with AsyncEmbeddedCluster() as mq:
        producer = await AsyncProducer(namesrv=mq.namesrv, retries=5).start()
        await producer.send(MESSAGE)
        count = len(mq.broker.server.connections)
        under_way = [asyncio.create_task(producer.send(MESSAGE)) for _ in range(50)]
        await asyncio.sleep(0)
        await producer.close()
        for outcome in await asyncio.gather(*under_way, return_exceptions=True):
            assert isinstance(outcome, SendResult | SendFailedError | UsageError), outcome
        for call in (producer.send(MESSAGE), producer.send_batch([MESSAGE]), producer.queues("t")):
            with pytest.raises(UsageError):
                await call
        await eventually(lambda: len(mq.broker.server.connections) < count)


async def test_a_producer_of_a_shared_client_tries_nothing_again_once_it_is_closed() -> None:
    async with (
        AsyncEmbeddedCluster() as mq,
        ClientInstance(ClientOptions(namesrv=mq.namesrv)) as client,
    ):
        producer = await AsyncProducer(client=client, retries=1000, send_timeout_ms=50_000).start()
        await producer.send(MESSAGE)
        with mq.refusing_sends():
            sending = asyncio.create_task(producer.send(MESSAGE))
            await asyncio.sleep(0)
            await producer.close()
            with pytest.raises(SendFailedError):
                await sending


def test_calls_of_a_blocking_producer_end_when_it_is_closed_meanwhile() -> None:
    with EmbeddedCluster() as mq:
        producer = Producer(namesrv=mq.namesrv).start()
        producer.send(MESSAGE)
        outcomes: list[object] = []

        def send() -> None:
            try:
                while True:
                    producer.send(MESSAGE)
            except FlintError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        producer.close()
        for thread in threads:
            thread.join(GENEROUS_S)
        assert len(outcomes) == 4
        assert not any(isinstance(one, LoopThread) for one in threading.enumerate())
