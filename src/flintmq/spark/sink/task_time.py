"""The clock of a task of the sink: that of the machine, unless a test hands in another."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from flintmq.client.wall_clock import wall_ms


@dataclass(frozen=True, slots=True)
class SinkTime:
    """The time of day in milliseconds; seconds that only go forward; and how to let them pass."""

    now_ms: Callable[[], int] = wall_ms
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


MACHINE_TIME = SinkTime()
