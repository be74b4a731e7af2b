"""The checkpoint file: what a restart may rely on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flintmq.format.errors import CorruptCheckpointError
from flintmq.format.stored.checkpoint import (
    FILE_SIZE,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.store.files.interface import Files, MappedRegion

logger = logging.getLogger(__name__)


class CheckpointFile:
    """One page, mapped; rewritten whole and synced each time."""

    def __init__(self, path: Path, *, files: Files) -> None:
        self._path = path
        self._files = files
        self._region: MappedRegion | None = None
        self.value = Checkpoint()

    def load(self) -> str:
        """Read the page if there is one; return what is wrong with it, empty for nothing."""
        try:
            self.value = decode_checkpoint(self._files.read(self._path, limit=FILE_SIZE + 1))
        except FileNotFoundError:
            return "missing"
        except CorruptCheckpointError as error:
            return error.reason
        return ""

    def prepare(self) -> None:
        """Have a file of the right size to write to; a full disk is an error here, not later."""
        if self._region is not None:
            return
        if self._files.size(self._path) not in (None, FILE_SIZE):
            self._files.remove(self._path)
        if self._files.exists(self._path):
            self._region = self._files.open(self._path)
        else:
            self._region = self._files.create(self._path, FILE_SIZE)
            self._files.sync_directory(self._path.parent)

    def save(self, value: Checkpoint) -> None:
        """Write the page and bring it to stable storage.

        The whole page is one write through the file, not the map: a page that is written while
        it is being synced could reach the disk half old and half new.
        """
        self.prepare()
        assert self._region is not None
        self._region.write(0, encode_checkpoint(value))
        self._region.sync()
        self.value = value

    def close(self) -> None:
        """Unmap the page."""
        if self._region is not None:
            self._region.close()
            self._region = None
