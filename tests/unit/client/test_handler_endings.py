"""Handlers that end in every way Python knows: what fails, what stops, and that nothing hangs."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from flintmq import (
    AsyncPushConsumer,
    ConsumeFrom,
    ConsumeResult,
    MessageModel,
    PushConsumer,
    ReceivedMessage,
)
from tests.kits.broker.remoting_kit import eventually
from tests.kits.client.consumer_kit import GROUP, TOPIC, Collected, Site, numbers, queue, site

DELAYED = "SCHEDULE_TOPIC_XXXX"
BAD_COUNT = 6
GOOD_COUNT = 6

Threads = frozenset[threading.Thread]


class OddError(BaseException):
    """No Exception: most handlers of errors let it pass."""


def raising(make: Callable[[], BaseException]) -> Callable[[], NoReturn]:
    def end() -> NoReturn:
        raise make()

    return end


def returning(value: object) -> Callable[[], object]:
    return lambda: value


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


FAILURES: dict[str, Callable[[], object]] = {
    "False": returning(False),
    "LATER": returning(ConsumeResult.LATER),
    "something else": returning("done"),
    "Exception": raising(lambda: ValueError("no")),
    "StopIteration": raising(StopIteration),
    "StopAsyncIteration": raising(StopAsyncIteration),
    "RecursionError": raising(RecursionError),
    "TimeoutError": raising(TimeoutError),
    "GeneratorExit": raising(GeneratorExit),
    "CancelledError": raising(asyncio.CancelledError),
    "BaseException": raising(OddError),
    "BaseExceptionGroup": raising(lambda: BaseExceptionGroup("all", [SystemExit(1)])),
    "pytest.fail": lambda: pytest.fail("no"),
    "pytest.skip": lambda: pytest.skip("no"),
}
STOPS: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "SystemExit without a code": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
}


class Handling:
    """A handler that ends messages named ``bad`` in a given way when they come first."""

    def __init__(self, end: Callable[[], object], *, is_coroutine: bool) -> None:
        self._end = end
        self.got: list[bytes] = []
        self.tries: Counter[bytes] = Counter()
        self.function = self._await if is_coroutine else self._call

    def _call(self, message: ReceivedMessage) -> object:
        # Messages of several queues come from several threads.
        self.tries[message.body] += 1
        if int(message.body) < BAD_COUNT and self.tries[message.body] == 1:
            return self._end()
        self.got.append(message.body)
        return None

    async def _await(self, message: ReceivedMessage) -> object:
        result = self._call(message)
        await asyncio.sleep(0)
        return result


Open = Callable[..., Any]


@asynccontextmanager
async def opened(here: Site, handler: Any, *, blocking: bool, **options: Any) -> AsyncIterator[Any]:
    """Open a consumer of either face; it is closed by hand at the end."""
    settings: dict[str, Any] = {
        "group": GROUP,
        "subscriptions": {TOPIC: "*"},
        "consume_from": ConsumeFrom.FIRST_OFFSET,
        "offset_interval_ms": 20,
        "stop_timeout_ms": 20_000,
        "concurrency": 2,
        "suspend_queue_ms": 10,
        "local_retry_ms": 10,
    }
    consumer: AsyncPushConsumer | PushConsumer
    if blocking:
        face = PushConsumer(namesrv=here.namesrv, handler=handler, **(settings | options))
        consumer = await asyncio.to_thread(face.start)
    else:
        consumer = await here.push(handler, **(settings | options)).start()
    try:
        yield consumer
    finally:
        await close(consumer)


async def close(consumer: Any) -> None:
    if isinstance(consumer, PushConsumer):
        # A thread of its own: what close raises would end a loop.
        raised: list[BaseException] = []

        def end() -> None:
            try:
                consumer.close()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=end)
        thread.start()
        await asyncio.to_thread(thread.join)
        for error in raised:
            raise error
    else:
        await consumer.close()


@pytest.fixture
def before() -> Threads:
    """What ran before the test: a process that many tests share may have threads of others."""
    return frozenset(threading.enumerate())


def handler_threads(before: Threads) -> list[str]:
    names = [one.name for one in threading.enumerate() if one not in before]
    return [name for name in names if name.startswith(("flintmq-handler", "flintmq-consumer"))]


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("is_coroutine", [False, True], ids=["plain", "coroutine"])
@pytest.mark.parametrize("way", FAILURES)
async def test_a_failure_brings_the_message_again_and_stops_nothing(
    tmp_path: Path, before: Threads, way: str, *, is_coroutine: bool, orderly: bool, blocking: bool
) -> None:
    handling = Handling(FAILURES[way], is_coroutine=is_coroutine)
    async with site(tmp_path) as here:
        store = here.broker.context.store
        await here.send(BAD_COUNT + GOOD_COUNT)
        async with opened(here, handling.function, blocking=blocking, orderly=orderly):
            await eventually(lambda: sum(here.offsets().values()) == BAD_COUNT + GOOD_COUNT)
        given_back = store.max_offset_in_queue(DELAYED, 2)
    if orderly:
        assert sorted(handling.got) == sorted(numbers(BAD_COUNT + GOOD_COUNT))
    else:
        assert given_back == BAD_COUNT
        assert sorted(handling.got) == sorted(numbers(GOOD_COUNT, start=BAD_COUNT))
    assert handler_threads(before) == []


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_handler_that_cancels_its_own_task_has_failed(
    tmp_path: Path, *, orderly: bool
) -> None:
    handling = Handling(cancel_own_task, is_coroutine=True)
    async with site(tmp_path) as here:
        await here.send(BAD_COUNT + GOOD_COUNT)
        async with opened(here, handling.function, blocking=False, orderly=orderly):
            await eventually(lambda: sum(here.offsets().values()) == BAD_COUNT + GOOD_COUNT)
    assert sorted(handling.got) == sorted(numbers(BAD_COUNT + GOOD_COUNT))


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("is_coroutine", [False, True], ids=["plain", "coroutine"])
@pytest.mark.parametrize("way", STOPS)
async def test_an_exception_that_stops_does_so_as_a_whole_and_is_seen_by_the_user(
    tmp_path: Path, before: Threads, way: str, *, is_coroutine: bool, orderly: bool, blocking: bool
) -> None:
    wanted = STOPS[way]()
    handling = Handling(raising(lambda: wanted), is_coroutine=is_coroutine)
    async with site(tmp_path) as here:
        store, groups = here.broker.context.store, here.broker.context.consumers
        await here.send(BAD_COUNT + GOOD_COUNT)
        try:
            async with opened(here, handling.function, blocking=blocking, orderly=orderly):
                # Nobody has closed it, and still it has left the group and given its locks back.
                await eventually(lambda: groups.get(GROUP) is None and bool(handling.tries))
                if orderly:
                    locked = here.broker.context.locks.lock(GROUP, "other", [queue(0)], 0)
                    assert locked == [queue(0)]
        except type(wanted) as error:
            assert error is wanted  # noqa: PT017 - pytest.raises lets no KeyboardInterrupt through
        else:
            raise AssertionError("the user has not seen the stop")
        assert handler_threads(before) == []
        # What was not handled comes again.
        assert max(handling.tries.values()) == 1
        assert handling.tries.total() - len(handling.got) <= 2
        again = Collected()
        async with here.push(again, group=GROUP):
            here.clock.advance(10_000)
            await eventually(
                lambda: {*again.bodies, *handling.got} == numbers(BAD_COUNT + GOOD_COUNT)
            )
        assert orderly or store.max_offset_in_queue(DELAYED, 2) >= 1


@pytest.mark.parametrize("way", STOPS)
async def test_the_block_of_a_consumer_ends_when_a_handler_stops_it(
    tmp_path: Path, way: str
) -> None:
    wanted = STOPS[way]()
    handling = Handling(raising(lambda: wanted), is_coroutine=True)
    async with site(tmp_path) as here:
        ends: list[str] = []
        try:
            async with here.push(handling.function):
                try:
                    await here.send(1)
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    ends.append("cancelled")
                    raise
        except type(wanted):
            ends.append("stopped")
        assert ends == ["cancelled", "stopped"]
        # The cancellation was one of the consumer and is over.
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)


async def test_an_error_of_the_block_is_not_replaced_by_the_stop(tmp_path: Path) -> None:
    handling = Handling(raising(lambda: SystemExit(3)), is_coroutine=True)
    async with site(tmp_path) as here:

        async def use() -> None:
            async with here.push(handling.function):
                try:
                    await here.send(1)
                    await asyncio.Event().wait()
                finally:
                    raise ValueError("of the block")

        with pytest.raises(ValueError, match="of the block"):
            await use()


def run_until_stopped(consumer: PushConsumer) -> None:
    with consumer:
        consumer.wait()


async def test_a_blocking_user_can_wait_for_the_stop(tmp_path: Path, before: Threads) -> None:
    async with site(tmp_path) as here:
        await here.send(1)
        handling = Handling(raising(lambda: SystemExit(3)), is_coroutine=False)
        consumer = PushConsumer(
            namesrv=here.namesrv,
            group=GROUP,
            subscriptions={TOPIC: "*"},
            handler=handling.function,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )
        codes: list[object] = []

        def run() -> None:
            try:
                run_until_stopped(consumer)
            except SystemExit as error:
                codes.append(error.code)

        await asyncio.to_thread(run)
        assert codes == [3]
        assert handler_threads(before) == []


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_handler_may_close_its_consumer(
    tmp_path: Path, before: Threads, *, orderly: bool, blocking: bool
) -> None:
    """The close waited for the handler, and the handler for the close."""

    opened_ones: list[Any] = []
    handled: list[bytes] = []

    def close_plainly(message: ReceivedMessage) -> None:
        opened_ones[0].close()
        handled.append(message.body)

    async def close_and_wait(message: ReceivedMessage) -> None:
        await asyncio.create_task(opened_ones[0].close())
        await opened_ones[0].close()
        handled.append(message.body)

    async with site(tmp_path) as here:
        groups = here.broker.context.consumers
        handler = close_plainly if blocking else close_and_wait
        async with opened(here, handler, blocking=blocking, orderly=orderly) as consumer:
            opened_ones.append(consumer)
            await here.send(1)
            await eventually(lambda: groups.get(GROUP) is None)
            # The message in whose handler that was done is handled and committed.
            assert handled == [b"0"]
            assert here.offsets()[0] == 1
            if not blocking:
                await consumer.wait()
    assert handler_threads(before) == []


async def test_a_failed_message_of_a_broadcasting_group_comes_again(tmp_path: Path) -> None:
    """It was let go after one try: no other member could take it, but this one can."""

    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> bool:
        tries.append(message.reconsume_times)
        return message.reconsume_times == 2

    options = {"model": MessageModel.BROADCASTING, "offset_directory": tmp_path / "offsets"}
    async with site(tmp_path / "site") as here:
        await here.send(1)
        async with here.push(handle, local_retry_ms=10, **options) as consumer:
            await eventually(lambda: len(tries) == 2)
            assert not consumer.offsets.noted(queue(0))
            await eventually(lambda: consumer.offsets.noted(queue(0)) == 1)
    assert tries == [0, 1, 2]


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_message_that_fails_too_often_in_a_broadcasting_group_is_let_go(
    tmp_path: Path, *, orderly: bool
) -> None:
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> bool:
        tries.append(message.reconsume_times)
        return False

    options = {
        "model": MessageModel.BROADCASTING,
        "offset_directory": tmp_path / "offsets",
        "reconsume_times_max": 3,
        "orderly": orderly,
    }
    async with site(tmp_path / "site") as here:
        await here.send(1)
        async with here.push(handle, local_retry_ms=10, suspend_queue_ms=10, **options) as consumer:
            await eventually(lambda: consumer.offsets.noted(queue(0)) == 1)
    assert tries == [0, 1, 2, 3]
