"""A promise is a position that only grows: "flushed up to here", "on the slave up to here".

Whoever has to wait for one says up to where and for how long, and is told once.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

Reached: TypeAlias = Callable[[bool], None]
"""Is told whether the position was reached in time."""


class _WaitingForPosition(NamedTuple):
    deadline: float
    done: Reached


class GrowingPosition:
    """How far something holds, and who waits for it to hold further."""

    def __init__(self) -> None:
        self.value = 0
        self._numbers = itertools.count()
        self._waiting: dict[int, _WaitingForPosition] = {}
        """In the order in which they came, which is that of their deadlines."""
        self._positions: list[tuple[int, int]] = []
        """Positions that are waited for, with the number of who waits; a heap."""

    @property
    def waiting_count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def next_deadline(self) -> float | None:
        """When somebody's time is up next; None while nobody waits."""
        return next(iter(self._waiting.values())).deadline if self._waiting else None

    def when_reached(self, position: int, deadline: float, done: Reached) -> None:
        """Call ``done`` once the position is reached, or at the deadline; at once if it is.

        No deadline may be earlier than one that was given before: all wait for the same time.
        """
        if position <= self.value:
            done(True)
            return
        number = next(self._numbers)
        self._waiting[number] = _WaitingForPosition(deadline, done)
        heapq.heappush(self._positions, (position, number))

    def advance(self, position: int) -> None:
        """Say that it holds up to ``position``; less than before changes nothing."""
        self.value = max(self.value, position)
        while self._positions and self._positions[0][0] <= self.value:
            _, number = heapq.heappop(self._positions)
            waiting = self._waiting.pop(number, None)
            if waiting is not None:
                waiting.done(True)

    def expire(self, now: float) -> None:
        """Tell those whose time is up that the position was not reached."""
        late = list(itertools.takewhile(lambda one: one[1].deadline <= now, self._waiting.items()))
        for number, waiting in late:
            del self._waiting[number]
            waiting.done(False)
        if not self._waiting:
            self._positions.clear()
