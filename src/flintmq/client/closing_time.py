"""The time in which a producer, a consumer or a client has to be closed."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable

logger = logging.getLogger(__name__)

FAREWELL_MS: Final = 1000
"""What brokers need to be told at the end; they get so much even if less is allowed in all."""


class ClosingTime:
    """When everything has to be closed, whatever brokers and handlers do.

    A step may take half of the time that is left, so that a broker which does not answer in one
    step does not keep the others from the next.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._end = time.monotonic() + max(timeout_ms, FAREWELL_MS) / 1000
        self.handlers_ms = timeout_ms - min(FAREWELL_MS, timeout_ms // 4)
        """How long running handlers are waited for."""

    @property
    def left_s(self) -> float:
        """The seconds that are left."""
        return max(self._end - time.monotonic(), 0)

    async def step(self, what: str, work: Awaitable[object]) -> None:
        """Do something for as long as there is time; it is cancelled then."""
        try:
            async with asyncio.timeout(self.left_s / 2):
                await work
        except TimeoutError:
            logger.warning("closed without waiting any longer for %s", what)
