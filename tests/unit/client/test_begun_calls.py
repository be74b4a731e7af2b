"""Coroutines that are begun without a task do what they do when they are awaited."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from flintmq.client.consuming.begun_calls import begin_call
from flintmq.client.consuming.handlers import ConsumeResult, HandlerRunner
from tests.kits.client.consumer_model import message


async def finish(work: Coroutine[Any, Any, Any]) -> Any:
    begun = begin_call(work)
    return await begun if inspect.isawaitable(begun) else begun


async def ends_at_once() -> str:
    return "done"


async def waits_twice() -> str:
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    return "done"


async def survives_a_cancellation() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    return "done"


async def raises() -> None:
    raise ValueError("at once")


async def raises_later() -> None:
    await asyncio.sleep(0)
    raise ValueError("later")


@pytest.mark.parametrize("make", [ends_at_once, waits_twice])
async def test_the_result_is_that_of_the_coroutine(make: Callable[[], Any]) -> None:
    assert await finish(make()) == "done"


async def test_what_never_waits_has_a_result_at_once() -> None:
    assert begin_call(ends_at_once()) == "done"


@pytest.mark.parametrize("make", [raises, raises_later])
async def test_an_error_is_that_of_the_coroutine(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"at once|later"):
        await finish(make())


async def test_a_cancellation_reaches_the_coroutine() -> None:
    task = asyncio.create_task(finish(survives_a_cancellation()))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "done"
    task = asyncio.create_task(finish(asyncio.sleep(60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class AskedForCoroutine:
    """A handler that counts as a coroutine function, and returns something else to await."""

    def __init__(self, result: object) -> None:
        self._result = result
        self.__dict__["__call__"] = self._coroutine

    async def _coroutine(self, given: object) -> None:
        raise AssertionError("this is only looked at")

    def __call__(self, given: object) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, self._result)
        return future


@pytest.mark.parametrize("result", list(ConsumeResult))
async def test_a_handler_may_return_whatever_can_be_awaited(result: ConsumeResult) -> None:
    runner = HandlerRunner(AskedForCoroutine(result), thread_count=1, takes_list=False)
    assert not runner.is_in_threads
    assert (await runner.run([message(0)])).result is result
