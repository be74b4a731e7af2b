"""Files of which every change is private: what is written is seen here and nowhere else.

With them the real start of a store can be tried on the real directory.  Existing files are mapped
copy-on-write, new ones lie in memory; names that are made, changed or removed are kept in tables.
"""

import builtins
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from flintmq.store.errors import StoreError, StoreIOError, StoreLoadError
from flintmq.store.files.interface import (
    Buffer,
    DiskUsage,
    FileEntry,
    FileLock,
    Files,
    MappedRegion,
    create_by_rename,
)
from flintmq.store.files.local_files import LocalFiles


class _Content:
    """The bytes of one file, and which of them may differ from zero."""

    def __init__(
        self, data: mmap.mmap | bytearray, ranges: list[tuple[int, int]], modified_ms: int
    ) -> None:
        self.data = data
        self.ranges = ranges
        self.modified_ms = modified_ms

    def touch(self, start: int, end: int) -> None:
        """Note that bytes of a range may have changed."""
        if start < end and not any(low <= start and end <= high for low, high in self.ranges):
            self.ranges = _joined([*self.ranges, (start, end)])


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


class PrivateRegion:
    """A mapped file whose changes nobody else sees; syncs have nothing to do."""

    def __init__(self, content: _Content, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.size = len(content.data)
        self.read_only = read_only
        self._content = content
        view = memoryview(content.data)
        self.view = view.toreadonly() if read_only else view

    def reserve(self, start: int, end: int) -> None:
        """Note that a range is about to be written; there is always room."""
        self._content.touch(start, end)

    def write(self, position: int, data: Buffer) -> None:
        """Write ``data`` at ``position``."""
        if self.read_only:
            raise StoreError(f"{self.path}: opened for reading only")
        self._content.touch(position, position + len(data))
        self.view[position : position + len(data)] = data

    def sync(self) -> None:
        """Do nothing: there is no disk behind this."""

    def advise_will_need(self, start: int, size: int) -> None:
        """Do nothing."""

    def expect_reads(self) -> None:
        """Do nothing: there is no disk behind this."""

    def is_resident(self, start: int, size: int) -> bool:
        """Tell that everything is in memory."""
        return True

    def prepare_pages(self, start: int, size: int) -> None:
        """Do nothing: everything is in memory."""

    def expect_fast_growth(self, start: int) -> None:
        """Do nothing: there is no disk behind this."""

    def detach_pages(self, start: int, size: int) -> None:
        """Do nothing: there is no sync, and the kernel would forget what a private map holds."""

    def load(self, start: int, size: int) -> None:
        """Do nothing: everything is in memory."""

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges from ``start`` on that may hold other bytes than zeros."""
        for low, high in self._content.ranges:
            if high > start:
                yield max(low, start), min(high, self.size)

    def warm(self) -> None:
        """Do nothing: a new file is in memory."""

    def close(self) -> None:
        """Release the view; what was written is kept for the next time it is opened."""
        view, self.view = self.view, memoryview(b"")
        try:
            view.release()
        except BufferError as error:
            raise StoreError(f"{self.path}: closed while it is still read") from error


class _NoLock:
    def release(self) -> None:
        """Do nothing: nothing was locked."""


class PrivateFiles:
    """A ``Files`` over another one, which is only ever read."""

    def __init__(self, base: Files) -> None:
        self._base = base
        self._contents: dict[Path, _Content] = {}
        self._made_directories: set[Path] = set()
        self._removed: set[Path] = set()

    # -- content -----------------------------------------------------------------------------

    def open(self, path: Path, *, read_only: bool = False) -> MappedRegion:
        """Map an existing file; an empty file raises StoreLoadError."""
        return PrivateRegion(self._content(path), path, read_only=read_only)

    def _content(self, path: Path) -> _Content:
        content = self._contents.get(path)
        if content is None:
            if path in self._removed:
                raise StoreIOError(path, "open", FileNotFoundError(errno.ENOENT, "removed"))
            content = self._contents[path] = self._load(path)
        if not len(content.data):
            raise StoreLoadError(path, "the file is empty")
        return content

    def _load(self, path: Path) -> _Content:
        region = self._base.open(path, read_only=True)
        try:
            ranges = list(region.data_ranges(0))
            modified_ms = self._base.modified_ms(path) or 0
            if not isinstance(self._base, LocalFiles):
                return _Content(bytearray(region.view), ranges, modified_ms)
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), region.size, access=mmap.ACCESS_COPY)
            return _Content(data, ranges, modified_ms)
        except OSError as error:
            raise StoreIOError(path, "open", error) from error
        finally:
            region.close()

    def create(self, path: Path, size: int, *, reserve: bool = True) -> MappedRegion:
        """Make and map a new file of ``size`` zeros, and the directories above it."""
        if self.exists(path):
            raise StoreIOError(path, "create", FileExistsError(errno.EEXIST, "exists"))
        self.make_directory(path.parent)
        self._contents[path] = content = _Content(mmap.mmap(-1, size), [], 0)
        return PrivateRegion(content, path, read_only=False)

    def create_durable(self, path: Path, size: int) -> MappedRegion:
        """Make and map a new file."""
        return create_by_rename(self, path, size)

    def read(self, path: Path, *, limit: int | None = None) -> bytes:
        """Return the content of a file, at most ``limit`` bytes; FileNotFoundError passes."""
        if path in self._contents:
            return bytes(memoryview(self._contents[path].data)[:limit])
        if path in self._removed:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._base.read(path, limit=limit)

    def write(self, path: Path, data: bytes) -> None:
        """Make ``data`` the content of a file, new or not."""
        self._contents[path] = _Content(bytearray(data), [(0, len(data))] if data else [], 0)

    def sync(self, path: Path) -> None:
        """Do nothing."""

    def sync_directory(self, path: Path) -> None:
        """Do nothing."""

    def sync_below(self, path: Path) -> None:
        """Do nothing."""

    # -- names -------------------------------------------------------------------------------

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of a file that has it already."""
        content = self._contents.get(source) or self._load(source)
        self.remove(source)
        self._contents[target] = content

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Remove a file; FileNotFoundError passes unless ``missing_ok``."""
        if not self.exists(path):
            if missing_ok:
                return
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self._contents.pop(path, None)
        self._removed.add(path)

    def remove_directory(self, path: Path) -> bool:
        """Remove an empty directory; return False when it is not empty or not there."""
        if not self.exists(path) or self.list(path):
            return False
        self._made_directories.discard(path)
        self._removed.add(path)
        return True

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, as far as they are missing."""
        while not self.exists(path):
            self._made_directories.add(path)
            path = path.parent

    def list(self, path: Path) -> builtins.list[FileEntry]:
        """Return the entries of a directory by name; none when the directory is missing."""
        found: dict[str, FileEntry] = {}
        if path not in self._removed:
            for entry in self._base.list(path):
                child = path / entry.name
                if child not in self._removed and child not in self._contents:
                    found[entry.name] = entry
        for child in self._made_directories:
            if child.parent == path:
                found[child.name] = FileEntry(child.name, 0, 0, is_directory=True)
        for child, content in self._contents.items():
            if child.parent == path:
                size = len(content.data)
                found[child.name] = FileEntry(
                    child.name, size, content.modified_ms, is_directory=False
                )
        return sorted(found.values())

    def exists(self, path: Path) -> bool:
        """Tell whether there is a file or directory of that name."""
        if path in self._contents or path in self._made_directories:
            return True
        return path not in self._removed and self._base.exists(path)

    def size(self, path: Path) -> int | None:
        """Return the bytes of a file, None when it is missing."""
        if path in self._contents:
            return len(self._contents[path].data)
        return None if path in self._removed else self._base.size(path)

    def modified_ms(self, path: Path) -> int | None:
        """Return when a file was last written, None when it is missing."""
        if path in self._contents:
            return self._contents[path].modified_ms
        return None if path in self._removed else self._base.modified_ms(path)

    # -- the machine -------------------------------------------------------------------------

    def lock(self, path: Path) -> FileLock:
        """Lock nothing: whoever holds the real lock is not disturbed."""
        if not self.exists(path):
            self.write(path, b"lock")
        return _NoLock()

    def lock_directory(self, path: Path) -> FileLock:
        """Lock nothing."""
        return _NoLock()

    def usage(self, path: Path) -> DiskUsage | None:
        """Return how full the file system of ``path`` is."""
        return self._base.usage(path)

    def boot_id(self) -> str:
        """Return what names this run of the machine."""
        return self._base.boot_id()
