"""Notices turns of the event loop that take too long, and says what held them.

One loop serves everyone, so whatever takes long in it makes all clients wait.  Work with a name,
such as requests and housekeeping, is measured where it is done.  Everything else is found by a
thread: it asks the loop for a sign of life again and again, and if none comes in time it looks at
what the loop is doing.  Where that thread cannot run either, a call has held the interpreter or the
machine has held the process; processor time tells which, and the garbage collector tells of itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger(__name__)

PACKAGE: Final = "flintmq."
COMMANDS: Final = "flintmq.cli."
CAUSE_COUNT_MAX: Final = 64
"""Causes that are counted by themselves; more are counted together."""
OTHER_CAUSES: Final = "others"
NOT_OURS: Final = "outside of flintmq"
COLLECTION: Final = "garbage collection"
HELD_BUSY: Final = "no thread could run: a call computed"
HELD_IDLE: Final = "no thread could run: a call waited, or the process was held"
BUSY_SHARE: Final = 0.5
"""The share of a turn in processor time from which on it counts as computing."""
LOG_INTERVAL_S: Final = 10.0
"""Between two lines about one cause; turns in between are counted in the next line."""
ALWAYS_LOGGED_MS: Final = 1000
"""A turn that takes so long has a line of its own, and one before it ends: it may never end."""
LOG_START: Final = "turn of the loop took long"
HELD_START: Final = "the loop is held"


class LongTurns:
    """The long turns that one cause has led to."""

    __slots__ = ("count", "logged_at", "unlogged_count", "worst_ms")

    def __init__(self) -> None:
        self.count = 0
        self.worst_ms = 0
        self.logged_at: float | None = None
        self.unlogged_count = 0


class TurnWatchdog:
    """Counts and logs long turns of the loop it is made in, by their causes.

    ``threshold_ms`` tells what is long; with 0 nothing is.  ``now`` is a clock in seconds that
    goes on within a turn, ``processor_time`` one of what all threads have computed.
    """

    def __init__(
        self,
        threshold_ms: int,
        *,
        now: Callable[[], float] = time.monotonic,
        processor_time: Callable[[], float] = time.process_time,
    ) -> None:
        self.threshold_ms = threshold_ms
        self._now = now
        self._processor_time = processor_time
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self.by_cause: dict[str, LongTurns] = {}
        self._noted_at = -1.0
        """When a long turn was noted last."""
        self._asked_at: float | None = None
        """When the loop was asked for the sign of life that has not come yet."""
        self._asked_processor_time = 0.0
        self._place: str | None = None
        """What the loop was doing while it was waited for."""
        self._collection_began = 0.0
        self._next_told_ms = ALWAYS_LOGGED_MS
        """How long the loop has to be held for the next line that says so."""

    @property
    def count(self) -> int:
        """Long turns so far."""
        return sum(one.count for one in self.by_cause.values())

    @property
    def worst_ms(self) -> int:
        """The longest turn so far, in milliseconds; 0 if none was long."""
        return max((one.worst_ms for one in self.by_cause.values()), default=0)

    def runtime_info(self) -> dict[str, str]:
        """Return the counts by names of our own."""
        causes = sorted(self.by_cause.items(), key=lambda pair: -pair[1].worst_ms)
        return {
            "longTurnCount": str(self.count),
            "longTurnWorstMillis": str(self.worst_ms),
            "longTurnCauses": "; ".join(
                f"{cause}: {one.count}, worst {one.worst_ms} ms" for cause, one in causes
            ),
        }

    # -- work with a name --------------------------------------------------------------------

    @contextlib.contextmanager
    def measure(self, cause: str) -> Iterator[None]:
        """Note the work of the context if it takes long; it must not await anything."""
        began = self._now()
        try:
            yield
        finally:
            self.note_since(began, cause)

    def note_since(self, began: float, cause: str) -> None:
        """Note work that began at a time of the clock and ends now, if it took long."""
        seconds = self._now() - began
        if 0 < self.threshold_ms <= seconds * 1000:
            self.note(cause, seconds)

    def note(self, cause: str, seconds: float) -> None:
        """Note work that has just ended and took long."""
        now = self._noted_at = self._now()
        elapsed_ms = round(seconds * 1000)
        if cause not in self.by_cause and len(self.by_cause) >= CAUSE_COUNT_MAX:
            cause = OTHER_CAUSES
        turns = self.by_cause.setdefault(cause, LongTurns())
        turns.count += 1
        turns.worst_ms = max(turns.worst_ms, elapsed_ms)
        is_silent = turns.logged_at is not None and now - turns.logged_at < LOG_INTERVAL_S
        if is_silent and elapsed_ms < ALWAYS_LOGGED_MS:
            turns.unlogged_count += 1
            return
        logger.warning(
            "%s: cause=%s ms=%d count=%d unlogged=%d",
            LOG_START,
            cause,
            elapsed_ms,
            turns.count,
            turns.unlogged_count,
        )
        turns.logged_at, turns.unlogged_count = now, 0

    # -- everything else ---------------------------------------------------------------------

    @contextlib.contextmanager
    def watching(self) -> Iterator[Self]:
        """Watch the loop from a thread while the context lasts."""
        if not self.threshold_ms:
            yield self
            return
        thread = threading.Thread(target=self._watch, name="flintmq-turn-watchdog", daemon=True)
        thread.start()
        gc.callbacks.append(self._collects)
        try:
            yield self
        finally:
            gc.callbacks.remove(self._collects)
            self._stopped.set()
            thread.join()

    def _collects(self, phase: str, _: dict[str, int]) -> None:
        """Measure a pass of the garbage collector, which holds every thread, whichever it is in."""
        if phase == "start":
            self._collection_began = self._now()
        else:
            self.note_since(self._collection_began, COLLECTION)

    def _watch(self) -> None:
        # A loop that is closed needs no watching any more.
        with contextlib.suppress(RuntimeError):
            while not self._stopped.wait(self.threshold_ms / 1000):
                self.look()

    def look(self) -> None:
        """Ask the loop for a sign of life; if one is still owed, see what the loop is doing.

        A turn that goes on and on is told of while it does, each time that it has doubled.
        """
        asked_at = self._asked_at
        if asked_at is None:
            self._next_told_ms = ALWAYS_LOGGED_MS
            self._asked_processor_time = self._processor_time()
            self._place, self._asked_at = None, self._now()
            self._loop.call_soon_threadsafe(self._show_life)
            return
        held_ms = round((self._now() - asked_at) * 1000)
        is_told = held_ms >= self._next_told_ms
        if self._place is None or is_told:
            self._place = place_of(sys._current_frames().get(self._loop_thread))
        if is_told:
            self._next_told_ms = 2 * held_ms
            logger.warning("%s: cause=%s ms=%d", HELD_START, self._place, held_ms)

    def _show_life(self) -> None:
        asked_at, self._asked_at = self._asked_at, None
        # What was measured where it was done is not counted twice.
        if asked_at is not None and self._noted_at < asked_at:
            self.note_since(asked_at, self._place or self._holder(asked_at))

    def _holder(self, asked_at: float) -> str:
        """Tell what held the loop and the thread that wanted to look at it."""
        computed = self._processor_time() - self._asked_processor_time
        return HELD_BUSY if computed >= BUSY_SHARE * (self._now() - asked_at) else HELD_IDLE


def place_of(frame: FrameType | None) -> str:
    """Return the innermost function of ours that a stack is in."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        # A command has started the loop; it is on the stack even if the loop has nothing to do.
        if module.startswith(PACKAGE) and not module.startswith(COMMANDS):
            return f"{module.removeprefix(PACKAGE)}.{frame.f_code.co_name}"
        frame = frame.f_back
    return NOT_OURS
