"""Pages of the log that are made ready before records get there, by a thread.

An append writes into mapped memory, and it does so on the event loop of a broker: whatever the
kernel has to do for a page that was never written holds up everybody.  So the log tells when it has
grown by a step, and a thread has the next pages made ready, in large pieces.  A log that grows
slowly is left alone: its pages would be synced as zeros, and again with their records.

Where every record is synced the pages are written as zeros all the same.  A file system notes in
its journal which parts of a reserved file were never written, and a sync of the first record in
such a part has to wait for the journal too: with it, it takes half as long again as without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flintmq.store.wake_up import WakeUp

if TYPE_CHECKING:
    from flintmq.store.clock import Clock
    from flintmq.store.files.mapped_file import MappedFile

AHEAD_SIZE: Final = 2 << 20
"""Bytes that are ready ahead of the end of the log."""
STEP_SIZE: Final = 512 << 10
"""The log tells each time when it has grown by so much."""
FAST_STEP_S: Final = 0.25
"""A log that takes longer for a step grows slowly: some MiB a second."""


class GrowingLog(Protocol):
    """What has to be known of a log."""

    durable_reads: bool
    """Whether every record is synced before it can be read."""

    @property
    def tail(self) -> MappedFile | None:
        """The file that takes the next record."""
        ...


class PagesAhead:
    """Makes the next pages of a growing log ready; `step` is the work of a thread."""

    def __init__(self, log: GrowingLog, *, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self.wanted = WakeUp()
        """Is set whenever the log has grown by a step."""
        self._file: MappedFile | None = None
        self._ready_end = 0
        """Up to where the pages of that file are ready."""
        self._fast_file: MappedFile | None = None
        """The file that is known to grow fast."""
        self._stepped_at = float("-inf")

    def step(self) -> int:
        """Make pages ready if the log grows fast; return how many bytes were."""
        now, file = self._clock.monotonic(), self._log.tail
        is_fast, self._stepped_at = now - self._stepped_at <= FAST_STEP_S, now
        is_synced = self._log.durable_reads
        if not (is_fast or is_synced) or file is None or file.write_buffer is not None:
            return 0
        if file is not self._file:
            self._file, self._ready_end = file, 0
        wrote = file.wrote
        start, end = max(self._ready_end, wrote), min(wrote + AHEAD_SIZE, file.size)
        is_worth_it = end - start >= STEP_SIZE or start < end == file.size
        if not is_worth_it or not file.hold():
            return 0
        try:
            # A sync of one record would write a large piece whole.
            if not is_synced and file is not self._fast_file:
                file.region.expect_fast_growth(start)
                self._fast_file = file
            file.region.prepare_pages(start, end - start)
            if is_synced:
                file.region.begin_write_out(start, end - start)
        finally:
            file.release()
        self._ready_end = end
        return end - start
