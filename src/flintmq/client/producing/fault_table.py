"""Brokers that were slow or failed, and are left alone for a while."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FAILED_LATENCY_MS: Final = 30_000
_LATENCIES_MS: Final = (550, 1000, 2000, 3000, 15_000)
_PAUSES_MS: Final = (0, 30_000, 60_000, 120_000, 180_000, 600_000)


def pause_ms(latency_ms: int) -> int:
    """Return for how long a broker that took so long is out of use."""
    return _PAUSES_MS[bisect.bisect_right(_LATENCIES_MS, latency_ms)]


class FaultTable:
    """Which brokers are out of use, and until when."""

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._until: dict[str, int] = {}

    def note(self, broker_name: str, latency_ms: int, *, failed: bool) -> None:
        """Remember how an attempt went."""
        pause = pause_ms(FAILED_LATENCY_MS if failed else latency_ms)
        if pause:
            self._until[broker_name] = self._now_ms() + pause
        else:
            self._until.pop(broker_name, None)

    def is_in_use(self, broker_name: str) -> bool:
        """Whether a broker may be sent to."""
        return self._until.get(broker_name, 0) <= self._now_ms()
