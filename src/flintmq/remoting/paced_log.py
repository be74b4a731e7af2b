"""Which entries of one kind go to the log: one in a while, so that no peer can flood it.

To write an entry takes as long as to serve a request, and whoever causes one can cause thousands.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

LOG_INTERVAL_S: Final = 1.0
"""Between two entries of one kind."""

KindT = TypeVar("KindT", bound=Hashable)


class PacedLog(Generic[KindT]):
    """Counts by kind, and says which one of a kind is logged.  Kinds are few: code names them."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._next: dict[KindT, float] = {}
        self._between: Counter[KindT] = Counter()

    def passes(self, kind: KindT) -> int | None:
        """Return how many of a kind were passed over since the last entry; None: so is this one."""
        now = self._monotonic()
        if now < self._next.get(kind, now):
            self._between[kind] += 1
            return None
        self._next[kind] = now + LOG_INTERVAL_S
        return self._between.pop(kind, 0)
