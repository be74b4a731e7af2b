"""Reads that have to wait for the disk: they wait in threads, and everybody else is served."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from flintmq.store.reading.cold_reads import load_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from flintmq.store.reading.cold_reads import ColdRange

THREAD_COUNT: Final = 4
"""Threads that wait for the disk; a disk is not faster for more of them."""
ROUND_COUNT_MAX: Final = 3
"""How often a read asks what is cold: units, their records, and once more."""


class ColdLoads:
    """Loads what is cold before somebody reads it on the event loop."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self.count = 0
        """How many times something had to be loaded."""

    async def load(self, cold_ranges: Callable[[], Sequence[ColdRange]]) -> None:
        """Load what ``cold_ranges`` tells, until it tells nothing more or has been asked enough.

        Memory that is short may lose pages as fast as they come; whoever reads then waits on the
        loop after all, for a page or two.
        """
        for _ in range(ROUND_COUNT_MAX):
            ranges = cold_ranges()
            if not ranges:
                return
            self.count += 1
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._made_threads(), load_ranges, ranges)

    def _made_threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(THREAD_COUNT, "flintmq-cold-loads")
        return self._threads

    def close(self) -> None:
        """End the threads; what they still read is read to its end."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
