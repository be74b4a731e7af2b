"""The time that one call of a user may take, shared by all that is done for it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

from flintmq.client.errors import NoNameServerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable

_T = TypeVar("_T")


class Deadline:
    """When a call has to end; UsageError if it has no time at all."""

    __slots__ = ("_end", "timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        if timeout_ms <= 0:
            raise UsageError(f"timeout_ms must be positive, not {timeout_ms}")
        self.timeout_ms = timeout_ms
        self._end = time.monotonic() + timeout_ms / 1000

    @property
    def left_ms(self) -> int:
        """The milliseconds that are left; 0 or less when time is up."""
        return round((self._end - time.monotonic()) * 1000)

    async def route(self, topic: str, asking: Awaitable[_T]) -> _T:
        """Wait for what name servers are asked about a topic; NoNameServerError if time is up."""
        try:
            async with asyncio.timeout(max(self.left_ms, 0) / 1000):
                return await asking
        except TimeoutError:
            raise NoNameServerError(
                f"no name server has told within {self.timeout_ms} ms where {topic!r} is; "
                "nothing was sent"
            ) from None
