"""Flushing: who waits for the disk, and what they are told.

An acknowledgement is honest here.  A waiter is completed with PUT_OK only after ``fdatasync`` of
every byte up to its offset has returned without error.  After one failure nothing is flushed
again: the kernel may have dropped the dirty pages and would report the next sync as a success.
The store turns read-only instead, and says why.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from flintmq.metrics.histograms import LatencyHistogram
from flintmq.store.errors import FlushFailedError, StoreError
from flintmq.store.results import PutStatus
from flintmq.store.running_flags import RunningFlag, RunningFlags
from flintmq.store.wake_up import WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.store.clock import Clock
    from flintmq.store.log.commit_log import CommitLog

logger = logging.getLogger(__name__)


class FlushWaiter(NamedTuple):
    """Somebody who must know when the log is on the disk up to ``offset``."""

    offset: int
    deadline_ms: int
    done: Callable[[PutStatus, str], None]


class LogFlusher:
    """Brings the log to stable storage and completes those who wait for it.

    ``flush`` may be called from one thread at a time; waiters may be added from any thread.
    Callbacks run in the thread that flushed.
    """

    def __init__(self, log: CommitLog, *, flags: RunningFlags, clock: Clock) -> None:
        self._log = log
        self._flags = flags
        self._clock = clock
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._waiters: deque[FlushWaiter] = deque()
        self.wanted = WakeUp()
        self.failure: FlushFailedError | None = None
        self.latency = LatencyHistogram()
        self.flushed_timestamp = 0

    @property
    def has_waiters(self) -> bool:
        """Whether anybody waits for the disk."""
        return bool(self._waiters)

    @property
    def flushed_offset(self) -> int:
        """Every byte of the log below this offset is on stable storage."""
        return self._log.files.flushed_where

    @property
    def unflushed_bytes(self) -> int:
        """How much a power failure could take now."""
        return max(self._log.end_offset - self.flushed_offset, 0)

    def when_flushed(
        self, offset: int, done: Callable[[PutStatus, str], None], *, timeout_ms: int
    ) -> None:
        """Call ``done`` once the log is flushed up to ``offset``, has failed, or time is up."""
        with self._lock:
            failure = self.failure
            if failure is None and self.flushed_offset < offset:
                self._waiters.append(FlushWaiter(offset, self._clock.now_ms() + timeout_ms, done))
                self.wanted.set()
                return
        if failure is not None and self.flushed_offset < offset:
            done(PutStatus.SERVICE_NOT_AVAILABLE, str(failure))
        else:
            done(PutStatus.PUT_OK, "")

    def flush(self, least_pages: int = 0) -> bool:
        """Sync what was written when this was called; return whether anything moved.

        Raises:
            FlushFailedError: the disk refused; the store is read-only from here on.
        """
        with self._flush_lock:
            if self.failure is not None:
                raise self.failure
            files = self._log.files
            target = files.max_offset
            moved = False
            try:
                while files.flushed_where < target:
                    began = self._clock.monotonic()
                    if not files.flush(least_pages):
                        break
                    moved = True
                    self.latency.record(int((self._clock.monotonic() - began) * 1_000_000))
            except StoreError as error:
                self._fail(error)
                raise self.failure from error  # type: ignore[misc]
            if moved and files.store_timestamp:
                self.flushed_timestamp = files.store_timestamp
        self._complete()
        return moved

    def _fail(self, error: StoreError) -> None:
        failure = (
            error
            if isinstance(error, FlushFailedError)
            else FlushFailedError(self._log.files.placement.directories[0], error)
        )
        self._flags.set(RunningFlag.SYNC_FAILED, str(failure))
        self._complete()  # Files before the one that failed are on the disk.
        with self._lock:
            self.failure = failure
            waiters = list(self._waiters)
            self._waiters.clear()
        logger.error("store is read-only: %s; waiting_puts=%d", failure, len(waiters))
        for waiter in waiters:
            waiter.done(PutStatus.SERVICE_NOT_AVAILABLE, str(failure))

    def _complete(self) -> None:
        """Tell everybody below the flushed offset; waiters need not come in its order."""
        with self._lock:
            flushed = self.flushed_offset
            done = [waiter for waiter in self._waiters if waiter.offset <= flushed]
            if done:
                self._waiters = deque(w for w in self._waiters if w.offset > flushed)
        for waiter in done:
            waiter.done(PutStatus.PUT_OK, "")

    def expire(self) -> int:
        """Tell those whose time is up that their message is stored but not flushed yet."""
        now = self._clock.now_ms()
        with self._lock:
            late = [waiter for waiter in self._waiters if waiter.deadline_ms <= now]
            if late:
                self._waiters = deque(w for w in self._waiters if w.deadline_ms > now)
        for waiter in late:
            waiter.done(PutStatus.FLUSH_DISK_TIMEOUT, "not flushed within syncFlushTimeout")
        return len(late)
