"""Keeping tools and brokers out of each other's way: the lock of a store directory.

A broker, Java's or ours, holds it as long as it runs.  Tools that only look on do not need it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flintmq.offline.errors import OutputError, StoreInUseError
from flintmq.store.errors import StoreIOError, StoreLockedError
from flintmq.store.files.interface import Files
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.record_lock import RecordLock

LOCK_NAME: Final = "lock"


def refuse_running(root: Path) -> None:
    """Raise StoreInUseError if somebody holds the lock of a store; nothing is written."""
    if RecordLock.is_taken(root / LOCK_NAME):
        raise StoreInUseError(root)


@contextmanager
def hold_directory(root: Path, *, files: Files | None = None) -> Iterator[None]:
    """Hold the lock of a directory; StoreInUseError when somebody else does."""
    try:
        lock = (files or LocalFiles()).lock(root / LOCK_NAME)
    except StoreLockedError as error:
        raise StoreInUseError(root) from error
    except StoreIOError as error:
        raise OutputError(root, error.cause.strerror or str(error.cause)) from error
    try:
        yield
    finally:
        lock.release()
