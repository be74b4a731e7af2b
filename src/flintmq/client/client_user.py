"""What producers and consumers share: a client, their own or a shared one, and a clean end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Self

from flintmq.client.errors import UsageError
from flintmq.client.instance import ClientInstance
from flintmq.client.options import ClientOptions

if TYPE_CHECKING:
    from types import TracebackType


class ClientUser(ABC):
    """Opens a client, or uses one that is shared; an async context manager."""

    _noun: ClassVar[str] = "consumer"

    def __init__(
        self, shared: ClientInstance | None, options: dict[str, Any], *, stream: bool = False
    ) -> None:
        if shared is not None and options:
            raise UsageError("options belong to the client that is shared")
        self._options = ClientOptions(**options) if shared is None else shared.options
        self.namespace = self._options.namespace
        self._shared = shared
        self._stream = stream
        self._client: ClientInstance | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def client(self) -> ClientInstance:
        """The client in use."""
        if self._client is None:
            raise UsageError(f"the {self._noun} is not open: use it in an async with statement")
        return self._client

    async def start(self) -> Self:
        """Connect and begin; `close` ends it."""
        if self._client is not None:
            raise UsageError(f"the {self._noun} is open already")
        async with AsyncExitStack() as stack:
            client = self._shared
            if client is None:
                client = ClientInstance(self._options, stream=self._stream)
                await stack.enter_async_context(client)
            self._client = client
            try:
                await self._begin(client)
            except BaseException:
                # Nothing of what was half started stays behind.
                await self._end(client, is_failed=True)
                self._client = None
                raise
            self._stack = stack.pop_all()
        return self

    @abstractmethod
    async def _begin(self, client: ClientInstance) -> None:
        """Start what is this user's own."""

    @abstractmethod
    async def _end(self, client: ClientInstance, *, is_failed: bool) -> None:
        """End it, however far it has come; ``is_failed`` tells of an exception of the user."""

    async def close(self) -> None:
        """End; a second call, also at the same time, waits for the first."""
        await self._close(is_failed=False)

    async def _close(self, *, is_failed: bool) -> None:
        if self._client is None:
            return
        if self._closing is None:
            self._closing = asyncio.create_task(self._close_once(is_failed=is_failed), name="close")
        closing = self._closing
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            # A caller that is cancelled must not keep queues from being handed over.
            await asyncio.gather(closing, return_exceptions=True)
            raise

    async def _close_once(self, *, is_failed: bool) -> None:
        client = self.client
        try:
            await self._end(client, is_failed=is_failed)
        finally:
            self._client = None
            self._closing = None
            await self._stack.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(is_failed=kind is not None)
