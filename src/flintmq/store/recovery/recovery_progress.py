"""Words about how far a recovery is: for the log once a second, for whoever asks at any time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flintmq.store.clock import Clock

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
RECORDS_PER_LOOK: Final = 4096
"""Records after which the clock is looked at: to look for each would take longer than reading."""


class RecoveryProgress:
    """Tells how far a start has come: who asks, and the log if it takes long.

    One thread notes, any other may read `text`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said_at = clock.monotonic()
        self._looked_at_count = 0
        self.text = "the store is being opened"
        """What a start does now, in a few words."""

    def note(self, done: str, count: int, offset: int, end: int) -> None:
        """Learn that ``count`` records up to an offset are done, in the way that ``done`` names.

        There can be no more of them behind ``end``.
        """
        if 0 <= count - self._looked_at_count < RECORDS_PER_LOOK:
            return
        self._looked_at_count = count
        self.text = f"recovering: {done} {count} records, at {offset} of {end}"
        now = self._clock.monotonic()
        if now - self._said_at < INTERVAL_S:
            return
        self._said_at = now
        logger.info("recovering: %s %d records, at %d of %d", done, count, offset, end)
