"""Space of queues and of the key index that is made ready before they grow into it, by a thread.

Units and entries are written into mapped memory, on the event loop of a broker.  To reserve space
on the disk, and to write to a page for the first time, may wait for the journal of the file system:
mostly microseconds, now and then tens of milliseconds, in which everybody waits.  So whoever has
used up a step of its space says what it will need next.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from flintmq.store.errors import StoreError
from flintmq.store.wake_up import WakeUp

if TYPE_CHECKING:
    from flintmq.store.files.interface import MappedRegion

logger = logging.getLogger(__name__)

WAITING_COUNT_MAX: Final = 1024
"""Ranges that wait to be made ready; more are left to whoever grows into them."""


class GrowingFile(Protocol):
    """A file that can be kept from being unmapped."""

    @property
    def region(self) -> MappedRegion:
        """Where it is mapped."""
        ...

    def hold(self) -> bool:
        """Keep it mapped until `release`; return False if it is not any more."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...


class _Range(NamedTuple):
    """A part of a file that is needed soon."""

    file: GrowingFile
    start: int
    end: int


class SpaceAhead:
    """Reserves space and makes its pages ready; `step` is the work of a thread."""

    def __init__(self) -> None:
        self.wanted = WakeUp()
        """Is set whenever there is something to do."""
        self._waiting: deque[_Range] = deque()

    def ask(self, file: GrowingFile, start: int, end: int) -> None:
        """Have a part of a file made ready, as far as the file goes; never waits."""
        end = min(end, file.region.size)
        if start < end and len(self._waiting) < WAITING_COUNT_MAX:
            self._waiting.append(_Range(file, start, end))
            self.wanted.set()

    def step(self) -> int:
        """Make ready what was asked for; return how many bytes that was.

        What cannot be is left to whoever grows into it, who meets the same and says so.
        """
        done = 0
        while self._waiting:
            file, start, end = self._waiting.popleft()
            if not file.hold():
                continue
            try:
                file.region.reserve(start, end)
                file.region.prepare_pages(start, end - start)
                done += end - start
            except StoreError:
                logger.debug("no space made ready: file=%s", file.region.path, exc_info=True)
            finally:
                file.release()
        return done
