"""Files and directories that have changed and are synced together, each or all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flintmq.store.files.interface import Files
    from flintmq.store.files.mapped_file import MappedFile

SYNC_EACH_MAX: Final = 256
"""So many are synced one by one; for more of them one call for the file system takes less time,
though it waits for what others have written there."""


def are_many(count: int) -> bool:
    """Whether one call for the file system is the better way to sync so many."""
    return count > SYNC_EACH_MAX


class Unsynced:
    """Collects what a recovery changes below some directories.

    Nothing may rely on it before `sync`.  A crash before that finds the marks that the recovery
    began with, and the next one does it all again.
    """

    def __init__(self, files: Files, tops: Iterable[Path]) -> None:
        self._files_layer = files
        self._tops = tuple(tops)
        self._files: dict[Path, MappedFile] = {}
        self._directories: dict[Path, None] = {}

    def add_file(self, file: MappedFile) -> None:
        """Take in a file whose content has changed."""
        self._files[file.path] = file

    def add_directories(self, directories: Iterable[Path]) -> None:
        """Take in directories that files were removed from."""
        self._directories |= dict.fromkeys(directories)

    def sync(self) -> None:
        """Make all of it durable."""
        if are_many(len(self._files) + len(self._directories)):
            sync_all_below(self._files_layer, self._tops)
        else:
            for file in self._files.values():
                if file.hold():  # Else it was removed later.
                    try:
                        file.region.sync()
                    finally:
                        file.release()
            for directory in self._directories:
                if self._files_layer.exists(directory):
                    self._files_layer.sync_directory(directory)
        self._files.clear()
        self._directories.clear()


def sync_all_below(files: Files, tops: Iterable[Path]) -> None:
    """Make everything durable that is below some directories, as far as they are there."""
    for top in tops:
        if files.exists(top):
            files.sync_below(top)
