"""The one layer through which every file call of the store goes.

``Files`` is what the store asks of a file system, ``MappedRegion`` one mapped file.  Writes into
``MappedRegion.view`` pass through no layer at all; everything else is a method here, so that
``flintmq.testing.SimulatedFiles`` can lose what was not synced.  The real one is
``flintmq.store.files.local_files.LocalFiles``.
"""

import builtins
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from flintmq.store.errors import StoreError, StoreIOError

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Anything whose bytes can be copied; a memoryview has the format ``B``."""

NAME_SIZE_MAX: Final = 255
"""The most bytes Linux allows for the name of a directory entry."""

STAGING_SUFFIX: Final = ".new"
"""Appended to a directory's name: the sibling in which its durable files are prepared."""


class FileEntry(NamedTuple):
    """One entry of a directory."""

    name: str
    size: int
    modified_ms: int
    is_directory: bool


class DiskUsage(NamedTuple):
    """The bytes of the file system that holds a path."""

    total: int
    free: int
    available: int
    """What an unprivileged process may still take: ``free`` without the reserve of root."""

    @property
    def used_ratio(self) -> float:
        """How full it is, from 0 to 1 in steps of a hundredth, rounded up; -1 when it has no size.

        Retention compares this value with its thresholds, so it is computed as RocketMQ does.
        """
        used = self.total - self.free
        if self.total <= 0 or used + self.available <= 0:
            return -1.0
        return -(-100 * used // (used + self.available)) / 100


class MappedRegion(Protocol):
    """One file, mapped whole.

    ``view`` is written by one owner.  ``sync`` may run in another thread at the same time, and
    makes durable what was in the view when it was called.  Nothing here protects a call that
    overlaps ``close``: callers on other threads hold the ``MappedFile`` around each call.
    """

    path: Path
    """Where the file is; it follows the rename of ``create_durable`` only."""

    @property
    def size(self) -> int:
        """The bytes of the file, all of them mapped."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether the view refuses to be written."""
        ...

    @property
    def view(self) -> memoryview:
        """The whole file; writable unless it was opened ``read_only``."""
        ...

    def reserve(self, start: int, end: int) -> None:
        """Make sure that the disk has room for the bytes from ``start`` to ``end``.

        Writing into a hole of the view kills the process when the disk is full; so every range
        is reserved first.  A range that lies in the one reserved last costs nothing.
        """
        ...

    def write(self, position: int, data: Buffer) -> None:
        """Write ``data`` at ``position`` by a system call, which can fail, not through the view."""
        ...

    def sync(self) -> None:
        """Make every byte written so far durable, however it was written.

        A region that was opened ``read_only`` has none.
        """
        ...

    def advise_will_need(self, start: int, size: int) -> None:
        """Ask the kernel to read a range ahead; nothing is promised."""
        ...

    def expect_reads(self) -> None:
        """Tell the kernel that nothing more is written here, and that reads go from start to end.

        Nothing is promised.
        """
        ...

    def is_resident(self, start: int, size: int) -> bool:
        """Whether a range is in memory, so that the view can be read without the disk.

        True also where nobody can tell.
        """
        ...

    def prepare_pages(self, start: int, size: int) -> None:
        """Make a range ready to be written through the view, where the system can do that.

        What it holds stays as it is, and it waits without the interpreter's lock.
        """
        ...

    def expect_fast_growth(self, start: int) -> None:
        """Tell the kernel that much is going to be written from about a position to the end.

        It may then take memory in large pieces, and a sync may write more than has changed.
        """
        ...

    def begin_write_out(self, start: int, size: int) -> None:
        """Have the disk begin with what a range holds, without waiting for it.

        It promises nothing: the next sync tells whether the disk has it.
        """
        ...

    def detach_pages(self, start: int, size: int) -> None:
        """Make the sync of a range that was written cost less, which comes next.

        What it holds stays as it is.  The next look at it costs a little more, and so does the
        next write to it: it is for what is not written again.
        """
        ...

    def load(self, start: int, size: int) -> None:
        """Read a range into memory, waiting for the disk without the interpreter's lock."""
        ...

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges from ``start`` on that may hold other bytes than zeros."""
        ...

    def warm(self) -> None:
        """Write zeros over a file that was just created, so that its pages are in memory.

        The caller syncs.  The pages are not locked into memory, as RocketMQ does: a lock would
        need more privileges than a broker should have.
        """
        ...

    def close(self) -> None:
        """Release the view and unmap the file; a second call does nothing.

        When somebody still reads the view this raises StoreError: a reader did not hold the file.
        Everything else is released even then, and the mapping goes with its last reader.
        """
        ...


class FileLock(Protocol):
    """A lock that is held until it is released or the process ends."""

    def release(self) -> None:
        """Let others have the lock; a second call does nothing."""
        ...


class Files(Protocol):
    """What a store asks of a file system.

    An OSError becomes DiskFullError when the disk or a quota is full, otherwise StoreIOError.
    Only where it says so a FileNotFoundError passes through.
    """

    def open(self, path: Path, *, read_only: bool = False) -> MappedRegion:
        """Map an existing file at its current size; an empty file raises StoreLoadError."""
        ...

    def create(self, path: Path, size: int, *, reserve: bool = True) -> MappedRegion:
        """Make and map a new file of ``size`` zeros, and the directories above it.

        Without ``reserve`` the file has no blocks yet: reserve pieces before writing into them.
        A file that cannot be made whole is removed again; an existing one is a StoreIOError.
        """
        ...

    def create_durable(self, path: Path, size: int) -> MappedRegion:
        """Make and map a new reserved file that is durably there whole, or not at all.

        It is prepared in a sibling of its directory and renamed into place, because any stray
        entry in a commit-log directory makes a Java broker refuse to start.
        """
        ...

    def read(self, path: Path, *, limit: int | None = None) -> bytes:
        """Return the content of a file, at most ``limit`` bytes; FileNotFoundError passes."""
        ...

    def write(self, path: Path, data: bytes) -> None:
        """Make ``data`` the content of a file, new or not: neither atomic nor synced."""
        ...

    def sync(self, path: Path) -> None:
        """Make the content of a file durable."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def sync_below(self, path: Path) -> None:
        """Make all files and names below a directory durable; meant for thousands of files."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of a file that has it already."""
        ...

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Remove a file; FileNotFoundError passes unless ``missing_ok``."""
        ...

    def remove_directory(self, path: Path) -> bool:
        """Remove an empty directory; return False when it is not empty or not there."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, as far as they are missing."""
        ...

    def list(self, path: Path) -> builtins.list[FileEntry]:
        """Return the entries of a directory by name; none when the directory is missing."""
        ...

    def exists(self, path: Path) -> bool:
        """Tell whether there is a file or directory of that name."""
        ...

    def size(self, path: Path) -> int | None:
        """Return the bytes of a file, None when it is missing."""
        ...

    def modified_ms(self, path: Path) -> int | None:
        """Return when a file was last written, None when it is missing."""
        ...

    def lock(self, path: Path) -> FileLock:
        """Take the lock that marks a store as in use; StoreLockedError when somebody has it."""
        ...

    def lock_directory(self, path: Path) -> FileLock:
        """Keep other stores out of a directory without leaving a file in it.

        A Java broker refuses a log directory that holds anything but its files.  Raises
        StoreLockedError when another store has the directory.
        """
        ...

    def usage(self, path: Path) -> DiskUsage | None:
        """Return how full the file system of ``path`` is, None when there is no such path."""
        ...

    def boot_id(self) -> str:
        """Return what names this run of the machine, empty where nothing does.

        While it is the same, no power failure came: the kernel has all that was written.
        """
        ...


def is_safe_name(name: str) -> bool:
    """Tell whether ``name`` can be the name of one directory entry and of nothing else."""
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError:
        return False
    return (
        name not in ("", ".", "..")
        and "/" not in name
        and "\0" not in name
        and size <= NAME_SIZE_MAX
    )


def safe_child(root: Path, name: str) -> Path:
    """Return the path of ``name`` in ``root``, or raise StoreError when it would lead elsewhere.

    Topics come from the network and become directory names.
    """
    if not is_safe_name(name):
        raise StoreError(f"not a file name: {name[:NAME_SIZE_MAX]!r}")
    return root / name


def staging_directory(directory: Path) -> Path:
    """Return the sibling in which files are prepared before they are renamed into ``directory``."""
    return directory.with_name(directory.name + STAGING_SUFFIX)


def make_directory_durable(files: Files, path: Path) -> None:
    """Make a directory whose name, and every name above it that was missing, is durable."""
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        files.make_directory(directory)
        files.sync_directory(directory.parent)


def create_by_rename(files: Files, path: Path, size: int) -> MappedRegion:
    """Do the work of ``Files.create_durable`` with the other calls of ``files``."""
    if files.exists(path):
        raise StoreIOError(path, "create", FileExistsError("the file exists"))
    staged = staging_directory(path.parent) / path.name
    make_directory_durable(files, path.parent)
    files.make_directory(staged.parent)
    files.remove(staged, missing_ok=True)
    region = files.create(staged, size)
    try:
        region.sync()
        files.rename(staged, path)
        region.path = path
        files.sync_directory(path.parent)
        files.sync_directory(staged.parent)
    except StoreError:
        region.close()
        files.remove(region.path, missing_ok=True)
        raise
    return region
