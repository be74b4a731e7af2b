"""Staying awake for a moment, where the next request of a client comes as soon as it is answered.

A client that sends one message at a time is answered in less time than the machine needs to put an
idle core to sleep and to wake it again.  So while such a client is the only busy one, the loop asks
its sockets again and again for a fraction of a millisecond, as if it had work.  Where the next
request does not come in that time, the loop sleeps as ever, and waits in this way again only after
several requests that came quickly.

Whether that pays depends on the machine: where other programs want the core, the wait takes their
time, which may be that of the client.  So it is tried, now with the wait and now without, and what
was faster is kept for about a second.
"""

from __future__ import annotations

import math
import os
import time
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

QUICK_FACTOR: Final = 2
"""A request is quick if it comes within this many times the wait: the loop has slept, and has to
be woken."""
QUICK_COUNT: Final = 8
"""Quick requests in succession after which the loop waits for the next one."""
TRIED_COUNT: Final = 128
"""Requests for which each of the two ways is tried."""
KEPT_COUNT: Final = 8192
"""Requests for which the faster one is kept."""


class _Phase(Enum):
    """What the requests of now are for."""

    WAITING_TRIED = auto()
    SLEEPING_TRIED = auto()
    KEPT = auto()


class ActiveWait:
    """Keeps an event loop awake for a while after requests that mostly have one behind them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wait_s: float,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Describe the wait; with a length of 0, or on a single core, there is none."""
        self._loop = loop
        self._wait_s = wait_s if _core_count() > 1 else 0.0
        self._quick_s = QUICK_FACTOR * self._wait_s
        self._now = now
        self._answered_at = -math.inf
        self._awake_until = -math.inf
        self._quick_count = 0
        self._is_awake = False
        self._phase = _Phase.WAITING_TRIED
        self._waits = True
        """Whether the loop waits for quick requests in this phase."""
        self._left_count = TRIED_COUNT
        """Requests until the phase ends."""
        self._spent_s = 0.0
        """How long those of this phase took, from the answer to the one before each."""
        self._spent_waiting_s = 0.0

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
        before, now = self._answered_at, self._now()
        self._answered_at = now
        if self._quick_count < QUICK_COUNT:
            return
        self._spent_s += now - before
        self._left_count -= 1
        if not self._left_count:
            self._next_phase()
        if not self._waits:
            return
        self._awake_until = now + self._wait_s
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._stay)

    def end(self) -> None:
        """Let the loop sleep: others have come, so that it has enough to do."""
        self._quick_count = 0
        self._awake_until = -math.inf

    def _next_phase(self) -> None:
        spent, self._spent_s, self._left_count = self._spent_s, 0.0, TRIED_COUNT
        if self._phase is _Phase.WAITING_TRIED:
            self._spent_waiting_s = spent
            self._phase, self._waits = _Phase.SLEEPING_TRIED, False
        elif self._phase is _Phase.SLEEPING_TRIED:
            self._phase, self._waits = _Phase.KEPT, self._spent_waiting_s < spent
            self._left_count = KEPT_COUNT
        else:
            self._phase, self._waits = _Phase.WAITING_TRIED, True

    def _stay(self) -> None:
        if self._now() < self._awake_until:
            self._loop.call_soon(self._stay)
        else:
            self._is_awake = False
            self._quick_count = 0


def _core_count() -> int:
    """Return how many cores this process may use; on one it would keep the client from its work."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
