"""Times that are shared: those of a call, and those of the end."""

import asyncio
import threading

import pytest

from flintmq.client.closing_time import FAREWELL_MS, ClosingTime
from flintmq.client.deadline import Deadline
from flintmq.client.errors import NoNameServerError, UsageError
from flintmq.client.own_threads import ThreadCallError, call_in_thread


@pytest.mark.parametrize(
    ("timeout_ms", "handlers_ms"), [(30_000, 29_000), (4000, 3000), (1000, 750), (20, 15), (0, 0)]
)
def test_handlers_have_all_of_the_time_but_what_brokers_need(
    timeout_ms: int, handlers_ms: int
) -> None:
    closing = ClosingTime(timeout_ms)
    assert closing.handlers_ms == handlers_ms
    assert closing.left_s <= max(timeout_ms, FAREWELL_MS) / 1000


async def test_a_step_that_never_ends_leaves_time_for_the_next() -> None:
    closing, done = ClosingTime(0), asyncio.Event()

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    async def note() -> None:
        done.set()

    for _ in range(3):
        await closing.step("what never ends", never())
    assert closing.left_s > 0
    await closing.step("what ends at once", note())
    assert done.is_set()


async def test_an_error_in_a_step_is_not_taken_for_the_end_of_time() -> None:
    async def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        await ClosingTime(1000).step("what fails", fail())


async def test_a_deadline_needs_time_and_ends_the_search_for_a_route() -> None:
    for none in (0, -5):
        with pytest.raises(UsageError):
            Deadline(none)
    deadline = Deadline(20)
    with pytest.raises(NoNameServerError, match="within 20 ms"):
        await deadline.route("orders", asyncio.get_running_loop().create_future())
    assert deadline.left_ms <= 0


async def test_a_call_in_a_thread_gives_its_result_or_its_error() -> None:
    assert await call_in_thread("test", threading.current_thread) is not threading.main_thread()
    with pytest.raises(ZeroDivisionError):
        await call_in_thread("test", lambda: 1 // 0)
    for stop in (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration):

        def leave(stop: type[BaseException] = stop) -> None:
            raise stop

        with pytest.raises(ThreadCallError, match=stop.__name__):
            await call_in_thread("test", leave)


async def test_a_caller_that_gives_up_lets_its_thread_end_alone() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await call_in_thread("test", release.wait)
    release.set()
