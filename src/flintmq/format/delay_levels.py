"""Delay levels: the durations that delayed messages can wait, numbered from one.

The text is one list of durations, split at single spaces: ``1s 5s 10s 30s 1m … 2h``.
"""

import re
from typing import Final, NamedTuple, Self

from flintmq.format.errors import DelayLevelsError
from flintmq.format.java import parse_int

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNKNOWN_LEVEL_DELAY_MS: Final = 1000
LEVEL_COUNT_MAX: Final = 1024
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ITEM: Final = re.compile(r"([0-9]{1,9})([smhd])")


class DelayLevels(NamedTuple):
    """The delays of a store, level one first, in milliseconds."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the levels that ``text`` lists."""
        items = text.split(" ") if text else []
        if len(items) > LEVEL_COUNT_MAX:
            raise DelayLevelsError(f"{len(items)} delay levels, the limit is {LEVEL_COUNT_MAX}")
        delays = []
        for number, item in enumerate(items, start=1):
            match = _ITEM.fullmatch(item)
            if match is None:
                raise DelayLevelsError(f"delay level {number} is no duration: {item!r}")
            delays.append(int(match[1]) * _UNIT_MS[match[2]])
        return cls(tuple(delays))

    @property
    def max_level(self) -> int:
        """The highest level there is."""
        return len(self.delays_ms)

    def level_of(self, text: str) -> int | None:
        """Return the level that the property DELAY names; None if it is no number.

        A level above the highest is the highest.  One below one means no delay.  This is the one
        reading of the property: a put refuses what is no number, and dispatch and rebuild make
        such a record due at once.
        """
        level = parse_int(text)
        return None if level is None else min(level, self.max_level)

    def delay_ms(self, level: int) -> int:
        """Return how long ``level`` waits; past the highest level, as long as that one.

        Without such a level (none is configured, or it is below one) it is one second.
        """
        if level < 1 or not self.delays_ms:
            return UNKNOWN_LEVEL_DELAY_MS
        return self.delays_ms[min(level, self.max_level) - 1]

    def due_time(self, level: int, store_timestamp: int) -> int:
        """Return when a message of ``level`` stored at ``store_timestamp`` is to be delivered."""
        return store_timestamp + self.delay_ms(level)
