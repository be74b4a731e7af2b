"""The locks that mark the directories of a store as in use."""

import errno
import fcntl
import logging
import os
import threading
from pathlib import Path
from typing import Final

from flintmq.store.errors import StoreLockedError
from flintmq.store.files.local_region import write_all

logger = logging.getLogger(__name__)

_FILE_MODE: Final = 0o644
_LOCK_CONTENT: Final = b"lock"


class RecordLock:
    """The lock a Java broker takes: a record lock on the first byte of a file.

    Record locks belong to a process: a second one from the same process succeeds, and closing
    *any* descriptor of the file drops the first.  So a table of this process is asked before the
    file is touched.
    """

    _held: Final[set[Path]] = set()
    _table: Final = threading.Lock()

    def __init__(self, path: Path) -> None:
        """Take the lock, and write into the file what Java writes."""
        self._path = path.resolve()
        with self._table:
            if self._path in self._held:
                raise StoreLockedError(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, _FILE_MODE)
            try:
                self._take(path)
            except BaseException:
                os.close(self._descriptor)
                raise
            self._held.add(self._path)

    def _take(self, path: Path) -> None:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLockedError(path) from error
            raise
        write_all(self._descriptor, _LOCK_CONTENT, 0)
        os.fsync(self._descriptor)

    @classmethod
    def is_taken(cls, path: Path) -> bool:
        """Whether somebody has the lock; nothing is written, and no file is made."""
        resolved = path.resolve()
        with cls._table:
            if resolved in cls._held:
                return True
            try:
                descriptor = os.open(resolved, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    return True
                raise
            finally:
                os.close(descriptor)
            return False

    def release(self) -> None:
        """Let others have the lock; a second call does nothing."""
        with self._table:
            if self._path in self._held and self._descriptor >= 0:
                self._held.remove(self._path)
                os.close(self._descriptor)
                self._descriptor = -1


class DirectoryLock:
    """A lock on a directory itself; it belongs to this object, not to the process.

    Some network file systems cannot lock directories.  There a store goes on without, and says so.
    """

    def __init__(self, path: Path) -> None:
        """Take the lock of a directory that is there."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                self.release()
                raise StoreLockedError(path) from error
            logger.warning("directory cannot be locked: path=%s reason=%s", path, error.strerror)

    def release(self) -> None:
        """Let others have the directory; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
