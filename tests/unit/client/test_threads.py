"""The threads of a client: those that call handlers, and the one behind a blocking face."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from flintmq.client.consuming.handler_threads import HandlerThreads
from flintmq.client.errors import UsageError
from flintmq.client.loop_thread import LoopThread
from tests.kits.client.consumer_kit import run

WAIT_S = 20


def with_threads(
    function: Callable[[Any], Any], count: int, work: Callable[[HandlerThreads[Any, Any]], Any]
) -> None:
    async def main() -> None:
        threads: HandlerThreads[Any, Any] = HandlerThreads(function, count=count)
        try:
            await work(threads)
        finally:
            await asyncio.to_thread(threads.close, wait=True)

    before = threading.active_count()
    run(main())
    assert threading.active_count() == before


def test_every_call_gets_its_own_result() -> None:
    async def work(threads: HandlerThreads[Any, int]) -> None:
        for _ in range(5):
            calls = [threads.call(number) for number in range(200)]
            assert await asyncio.gather(*calls) == [number * 2 for number in range(200)]

    with_threads(lambda number: number * 2, 4, work)


def test_calls_that_wait_for_each_other_get_as_many_threads_as_there_may_be() -> None:
    barrier = threading.Barrier(5)

    async def work(threads: HandlerThreads[Any, int]) -> None:
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*(threads.call(None) for _ in range(5)))
            await asyncio.gather(*(threads.call(None) for _ in range(10)))

    with_threads(lambda _: barrier.wait(WAIT_S), 5, work)


def test_there_are_never_more_threads_than_allowed() -> None:
    names: set[str] = set()
    at_work: list[int] = []
    most: list[int] = []
    go = threading.Event()

    def hold(number: int) -> None:
        names.add(threading.current_thread().name)
        at_work.append(number)
        most.append(len(at_work))
        assert go.wait(WAIT_S)
        at_work.remove(number)

    async def work(threads: HandlerThreads[Any, None]) -> None:
        calls = [threads.call(number) for number in range(40)]
        while len(names) < 3:  # noqa: ASYNC110 - threads set no event of this loop
            await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*calls)

    with_threads(hold, 3, work)
    assert max(most) <= 3
    assert len(names) == 3


class Held:
    """A function that waits until it may go on, and notes how it was called."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, name: str) -> None:
        self.called.append(name)
        self.begun.set()
        assert self.go.wait(WAIT_S)


def test_a_call_that_was_cancelled_in_time_does_not_happen() -> None:
    held = Held()

    async def work(threads: HandlerThreads[Any, None]) -> None:
        first, second = threads.call("first"), threads.call("second")
        assert await asyncio.to_thread(held.begun.wait, WAIT_S)
        second.cancel()
        third = threads.call("third")
        held.go.set()
        await asyncio.gather(first, third)

    with_threads(held, 1, work)
    assert held.called == ["first", "third"]


def test_nothing_is_begun_after_the_end() -> None:
    held = Held()

    async def work(threads: HandlerThreads[Any, None]) -> None:
        threads.call("first")
        threads.call("second")
        assert await asyncio.to_thread(held.begun.wait, WAIT_S)
        threads.close(wait=False)
        held.go.set()

    with_threads(held, 1, work)
    assert held.called == ["first"]


def test_a_blocking_call_gives_what_its_coroutine_gives() -> None:
    async def good() -> int:
        await asyncio.sleep(0)
        return 42

    async def bad() -> None:
        raise ValueError("no")

    thread = LoopThread()
    assert thread.run(good()) == 42
    with pytest.raises(ValueError, match="no"):
        thread.run(bad())
    thread.close()
    thread.close()
    with pytest.raises(UsageError, match="closed"):
        thread.run(good())


def test_a_call_does_not_wait_for_a_loop_that_has_ended() -> None:
    thread = LoopThread()
    begun = threading.Event()
    failures: list[BaseException] = []

    async def never() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            thread.run(never())
        except UsageError as error:
            failures.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    assert begun.wait(WAIT_S)
    thread.close()
    caller.join(WAIT_S)
    assert [str(error) for error in failures] == ["this client was closed meanwhile"]


class DeadlineOfTheUserError(RuntimeError):
    """What a signal handler raises when the user has waited for long enough."""


class InterruptedLoop:
    """A loop whose caller is interrupted by a signal just when it has a function called there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_before: bool) -> None:
        self._loop = loop
        self._is_before = is_before
        self._is_done = False

    def call_soon_threadsafe(self, function: Callable[..., object], *arguments: object) -> None:
        is_now, self._is_done = not self._is_done, True
        if is_now and self._is_before:
            raise DeadlineOfTheUserError
        self._loop.call_soon_threadsafe(function, *arguments)
        if is_now:
            raise DeadlineOfTheUserError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@pytest.mark.parametrize("is_before", [True, False])
def test_what_a_signal_handler_raises_is_not_taken_for_a_closed_client(*, is_before: bool) -> None:
    """The caller was told that the client is closed, while the work went on behind its back."""
    thread = LoopThread()
    loop = thread._loop

    async def work() -> None:
        await asyncio.get_running_loop().create_future()

    coroutine = work()
    thread._loop = cast("Any", InterruptedLoop(loop, is_before=is_before))
    with pytest.raises(DeadlineOfTheUserError):
        thread.run(coroutine)
    thread._loop = loop

    async def nothing() -> None:
        """Come behind whatever was to be done before."""

    thread.run(nothing())
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED, "the work goes on"
    thread.close()
