"""Rates of pulls and of handler calls by topic, as the tools of operators show them."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW_S: Final = 60
"""Rates are taken over the last minute."""


@dataclass(slots=True)
class _Window:
    """Counts and times of the current second and of the seconds before it."""

    seconds: dict[int, list[int]] = field(default_factory=dict)

    def add(self, second: int, count: int, elapsed_ms: int, call_count: int = 1) -> None:
        entry = self.seconds.get(second)
        if entry is None:
            entry = self.seconds[second] = [0, 0, 0]
            while len(self.seconds) > WINDOW_S:
                del self.seconds[next(iter(self.seconds))]
        entry[0] += count
        entry[1] += call_count
        entry[2] += elapsed_ms

    def rates(self, second: int) -> tuple[float, float]:
        """Return counts per second and milliseconds per call."""
        recent = [one for at, one in self.seconds.items() if second - at <= WINDOW_S]
        calls = sum(one[1] for one in recent)
        per_second = sum(one[0] for one in recent) / WINDOW_S
        return per_second, sum(one[2] for one in recent) / calls if calls else 0.0


class ConsumeStatistics:
    """Counts pulls and handler calls."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._pulled: dict[str, _Window] = defaultdict(_Window)
        self._consumed: dict[str, _Window] = defaultdict(_Window)
        self._failed: dict[str, _Window] = defaultdict(_Window)
        self._failed_total: dict[str, int] = defaultdict(int)

    def pulled(self, topic: str, count: int, elapsed_ms: int) -> None:
        """Count a pull."""
        self._pulled[topic].add(int(self._monotonic()), count, elapsed_ms)

    def consumed(
        self, topic: str, count: int, elapsed_ms: int, *, is_success: bool, call_count: int = 1
    ) -> None:
        """Count calls of the handler: the messages and the time of all of them together."""
        kind = self._consumed if is_success else self._failed
        kind[topic].add(int(self._monotonic()), count, elapsed_ms, call_count)
        if not is_success:
            self._failed_total[topic] += count

    def table(self) -> dict[str, dict[str, float]]:
        """Return the rates by topic, with the names that operators' tools know."""
        second = int(self._monotonic())
        found = {}
        for topic in sorted(self._pulled.keys() | self._consumed.keys() | self._failed.keys()):
            pull_rate, pull_ms = self._pulled[topic].rates(second)
            consume_rate, consume_ms = self._consumed[topic].rates(second)
            found[topic] = {
                "consumeFailedMsgs": self._failed_total[topic],
                "consumeFailedTPS": self._failed[topic].rates(second)[0],
                "consumeOKTPS": consume_rate,
                "consumeRT": consume_ms,
                "pullRT": pull_ms,
                "pullTPS": pull_rate,
            }
        return found
