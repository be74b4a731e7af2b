"""Files of the machine whose disk fails when a test says so."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from flintmq.store.errors import StoreIOError
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.local_region import LocalRegion

if TYPE_CHECKING:
    from pathlib import Path


class FaultyFiles(LocalFiles):
    """The file system of the machine; `fail_next_sync` makes a disk lie no more."""

    def __init__(self) -> None:
        super().__init__()
        self._failing = 0

    def fail_next_sync(self) -> None:
        """Let the next sync of a mapped file end with an I/O error."""
        self._failing += 1

    def take_failure(self) -> bool:
        """Whether a sync has to fail now; each failure happens once."""
        if not self._failing:
            return False
        self._failing -= 1
        return True

    def map_region(self, path: Path, descriptor: int, size: int, *, read_only: bool) -> LocalRegion:
        """Map a file whose syncs may fail."""
        return _FaultyRegion(self, path, descriptor, size, read_only=read_only)


class _FaultyRegion(LocalRegion):
    """A mapped file on a disk that may fail."""

    def __init__(
        self, files: FaultyFiles, path: Path, descriptor: int, size: int, *, read_only: bool
    ) -> None:
        super().__init__(path, descriptor, size, read_only=read_only)
        self._files = files

    def sync(self) -> None:
        """Make every byte durable, or fail as a broken disk does."""
        # Queues and index can be made anew; what counts is the log.
        if self.path.parent.name == "commitlog" and self._files.take_failure():
            cause = OSError(errno.EIO, os.strerror(errno.EIO))
            raise StoreIOError(self.path, "sync", cause)
        super().sync()
