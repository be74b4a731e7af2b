"""Staying awake for a moment, where the next request of a client comes as soon as it is answered.

A client that sends one message at a time is answered in less time than the machine needs to put an
idle core to sleep and to wake it again.  So while such a client is the only busy one, the loop asks
its sockets again and again for a fraction of a millisecond, as if it had work.  Where the next
request does not come in that time, the loop sleeps as ever, and waits in this way again only after
several requests that came quickly.  Nor does it wait so while other programs want its core: it
would take their time, which may be that of the client, and soon have to give way itself.
"""

from __future__ import annotations

import math
import os
import resource
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

QUICK_FACTOR: Final = 2
"""A request is quick if it comes within this many times the wait: the loop has slept, and has to
be woken."""
QUICK_COUNT: Final = 8
"""Quick requests in succession after which the loop waits for the next one."""
LOOK_COUNT: Final = 64
"""Waits after which it is looked whether others want the core."""
TAKEN_COUNT_MAX: Final = 3
"""How often the core may be taken from the loop during so many waits."""
REST_S: Final = 1.0
"""How long the loop sleeps as ever when others want its core."""


class ActiveWait:
    """Keeps an event loop awake for a while after requests that mostly have one behind them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wait_s: float,
        *,
        now: Callable[[], float] = time.monotonic,
        taken_count: Callable[[], int] | None = None,
    ) -> None:
        """Describe the wait; with a length of 0, or on a single core, there is none.

        ``taken_count`` tells how often the core was taken from this thread.
        """
        self._loop = loop
        self._wait_s = wait_s if _core_count() > 1 else 0.0
        self._quick_s = QUICK_FACTOR * self._wait_s
        self._now = now
        self._taken_count = taken_count or _taken_count
        self._answered_at = -math.inf
        self._awake_until = -math.inf
        self._quick_count = 0
        self._is_awake = False
        self._waits_until_look = 0
        self._taken_before = 0
        self._rests_until = -math.inf

    def came(self, now: float) -> None:
        """Learn that a request came, and that its connection is the only busy one."""
        if now - self._answered_at < self._quick_s:
            self._quick_count += 1
        else:
            self._quick_count = 0

    def answered(self) -> None:
        """Learn that it was handled; from now on the loop stays awake if that pays."""
        if not self._wait_s:
            return
        now = self._answered_at = self._now()
        if self._quick_count < QUICK_COUNT or now < self._rests_until:
            return
        self._waits_until_look -= 1
        if self._waits_until_look <= 0 and self._is_core_wanted(now):
            return
        self._awake_until = now + self._wait_s
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._stay)

    def end(self) -> None:
        """Let the loop sleep: others have come, so that it has enough to do."""
        self._quick_count = 0
        self._awake_until = -math.inf

    def _is_core_wanted(self, now: float) -> bool:
        """Look whether the core was taken from the loop since the last look; then it rests."""
        self._waits_until_look = LOOK_COUNT
        before, self._taken_before = self._taken_before, self._taken_count()
        if before and self._taken_before - before > TAKEN_COUNT_MAX:
            self._rests_until = now + REST_S
            self._taken_before = 0
        return now < self._rests_until

    def _stay(self) -> None:
        if self._now() < self._awake_until:
            self._loop.call_soon(self._stay)
        else:
            self._is_awake = False
            self._quick_count = 0


def _taken_count() -> int:
    """Return how often the system took the core from this thread, that is not by its own wish."""
    whose = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # Only Linux knows threads.
    return max(resource.getrusage(whose).ru_nivcsw, 1)


def _core_count() -> int:
    """Return how many cores this process may use; on one it would keep the client from its work."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
