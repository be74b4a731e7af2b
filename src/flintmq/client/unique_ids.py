"""Unique message ids, as Java clients make them."""

from __future__ import annotations

import ipaddress
import os
import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Final

from flintmq.client.wall_clock import wall_ms
from flintmq.format.message_id import encode_unique_id

if TYPE_CHECKING:
    from collections.abc import Callable

_COUNTER_MASK: Final = 0xFFFF
_PID_MASK: Final = 0xFFFF
_CLOCK_STEP_MS: Final = 1_000_000


class UniqueIds:
    """Makes ids from address, process, time within the month, and a counter."""

    def __init__(self, address: str, *, now_ms: Callable[[], int] = wall_ms) -> None:
        self._address = ipaddress.ip_address(address).packed
        self._pid = os.getpid() & _PID_MASK
        self._constant = secrets.randbits(31)
        self._counter = -1
        self._now_ms = now_ms
        self._month_start = self._month_end = 0

    def next(self) -> str:
        """Return a new id."""
        now_ms = self._now_ms()
        if not self._month_start <= now_ms < self._month_end:
            self._take_month(now_ms)
        elapsed = now_ms - self._month_start
        if -_CLOCK_STEP_MS < elapsed < 0:
            elapsed = 0
        self._counter = (self._counter + 1) & _COUNTER_MASK
        return encode_unique_id(
            self._address, self._pid, self._constant, elapsed & 0xFFFFFFFF, self._counter
        )

    def _take_month(self, now_ms: int) -> None:
        moment = datetime.fromtimestamp(now_ms / 1000).astimezone()
        start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        month, year = (1, start.year + 1) if start.month == 12 else (start.month + 1, start.year)
        end = start.replace(year=year, month=month)
        self._month_start, self._month_end = (
            round(datetime(one.year, one.month, 1).astimezone().timestamp() * 1000)
            for one in (start, end)
        )
