"""Requests of ours that wait for answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.command import Command
from flintmq.format.wire.frame import HeaderType

if TYPE_CHECKING:
    from flintmq.format.wire.headers.codec import Header

_OPAQUE_MASK: Final = 0x7FFFFFFF


class InFlight:
    """The requests of one connection that wait for answers, by their opaque numbers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._last_opaque = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def new(self, code: int, header: Header | None, body: bytes) -> Command:
        """Return a request with a number of its own."""
        self._last_opaque = (self._last_opaque + 1) & _OPAQUE_MASK
        return Command(
            code=code,
            opaque=self._last_opaque,
            ext_fields={} if header is None else header.encode(),
            body=body,
            serialize_type=HeaderType.JSON,
        )

    def open(self, opaque: int) -> asyncio.Future[Command]:
        """Return the future that gets the answer to a request."""
        future: asyncio.Future[Command] = self._loop.create_future()
        self._waiting[opaque] = future
        return future

    def close(self, opaque: int) -> None:
        """Wait for an answer no longer."""
        self._waiting.pop(opaque, None)

    def answered(self, command: Command) -> bool:
        """Give an answer to whoever waits for it; return whether anybody did."""
        future = self._waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)
        return future is not None

    def fail(self, error: Exception) -> None:
        """Tell all that wait that there is no answer any more."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
