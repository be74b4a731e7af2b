"""Time as the store sees it: handed in, so that tests can turn it."""

import time
from typing import Protocol


class Clock(Protocol):
    """The two times a store needs."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch; it may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring how long something took."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    # Every request asks several times, so there is no function of Python around it.
    monotonic = staticmethod(time.monotonic)
