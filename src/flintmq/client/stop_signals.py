"""Signals that end a program: SIGTERM from whoever runs it, SIGINT from its user."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Whether one of `SIGNALS` has come, and what to do then."""

    def __init__(self) -> None:
        self._has_come = False
        self._stop: Callable[[], object] | None = None

    def connect(self, stop: Callable[[], object]) -> None:
        """Call ``stop`` when a signal comes, now if one has come already."""
        self._stop = stop
        if self._has_come:
            stop()

    def come(self) -> None:
        """Learn that a signal has come."""
        self._has_come = True
        if self._stop is not None:
            self._stop()


@contextlib.contextmanager
def stopping_signals() -> Iterator[StopSignals]:
    """Take the first of `SIGNALS` that comes within the block.

    After that, and after the block, signals do what they did before.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("signals reach the main thread only: use start, wait and close elsewhere")
    signals = StopSignals()

    def take(number: int, frame: FrameType | None) -> None:
        restore()
        signals.come()

    before = {number: signal.signal(number, take) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield signals
    finally:
        restore()
