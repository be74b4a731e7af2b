"""One mapped file of a queue: its positions, and who still reads it.

A file is written from its start to its end and never changed after that.  Three positions tell
how far: ``wrote`` (appended), ``committed`` (copied from a write buffer into the file) and
``flushed`` (durable).  A file loaded from disk counts as full until recovery moves them.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from flintmq.store.errors import FlushFailedError, StoreError
from flintmq.store.files.interface import Buffer, Files, MappedRegion

if TYPE_CHECKING:
    from flintmq.store.files.transient_pool import TransientPool

logger = logging.getLogger(__name__)

PAGE_SIZE: Final = 4096
"""The page of the flush predicates: RocketMQ's constant, not the page of the machine."""
DETACHED_SIZE_MIN: Final = 64 << 10
"""Of so many bytes the pages are let go before they are synced; for less it would not pay."""


class Slice:
    """A readable range of a mapped file, which stays mapped until the slice is released."""

    __slots__ = ("_file", "size", "start", "view")

    def __init__(self, file: MappedFile, position: int, size: int) -> None:
        """Cut the range out of a file that was held for this slice."""
        self.start = file.first_offset + position
        self.size = size
        self.view = file.view[position : position + size]
        self._file: MappedFile | None = file

    def release(self) -> None:
        """Give the range up; a second call does nothing, and the view must not be used again."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            self.view.release()
        except BufferError:
            # That keeps the memory mapped, and is reported again when the file is closed.
            logger.warning("slice released while it is read: offset=%d", self.start)
        file.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class MappedFile:
    """A mapped file with its positions and its count of holders.

    One thread appends; others may flush, commit, read and delete.  Whoever touches the region
    from another thread, or keeps a view, *holds* the file meanwhile: the mapping is closed by the
    last ``release`` after ``shutdown``.  RocketMQ unmaps a file under its readers when they take
    too long.  Here that is impossible (Python refuses to unmap what is still viewed) and not
    needed: the name is removed instead, and the mapping goes with its last reader.
    """

    __slots__ = (
        "_available",
        "_closed",
        "_files",
        "_holders",
        "_lock",
        "_pool",
        "_removed",
        "_shutdown_ms",
        "committed",
        "first_in_queue",
        "first_offset",
        "flushed",
        "region",
        "size",
        "store_timestamp",
        "view",
        "write_buffer",
        "wrote",
    )

    def __init__(
        self,
        region: MappedRegion,
        first_offset: int,
        *,
        files: Files,
        loaded: bool = False,
        first_in_queue: bool = False,
        pool: TransientPool | None = None,
    ) -> None:
        """Take over ``region``; a new file borrows a write buffer when a pool has one left."""
        self.region = region
        self.view = region.view
        self.first_offset = first_offset
        self.size = region.size
        self.first_in_queue = first_in_queue
        self.store_timestamp = 0
        self.wrote = self.committed = self.flushed = region.size if loaded else 0
        assert pool is None or pool.size >= region.size, (pool.size, region.size)
        self.write_buffer = pool.borrow() if pool is not None and not loaded else None
        self._pool = pool
        self._files = files
        self._lock = threading.Lock()
        self._holders = 1
        self._available = True
        self._closed = False
        self._removed = False
        self._shutdown_ms = 0

    def __repr__(self) -> str:
        return f"<MappedFile {self.path.name} wrote={self.wrote} flushed={self.flushed}>"

    # -- positions ---------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.region.path

    @property
    def readable(self) -> int:
        """Where readable bytes end: what is in the file, not what waits in a write buffer."""
        return self.wrote if self.write_buffer is None else self.committed

    @property
    def end_offset(self) -> int:
        """The offset after the last byte this file can hold."""
        return self.first_offset + self.size

    @property
    def is_full(self) -> bool:
        """Whether nothing can be appended any more."""
        return self.wrote == self.size

    def set_positions(self, position: int) -> None:
        """Declare that the content ends at ``position`` and is durable up to there."""
        assert 0 <= position <= self.size, position
        self.wrote = self.committed = self.flushed = position

    # -- appending and reading ---------------------------------------------------------------

    def append(self, data: Buffer) -> bool:
        """Copy ``data`` behind what was appended; return False when there is no room for it."""
        assert self.write_buffer is None, "raw bytes would overtake those in the write buffer"
        start = self.wrote
        end = start + len(data)
        if end > self.size:
            return False
        self.view[start:end] = data
        self.wrote = end
        return True

    def select(self, position: int, size: int | None = None) -> Slice | None:
        """Return readable bytes at ``position``: ``size`` of them, or all to the readable end.

        None when they are not all readable, or when the file is being deleted.
        """
        readable = self.readable
        if size is None:
            size = readable - position
            if size == 0:
                return None
        if position < 0 or size < 0 or position + size > readable or not self.hold():
            return None
        return Slice(self, position, size)

    # -- committing and flushing -------------------------------------------------------------

    def able_to_flush(self, least_pages: int) -> bool:
        """Tell whether a flush is worth it: so many pages are dirty, or the file is full.

        With no least number of pages, any readable byte that is not flushed counts.
        """
        return self._far_enough(self.flushed, self.readable, least_pages)

    def able_to_commit(self, least_pages: int) -> bool:
        """Tell the same of bytes in the write buffer that are not committed."""
        return self._far_enough(self.committed, self.wrote, least_pages)

    def _far_enough(self, done: int, reached: int, least_pages: int) -> bool:
        if reached == done:
            return False
        if self.wrote == self.size or least_pages <= 0:
            return reached > done
        return reached // PAGE_SIZE - done // PAGE_SIZE >= least_pages

    def flush(self, least_pages: int = 0) -> int:
        """Make what is readable durable if enough of it is not; return the flushed position.

        The position moves only to what was readable before the sync began, and only when the sync
        succeeds.  A failure raises FlushFailedError, and must be the last flush of this file: the
        kernel reports a lost page once and then takes it for clean.
        """
        if not self.able_to_flush(least_pages):
            return self.flushed
        reached = self.readable
        if not self.hold():
            # The file is being deleted.  What nobody will read any more needs no flush, and must
            # not keep the queue from flushing the next file.
            self.flushed = reached
            return reached
        try:
            if reached - self.flushed >= DETACHED_SIZE_MIN:
                self.region.detach_pages(self.flushed, reached - self.flushed)
            self.region.sync()
        except StoreError as error:
            # A file that was deleted meanwhile may have no name to open it by; see above.
            if self._available:
                raise FlushFailedError(self.path, error) from error
        finally:
            self.release()
        self.flushed = reached
        return reached

    def commit(self, least_pages: int = 0) -> int:
        """Copy the write buffer into the file if enough of it waits; return the committed position.

        A full file returns its buffer to the pool.  Without a buffer everything is committed.
        """
        buffer = self.write_buffer
        if buffer is None:
            self.committed = self.wrote
            return self.committed
        reached = self.wrote
        if self.able_to_commit(least_pages) and self.hold():
            try:
                self.region.write(self.committed, buffer[self.committed : reached])
            finally:
                self.release()
            self.committed = reached
        if self.committed == self.size:
            self._return_buffer()
        return self.committed

    def _return_buffer(self) -> None:
        with self._lock:
            buffer, self.write_buffer = self.write_buffer, None
        if buffer is not None:
            assert self._pool is not None
            self._pool.give_back(buffer)

    # -- lifetime ----------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether the file can be held; once it is shut down it never can again."""
        return self._available

    @property
    def closed(self) -> bool:
        """Whether the mapping is gone."""
        return self._closed

    def hold(self) -> bool:
        """Keep the file mapped until ``release``; return False when it is being deleted."""
        with self._lock:
            if not self._available:
                return False
            self._holders += 1
            return True

    def release(self) -> None:
        """End one hold; the last one after ``shutdown`` closes the mapping."""
        with self._lock:
            assert self._holders > 0, "released more often than held"
            self._holders -= 1
            if self._holders or self._closed:
                return
            self._closed = True
        self._close_region()

    def shutdown(self, now_ms: int) -> None:
        """Refuse new holders; the mapping is closed as soon as the present ones are gone."""
        with self._lock:
            if not self._available:
                return
            self._available = False
            self._shutdown_ms = now_ms
        self.release()

    def destroy(self, now_ms: int, *, forced_after_ms: int = 0) -> bool:
        """Shut the file down and remove it; return whether it is gone from the directory.

        While somebody reads it the name stays, and the answer is False, until ``forced_after_ms``
        have passed since the first attempt.  StoreIOError means that the name could not be
        removed; call again later.
        """
        self.shutdown(now_ms)
        if self._removed:
            return True
        if not self._closed:
            if now_ms - self._shutdown_ms < forced_after_ms:
                return False
            logger.warning("file removed while it is read: file=%s", self.path)
        self._files.remove(self.path, missing_ok=True)
        self._removed = True
        return True

    def _close_region(self) -> None:
        self.view = memoryview(b"")
        self._return_buffer()
        try:
            self.region.close()
        except StoreError as error:
            # The mapping lives on under the view somebody kept, and goes with it.
            logger.warning("a reader did not hold its file: reason=%s", error)
