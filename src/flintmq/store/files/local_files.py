"""The files of this machine, as the store asks for them."""

import builtins
import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from flintmq.store.errors import StoreIOError, StoreLoadError
from flintmq.store.files.descriptor_pool import DESCRIPTORS_MAX, DescriptorPool
from flintmq.store.files.file_system_sync import sync_file_system
from flintmq.store.files.interface import (
    DiskUsage,
    FileEntry,
    FileLock,
    MappedRegion,
    create_by_rename,
    make_directory_durable,
)
from flintmq.store.files.local_region import LocalRegion, TypedErrors, write_all
from flintmq.store.files.record_lock import DirectoryLock, RecordLock

_FILE_MODE: Final = 0o644
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class LocalFiles:
    """The file system of the machine.

    At most ``descriptors_max`` mapped files keep a descriptor besides their map.
    """

    def __init__(self, *, descriptors_max: int = DESCRIPTORS_MAX) -> None:
        self._pool = DescriptorPool(descriptors_max)

    def _pooled(self, path: Path, descriptor: int, size: int, *, read_only: bool) -> LocalRegion:
        region = self.map_region(path, descriptor, size, read_only=read_only)
        region.pool = self._pool
        return region

    def map_region(self, path: Path, descriptor: int, size: int, *, read_only: bool) -> LocalRegion:
        """Map a file; a kind of files whose disk fails maps another kind of region."""
        return LocalRegion(path, descriptor, size, read_only=read_only)

    def open(self, path: Path, *, read_only: bool = False) -> MappedRegion:
        """Map an existing file at its current size; an empty file raises StoreLoadError."""
        flags = os.O_RDONLY if read_only else os.O_RDWR
        with TypedErrors(path, "open"), _descriptor(path, flags) as descriptor:
            size = os.fstat(descriptor).st_size
            if size == 0:
                raise StoreLoadError(path, "the file is empty")
            return self._pooled(path, descriptor, size, read_only=read_only)

    def create(self, path: Path, size: int, *, reserve: bool = True) -> MappedRegion:
        """Make and map a new file of ``size`` zeros, and the directories above it."""
        assert size > 0, size
        self.make_directory(path.parent)
        with TypedErrors(path, "create", size=size):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(path, flags, _FILE_MODE)
            try:
                if reserve:
                    os.posix_fallocate(descriptor, 0, size)
                else:
                    os.ftruncate(descriptor, size)
                region = self._pooled(path, descriptor, size, read_only=False)
            except BaseException:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
        region.keep(descriptor, reserved=reserve)
        return region

    def create_durable(self, path: Path, size: int) -> MappedRegion:
        """Make and map a new reserved file that is durably there whole, or not at all.

        A directory that is a link or a mount point may be on another disk than its siblings.  No
        file can be renamed into it; there the file has no name at all until it is whole.
        """
        make_directory_durable(self, path.parent)
        if self._device(path.parent) == self._device(path.parent.parent):
            try:
                return create_by_rename(self, path, size)
            except StoreIOError as error:
                if error.cause.errno != errno.EXDEV:
                    raise
        with TypedErrors(path, "create", size=size):
            region = self._create_unnamed(path, size)
        self.sync_directory(path.parent)
        return region

    def _create_unnamed(self, path: Path, size: int) -> MappedRegion:
        flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
        descriptor = os.open(path.parent, flags, _FILE_MODE)
        try:
            os.posix_fallocate(descriptor, 0, size)
            os.fdatasync(descriptor)
            region = self._pooled(path, descriptor, size, read_only=False)
            # The descriptor as a directory is never looked at; naming one is what makes Python
            # use the call that follows a link.
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        region.keep(descriptor, reserved=True)
        return region

    def _device(self, path: Path) -> int:
        with TypedErrors(path, "look up"):
            return path.stat().st_dev

    def read(self, path: Path, *, limit: int | None = None) -> bytes:
        """Return the content of a file, at most ``limit`` bytes; FileNotFoundError passes."""
        try:
            with path.open("rb") as file:
                return file.read() if limit is None else file.read(limit)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreIOError(path, "read", error) from error

    def write(self, path: Path, data: bytes) -> None:
        """Make ``data`` the content of a file, new or not: neither atomic nor synced."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with (
            TypedErrors(path, "write", size=len(data)),
            _descriptor(path, flags) as descriptor,
        ):
            write_all(descriptor, data, 0)

    def sync(self, path: Path) -> None:
        """Make the content of a file durable."""
        with TypedErrors(path, "sync"), _descriptor(path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        with TypedErrors(path, "sync directory"), _descriptor(path, flags) as descriptor:
            os.fsync(descriptor)

    def sync_below(self, path: Path) -> None:
        """Make all files and names below a directory durable.

        One call for the file system takes a fraction of the time of one for each file.  What
        others have written there is waited for as well.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY
        with TypedErrors(path, "sync below"), _descriptor(path, flags) as descriptor:
            if sync_file_system(descriptor):
                return
        for directory, _, names in os.walk(path):
            for name in names:
                self._sync_if_there(self.sync, Path(directory) / name)
            self._sync_if_there(self.sync_directory, Path(directory))

    def _sync_if_there(self, sync: Callable[[Path], None], path: Path) -> None:
        """Sync what somebody may have removed meanwhile, who sees to that himself."""
        try:
            sync(path)
        except StoreIOError:
            if self.exists(path):
                raise

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of a file that has it already."""
        with TypedErrors(source, f"rename to {target.name}"):
            source.replace(target)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Remove a file; FileNotFoundError passes unless ``missing_ok``."""
        try:
            path.unlink(missing_ok=missing_ok)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreIOError(path, "remove", error) from error

    def remove_directory(self, path: Path) -> bool:
        """Remove an empty directory; return False when it is not empty or not there."""
        with TypedErrors(path, "remove directory"):
            try:
                path.rmdir()
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    return False
                raise
        return True

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, as far as they are missing."""
        with TypedErrors(path, "make directory"):
            path.mkdir(parents=True, exist_ok=True)

    def list(self, path: Path) -> builtins.list[FileEntry]:
        """Return the entries of a directory by name; none when the directory is missing."""
        with TypedErrors(path, "list"):
            try:
                with os.scandir(path) as found:
                    entries = [_entry(entry) for entry in found]
            except FileNotFoundError:
                return []
        return sorted(entry for entry in entries if entry is not None)

    def exists(self, path: Path) -> bool:
        """Tell whether there is a file or directory of that name."""
        with TypedErrors(path, "look up"):
            return path.exists()

    def size(self, path: Path) -> int | None:
        """Return the bytes of a file, None when it is missing."""
        status = _status(path)
        return None if status is None else status.st_size

    def modified_ms(self, path: Path) -> int | None:
        """Return when a file was last written, None when it is missing."""
        status = _status(path)
        return None if status is None else status.st_mtime_ns // 1_000_000

    def lock(self, path: Path) -> FileLock:
        """Take the lock that marks a store as in use; StoreLockedError when somebody has it."""
        self.make_directory(path.parent)
        with TypedErrors(path, "lock"):
            return RecordLock(path)

    def lock_directory(self, path: Path) -> FileLock:
        """Keep other stores out of a directory without leaving a file in it."""
        with TypedErrors(path, "lock"):
            return DirectoryLock(path)

    def usage(self, path: Path) -> DiskUsage | None:
        """Return how full the file system of ``path`` is, None when there is no such path."""
        with TypedErrors(path, "measure"):
            try:
                numbers = os.statvfs(path)
            except FileNotFoundError:
                return None
        block = numbers.f_frsize
        return DiskUsage(
            numbers.f_blocks * block, numbers.f_bfree * block, numbers.f_bavail * block
        )

    def boot_id(self) -> str:
        """Return what names this run of the machine, empty where nothing does."""
        try:
            return _BOOT_ID.read_bytes().decode().strip()
        except (OSError, UnicodeDecodeError):
            return ""


@contextlib.contextmanager
def _descriptor(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _entry(found: os.DirEntry[str]) -> FileEntry | None:
    try:
        status = found.stat()
    except FileNotFoundError:
        # Either it was removed a moment ago, or it is a link to nowhere, which is a stray entry.
        try:
            status = found.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
    return FileEntry(found.name, status.st_size, status.st_mtime_ns // 1_000_000, found.is_dir())


def _status(path: Path) -> os.stat_result | None:
    with TypedErrors(path, "look up"):
        try:
            return path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
