"""One mapped file of the file system in memory."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Protocol

from flintmq.store.errors import StoreError
from flintmq.testing.simulated_disk import os_error
from flintmq.testing.simulated_inode import pages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from flintmq.store.clock import Clock
    from flintmq.store.files.interface import Buffer
    from flintmq.testing.simulated_inode import Inode


class FileSystem(Protocol):
    """The file system that a region belongs to: its disk, and the calls that it counts."""

    clock: Clock
    checks_reservations: bool

    def call(
        self,
        operation: str,
        path: Path,
        *,
        size: int = 0,
        short: bool = False,
        on_failure: Callable[[], None] | None = None,
    ) -> AbstractContextManager[object | None]:
        """Count a call, and stop or fail at it; a write is told when to write half and fail."""
        ...

    def reserve(self, inode: Inode, start: int, end: int) -> None:
        """Take blocks of the disk."""
        ...

    def sync_inode(self, inode: Inode) -> None:
        """Make the content of a file durable."""
        ...


class SimulatedRegion:
    """A ``MappedRegion`` of ``SimulatedFiles``."""

    def __init__(self, files: FileSystem, inode: Inode, path: Path, *, read_only: bool) -> None:
        """Map a file; every region of it shows the same bytes."""
        self.path = path
        self.size = len(inode.content)
        self.read_only = read_only
        view = memoryview(inode.content)
        self.view = view.toreadonly() if read_only else view
        self._files = files
        self._inode: Inode | None = inode
        self.advised: list[tuple[int, int]] = []
        """Ranges that the kernel was asked to read ahead."""
        self.expects_reads = False
        self.prepared: list[tuple[int, int]] = []
        """Ranges that were made ready to be written."""
        self.fast_from: list[int] = []
        """Positions from which much was going to be written."""
        self.written_out: list[tuple[int, int]] = []
        """Ranges that the disk was to begin with."""
        self.detached: list[tuple[int, int]] = []
        """Ranges that were to be synced next."""
        inode.region_count += 1

    def reserve(self, start: int, end: int) -> None:
        """Make sure that the disk has room for the bytes from ``start`` to ``end``."""
        inode = self._writable()
        assert 0 <= start <= end <= self.size, (start, end, self.size)
        if inode.reserved.issuperset(pages_of(start, end)):
            return
        with self._files.call("reserve", self.path, size=end - start):
            self._files.reserve(inode, start, end)

    def write(self, position: int, data: Buffer) -> None:
        """Write ``data`` at ``position``; the view shows it at once."""
        inode = self._writable()
        assert 0 <= position <= position + len(data) <= self.size, (position, len(data), self.size)
        with self._files.call("region_write", self.path, size=len(data), short=True) as fault:
            written = data[: len(data) // 2] if fault is not None else data
            end = position + len(written)
            self._files.reserve(inode, position, end)
            self.view[position:end] = written
            inode.touch(pages_of(position, end))
            inode.modified_ms = self._files.clock.now_ms()
            if fault is not None:
                raise os_error(errno.ENOSPC)

    def sync(self) -> None:
        """Make every byte written so far durable, through the view or not."""
        if self.read_only:
            return
        inode = self._writable()
        if self._files.checks_reservations:
            unreserved = inode.unreserved_pages()
            assert not unreserved, f"{self.path}: written without being reserved: {unreserved}"
        with self._files.call("region_sync", self.path, on_failure=inode.drop):
            self._files.sync_inode(inode)

    def advise_will_need(self, start: int, size: int) -> None:
        """Note what was asked for: everything is in memory."""
        self.advised.append((start, size))

    def expect_reads(self) -> None:
        """Note it: everything is in memory."""
        self.expects_reads = True

    def is_resident(self, start: int, size: int) -> bool:
        """Tell that everything is in memory."""
        return True

    def prepare_pages(self, start: int, size: int) -> None:
        """Note the range; everything is in memory."""
        inode, end = self._writable(), min(start + size, self.size)
        if self._files.checks_reservations:
            is_reserved = inode.reserved.issuperset(pages_of(start, end))
            assert is_reserved, f"{self.path}: to be written without being reserved"
        self.prepared.append((start, end - start))

    def expect_fast_growth(self, start: int) -> None:
        """Note it: everything is in memory."""
        self.fast_from.append(start)

    def begin_write_out(self, start: int, size: int) -> None:
        """Note it: what was not synced may be lost all the same."""
        self.written_out.append((start, size))

    def detach_pages(self, start: int, size: int) -> None:
        """Note it: everything is in memory."""
        self.detached.append((start, size))

    def load(self, start: int, size: int) -> None:
        """Do nothing: everything is in memory."""

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield the rest of the file from ``start``, if there is any."""
        if start < self.size:
            yield start, self.size

    def warm(self) -> None:
        """Write zeros over a file that was just created."""
        self.write(0, bytes(self.size))

    def close(self) -> None:
        """Release the view; a second call does nothing.  It is no call that could crash."""
        inode, self._inode = self._inode, None
        if inode is None:
            return
        view, self.view = self.view, memoryview(b"")
        inode.region_count -= 1
        try:
            view.release()
            if inode.region_count == 0:
                # A bytearray refuses to grow while anybody has a view of it.
                inode.content.append(0)
                del inode.content[-1:]
        except BufferError as error:
            raise StoreError(f"{self.path}: closed while it is still read") from error

    def _writable(self) -> Inode:
        if self._inode is None:
            raise StoreError(f"{self.path}: used after it was closed")
        if self.read_only:
            raise StoreError(f"{self.path}: opened for reading only")
        return self._inode
