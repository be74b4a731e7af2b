"""A client of a cluster for code that is not asynchronous: the driver and the tasks of Spark."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

from flintmq.client.errors import ClientError
from flintmq.client.instance import ClientInstance
from flintmq.client.loop_thread import InThread
from flintmq.errors import FlintError
from flintmq.remoting import RemotingError
from flintmq.spark.live.cluster_options import ClusterConnection
from flintmq.spark.live.errors import RefusedReadError, UnreachableError

logger = logging.getLogger(__name__)

PAUSE_FIRST_S: Final = 0.25
PAUSE_MAX_S: Final = 5.0
AT_ONCE_MAX: Final = 64
"""Requests of the driver that are under way together."""

_T = TypeVar("_T")
_Item = TypeVar("_Item")


async def persist(
    what: str,
    retries: int,
    work: Callable[[], Awaitable[_T]],
    before_retry: Callable[[], Awaitable[object]] | None = None,
) -> _T:
    """Return what ``work`` gives; it is tried ``retries`` times more where that may help.

    Pauses get longer: with 8 retries a broker has 23 seconds to come back.  ``before_retry``
    may fail as it likes.

    Raises:
        UnreachableError: no attempt succeeded.
        RefusedReadError: a server refuses, and would again.
    """
    pause = PAUSE_FIRST_S
    for attempt in range(retries + 1):
        try:
            return await work()
        except (ClientError, RemotingError) as error:
            if not error.retriable:
                raise RefusedReadError(what, str(error)) from error
            if attempt == retries:
                raise UnreachableError(what, attempt + 1, str(error)) from error
            logger.info("tried again soon: what=%s attempt=%d reason=%s", what, attempt + 1, error)
        await asyncio.sleep(pause)
        pause = min(PAUSE_MAX_S, pause * 2)
        if before_retry is not None:
            with suppress(FlintError):
                await before_retry()
    raise AssertionError("the last attempt returns or raises")


async def each(items: Iterable[_Item], work: Callable[[_Item], Awaitable[_T]]) -> list[_T]:
    """Return what ``work`` gives for each item, some at a time; the first failure ends all."""
    listed = list(items)
    found: dict[int, _T] = {}
    waiting = iter(range(len(listed)))

    async def some() -> None:
        # Few tasks share the items: of ten thousand queues each would need one of its own.
        for number in waiting:
            found[number] = await work(listed[number])

    tasks = [asyncio.create_task(some()) for _ in range(min(AT_ONCE_MAX, len(listed)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return [found[number] for number in range(len(listed))]


class LiveSession(InThread[ClientInstance]):
    """A client in an event loop of its own; connections are made when they are needed."""

    def __init__(self, connection: ClusterConnection) -> None:
        super().__init__(lambda: ClientInstance(connection.client_options()))

    @property
    def client(self) -> ClientInstance:
        """The client, for coroutines that are run here."""
        return self._opened()[1]

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and wait for its result."""
        return self._opened()[0].run(work)
