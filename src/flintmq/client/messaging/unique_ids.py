"""Unique message ids, as Java clients make them."""

from __future__ import annotations

import ipaddress
import itertools
import os
import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.client.wall_clock import wall_ms
from flintmq.format.message_id import encode_unique_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COUNTER_MASK: Final = 0xFFFF
_ELAPSED_MASK: Final = 0xFFFFFFFF
_TAIL_LENGTH: Final = 12
"""Hexadecimal digits of the elapsed time and the counter, with which an id ends."""

_BYTE_TEXTS: Final = tuple(f"{number:02X}" for number in range(256))
_BYTE_TAILS: Final = tuple(text.encode() for text in _BYTE_TEXTS)
_CLOCK_STEP_MS: Final = 1_000_000


class IdSeries(NamedTuple):
    """Several ids that begin alike."""

    stem: bytes
    """What all of them begin with."""
    tails: Sequence[bytes]
    """What each of them ends with; all have the same length."""

    @property
    def listed(self) -> str:
        """The ids with commas between them."""
        return (self.stem + (b"," + self.stem).join(self.tails)).decode()


class UniqueIds:
    """Makes ids from address, process, time within the month, and a counter; for all threads."""

    def __init__(self, address: str, *, now_ms: Callable[[], int] = wall_ms) -> None:
        made = encode_unique_id(
            ipaddress.ip_address(address).packed, os.getpid(), secrets.randbits(31), 0, 0
        )
        self._prefix = made[:-_TAIL_LENGTH]
        self._numbers = itertools.count()
        """One call gives one number, or several, whoever else asks at the same time."""
        self._now_ms = now_ms
        self._month_start = self._month_end = 0
        self._last_stem = (-1, "")
        """A millisecond and the stem of its ids, set together."""

    def next(self) -> str:
        """Return a new id."""
        number = next(self._numbers) & _COUNTER_MASK
        return self._stem() + _BYTE_TEXTS[number >> 8] + _BYTE_TEXTS[number & 0xFF]

    def next_ones(self, count: int) -> IdSeries:
        """Return several new ids, at least one."""
        numbers = list(itertools.islice(self._numbers, count))
        stem, first, low = self._stem().encode(), numbers[0], numbers[0] & 0xFF
        # Mostly they differ in their last byte only, and no other thread has had one in between.
        if numbers[-1] - first == count - 1 and low + count <= len(_BYTE_TAILS):
            return IdSeries(stem + _BYTE_TAILS[first >> 8 & 0xFF], _BYTE_TAILS[low : low + count])
        tails = [_BYTE_TAILS[number >> 8 & 0xFF] + _BYTE_TAILS[number & 0xFF] for number in numbers]
        return IdSeries(stem, tails)

    def _stem(self) -> str:
        """Return what all ids of this millisecond begin with."""
        now_ms = self._now_ms()
        stem_ms, stem = self._last_stem
        if now_ms == stem_ms:
            return stem
        if not self._month_start <= now_ms < self._month_end:
            self._take_month(now_ms)
        elapsed = now_ms - self._month_start
        if -_CLOCK_STEP_MS < elapsed < 0:
            elapsed = 0
        stem = f"{self._prefix}{elapsed & _ELAPSED_MASK:08X}"
        self._last_stem = now_ms, stem
        return stem

    def _take_month(self, now_ms: int) -> None:
        moment = datetime.fromtimestamp(now_ms / 1000).astimezone()
        start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        month, year = (1, start.year + 1) if start.month == 12 else (start.month + 1, start.year)
        end = start.replace(year=year, month=month)
        self._month_start, self._month_end = (
            round(datetime(one.year, one.month, 1).astimezone().timestamp() * 1000)
            for one in (start, end)
        )
