"""The base of producers and consumers: it opens a client of its own or uses a shared one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from flintmq.client.closing_time import ClosingTime
from flintmq.client.errors import UsageError
from flintmq.client.instance import ClientInstance
from flintmq.client.options import ClientOptions

if TYPE_CHECKING:
    from types import TracebackType


class ClientUser(ABC):
    """Opens a client, or uses one that is shared; an async context manager."""

    _noun: ClassVar[str] = "consumer"

    def __init__(
        self,
        shared: ClientInstance | None,
        options: ClientOptions | None,
        *,
        stream: bool = False,
    ) -> None:
        if shared is not None and options is not None:
            raise UsageError("options belong to the client that is shared")
        self._options = (options or ClientOptions()) if shared is None else shared.options
        self.namespace = self._options.namespace
        self._shared = shared
        self._stream = stream
        self._client: ClientInstance | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def client(self) -> ClientInstance:
        """The client in use."""
        if self._client is None:
            raise UsageError(f"the {self._noun} is not open: use it in an async with statement")
        return self._client

    async def start(self) -> Self:
        """Connect and begin; `close` ends it."""
        if self._client is not None or self._opening is not None:
            raise UsageError(f"the {self._noun} is open already")
        # A task of its own, so that `close` can end it.
        self._opening = asyncio.create_task(self._open(), name="open")
        try:
            await self._opening
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise UsageError(f"the {self._noun} was closed while it was opened") from None
        finally:
            self._opening = None
        return self

    async def _open(self) -> None:
        client = self._shared
        if client is None:
            client = await ClientInstance(self._options, stream=self._stream).start()
        self._client = client
        try:
            await self._begin(client)
        except BaseException:
            # Nothing of what was half started stays behind.
            await self._close_opened(is_failed=True)
            raise

    @abstractmethod
    async def _begin(self, client: ClientInstance) -> None:
        """Start what this producer or consumer adds to its client."""

    @abstractmethod
    async def _end(self, client: ClientInstance, closing: ClosingTime, *, is_failed: bool) -> None:
        """Stop what `_begin` has started, however far it came.

        ``is_failed`` says that the block of the user has raised.
        """

    @property
    def _stop_timeout_ms(self) -> int:
        """How long `close` may take."""
        return self._options.request_timeout_ms

    async def close(self) -> None:
        """Stop; a second call, also at the same time, waits for the first."""
        await self._close(is_failed=False)

    async def _close(self, *, is_failed: bool, closing: ClosingTime | None = None) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        await self._close_opened(is_failed=is_failed, closing=closing)

    async def _close_opened(self, *, is_failed: bool, closing: ClosingTime | None = None) -> None:
        if self._client is None:
            return
        if self._closing is None:
            work = self._close_once(
                closing or ClosingTime(self._stop_timeout_ms), is_failed=is_failed
            )
            self._closing = asyncio.create_task(work, name="close")
        task = self._closing
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            # A caller that is cancelled must not keep queues from being handed over.
            await asyncio.gather(task, return_exceptions=True)
            raise

    async def _close_once(self, closing: ClosingTime, *, is_failed: bool) -> None:
        client = self.client
        try:
            await self._end(client, closing, is_failed=is_failed)
        finally:
            self._client = None
            self._closing = None
            if self._shared is None:
                await client.close(closing)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(is_failed=kind is not None)


async def close_within(user: ClientUser, closing: ClosingTime) -> None:
    """Close a producer or consumer as a part of something larger that has its own time."""
    await user._close(is_failed=False, closing=closing)
