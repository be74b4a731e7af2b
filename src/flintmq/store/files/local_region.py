"""One mapped file of the machine's file system."""

import contextlib
import errno
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

from flintmq.store.errors import DiskFullError, StoreError, StoreIOError
from flintmq.store.files.descriptor_pool import DescriptorPool
from flintmq.store.files.file_map import FileMap, map_file
from flintmq.store.files.page_preparation import (
    PIECE_SIZE,
    begin_write_out,
    detach_written,
    prepare_for_writing,
    use_large_pieces,
)
from flintmq.store.files.page_residency import are_resident

_BLOCK_SIZE: Final = 4096
_WARM_CHUNK_SIZE: Final = 1 << 20
_LOAD_CHUNK_SIZE: Final = 256 << 10
_NO_DESCRIPTOR: Final = -1
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class TypedErrors:
    """Turns an OSError into DiskFullError, naming the ``size`` wanted, or into StoreIOError."""

    # No generator: it stands around every call of the system, and would cost more than some.
    __slots__ = ("_operation", "_path", "_size")

    def __init__(self, path: Path, operation: str, *, size: int = 0) -> None:
        self._path = path
        self._operation = operation
        self._size = size

    def __enter__(self) -> None:
        """Begin; there is nothing to do."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise the typed error in place of an OSError; let everything else pass."""
        if isinstance(error, OSError):
            raise _typed(error, self._path, self._operation, self._size) from error


def _typed(error: OSError, path: Path, operation: str, size: int = 0) -> StoreError:
    if error.errno in _DISK_FULL:
        return DiskFullError(path, size)
    return StoreIOError(path, operation, error)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position``, however little a single call takes."""
    with memoryview(data) as rest:
        written = 0
        while written < len(rest):
            count = os.pwrite(descriptor, rest[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, "nothing was written")
            written += count


class LocalRegion:
    """A ``MappedRegion`` made of a map and a descriptor for what a map cannot do.

    ``mmap.flush`` holds the interpreter lock while the disk works; ``os.fdatasync`` does not, and
    writes mapped pages too.  The descriptor is opened when it is first needed, because most files
    of a store are only read, and is let go when others need theirs (`DescriptorPool`).  The map may
    keep a second one of its own (`file_map`).
    """

    def __init__(self, path: Path, descriptor: int, size: int, *, read_only: bool) -> None:
        """Map the file behind ``descriptor``, which stays the caller's."""
        self.path = path
        self.size = size
        self.read_only = read_only
        self._map: FileMap | None = map_file(descriptor, size, read_only=read_only)
        self.view = self._map.view
        self._identity = _identity(descriptor)
        self.pool: DescriptorPool | None = None
        """Who bounds how many files have a descriptor; nobody if None."""
        self._descriptor = _NO_DESCRIPTOR
        self._user_count = 0
        """How many calls are using the descriptor."""
        self._descriptor_lock = threading.Lock()
        self._reserved = (0, 0)
        """A range that is known to be reserved; another thread may add to it."""
        self._reserved_lock = threading.Lock()
        self._expects_writes = False

    def keep(self, descriptor: int, *, reserved: bool) -> None:
        """Take over the descriptor of a file that was just made, reserved to its end or not."""
        self._descriptor = descriptor
        self._expect_writes()
        self._reserved = (0, self.size if reserved else 0)
        if self.pool is not None:
            self.pool.opened(self)

    def reserve(self, start: int, end: int) -> None:
        """Make sure that the disk has room for the bytes from ``start`` to ``end``."""
        known_start, known_end = self._reserved
        if known_start <= start and end <= known_end:
            return
        assert 0 <= start <= end <= self.size, (start, end, self.size)
        start -= start % _BLOCK_SIZE
        end = min(end + -end % _BLOCK_SIZE, self.size)
        if start == end:
            return
        with (
            TypedErrors(self.path, "reserve", size=end - start),
            self._writable() as descriptor,
        ):
            os.posix_fallocate(descriptor, start, end - start)
            self._expect_writes()
        with self._reserved_lock:
            known_start, known_end = self._reserved
            if start <= known_end and end >= known_start:
                start, end = min(start, known_start), max(end, known_end)
            self._reserved = (start, end)

    def _expect_writes(self) -> None:
        """Have the kernel read nothing ahead of what is written: only zeros are there.

        It would fill as many pages with zeros as a disk is read ahead, without a pause, before the
        first of them can be written: 8 MiB in 18 ms where that is set for fast disks.  And it would
        keep up to 2 MiB of them in one piece, which a sync writes whole if a byte has changed.
        """
        if not self._expects_writes:
            self._expects_writes = True
            # Random access is what ends reading ahead.
            self._advise(mmap.MADV_RANDOM)

    def _advise(self, advice: int) -> None:
        if self._map is not None:
            with contextlib.suppress(OSError):
                self._map.advise(0, self.size, advice)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` at ``position`` by system calls; the view shows it at once."""
        assert 0 <= position <= position + len(data) <= self.size, (position, len(data), self.size)
        with (
            TypedErrors(self.path, "write", size=len(data)),
            self._writable() as descriptor,
        ):
            write_all(descriptor, data, position)

    def sync(self) -> None:
        """Make every byte written so far durable, through the view or not."""
        if self.read_only:
            return
        # Without context managers: whoever waits for the disk waits for them as well.
        try:
            descriptor = self._take_descriptor()
            try:
                os.fdatasync(descriptor)
            finally:
                self._give_descriptor_back()
        except OSError as error:
            raise _typed(error, self.path, "sync") from error

    def advise_will_need(self, start: int, size: int) -> None:
        """Ask the kernel to read a range ahead."""
        end = min(start + size, self.size)
        start -= start % mmap.PAGESIZE
        if self._map is None or end <= start:
            return
        with TypedErrors(self.path, "advise"):
            self._map.advise(start, end - start, mmap.MADV_WILLNEED)

    def expect_reads(self) -> None:
        """Have the kernel read ahead again, since nothing more is written."""
        if self._expects_writes:
            self._expects_writes = False
            self._advise(mmap.MADV_NORMAL)

    def is_resident(self, start: int, size: int) -> bool:
        """Whether a range is in memory, so that the view can be read without the disk."""
        end = min(start + size, self.size)
        if self._map is None or self.read_only or end <= start:
            return True
        first = start - start % mmap.PAGESIZE
        return are_resident(self._map.address + first, end - first)

    def prepare_pages(self, start: int, size: int) -> None:
        """Make a range ready to be written through the view, where the system can do that."""
        end = min(start + size, self.size)
        if self._map is None or self.read_only or end <= start:
            return
        first = start - start % mmap.PAGESIZE
        prepare_for_writing(self._map.address + first, end - first)

    def expect_fast_growth(self, start: int) -> None:
        """Have all that is written from about a position on kept in large pieces."""
        first = start - start % PIECE_SIZE
        if self._map is not None and not self.read_only and first < self.size:
            use_large_pieces(self._map.address + first, self.size - first)

    def begin_write_out(self, start: int, size: int) -> None:
        """Have the kernel begin to write a range; if that fails, the next sync does."""
        end = min(start + size, self.size)
        if self._map is None or self.read_only or end <= start:
            return
        with TypedErrors(self.path, "write out"), self._writable() as descriptor:
            begin_write_out(descriptor, start, end - start)

    def detach_pages(self, start: int, size: int) -> None:
        """Let the whole pages of a range that was written go from the map: it is synced next."""
        first = start - start % mmap.PAGESIZE
        end = min(start + size, self.size)
        end -= end % mmap.PAGESIZE
        if self._map is not None and not self.read_only and first < end:
            detach_written(self._map.address + first, end - first)

    def load(self, start: int, size: int) -> None:
        """Read a range into memory, waiting for the disk without the interpreter's lock."""
        end = min(start + size, self.size)
        chunk = memoryview(bytearray(min(_LOAD_CHUNK_SIZE, max(end - start, 0))))
        with TypedErrors(self.path, "read"), self._using_descriptor() as descriptor:
            while start < end:
                count = os.preadv(descriptor, [chunk[: end - start]], start)
                if count == 0:
                    return
                start += count

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges from ``start`` on that are not holes of the file."""
        while start < self.size:
            with TypedErrors(self.path, "seek data"), self._using_descriptor() as descriptor:
                try:
                    begin = os.lseek(descriptor, start, os.SEEK_DATA)
                except OSError as error:
                    if error.errno != errno.ENXIO:  # ENXIO: only a hole follows.
                        raise
                    return
                end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            yield begin, min(end, self.size)
            start = end

    def warm(self) -> None:
        """Write zeros over a file that was just created, so that its pages are in memory."""
        zeros = bytes(_WARM_CHUNK_SIZE)
        for position in range(0, self.size, _WARM_CHUNK_SIZE):
            self.write(position, memoryview(zeros)[: self.size - position])

    def close(self) -> None:
        """Release the view and unmap the file; a second call does nothing."""
        if self._map is None:
            return
        mapped, self._map = self._map, None
        self.view = memoryview(b"")
        if self.pool is not None:
            self.pool.closed(self)
        with self._descriptor_lock:
            self._close_descriptor()
        try:
            mapped.close()
        except BufferError as error:
            # The traceback must not be what keeps the file mapped.
            del mapped
            cause = error.with_traceback(None)
            raise StoreError(f"{self.path}: closed while it is still read") from cause

    def let_descriptor_go(self) -> bool:
        """Close the descriptor unless it is in use; return whether it is closed."""
        with self._descriptor_lock:
            if self._user_count:
                return False
            self._close_descriptor()
            return True

    def _close_descriptor(self) -> None:
        if self._descriptor != _NO_DESCRIPTOR:
            os.close(self._descriptor)
            self._descriptor = _NO_DESCRIPTOR

    def _writable(self) -> AbstractContextManager[int]:
        if self.read_only:
            raise StoreError(f"{self.path}: opened for reading only")
        return self._using_descriptor()

    @contextmanager
    def _using_descriptor(self) -> Iterator[int]:
        """Yield the descriptor, which stays open as long as the context lasts."""
        descriptor = self._take_descriptor()
        try:
            yield descriptor
        finally:
            self._give_descriptor_back()

    def _take_descriptor(self) -> int:
        """Return the descriptor, which stays open until it is given back."""
        with self._descriptor_lock:
            is_new = self._descriptor == _NO_DESCRIPTOR
            descriptor = self._open_descriptor() if is_new else self._descriptor
            self._user_count += 1
        if is_new and self.pool is not None:
            try:
                self.pool.opened(self)
            except BaseException:
                self._give_descriptor_back()
                raise
        return descriptor

    def _give_descriptor_back(self) -> None:
        with self._descriptor_lock:
            self._user_count -= 1

    def _open_descriptor(self) -> int:
        """Open the file by its name; the caller has the lock."""
        if self._map is None:
            raise StoreError(f"{self.path}: used after it was closed")
        flags = os.O_RDONLY if self.read_only else os.O_RDWR
        descriptor = os.open(self.path, flags | os.O_CLOEXEC)
        if _identity(descriptor) != self._identity:
            os.close(descriptor)
            raise OSError(errno.ESTALE, "another file has taken this name")
        self._descriptor = descriptor
        return descriptor


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
