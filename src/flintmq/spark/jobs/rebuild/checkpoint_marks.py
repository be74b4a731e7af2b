"""Keeping the checkpoint of a store true when its views are replaced."""

import contextlib

from flintmq.format.errors import CorruptCheckpointError
from flintmq.format.stored.checkpoint import (
    FILE_SIZE,
    Checkpoint,
    CheckpointMarks,
    decode_checkpoint,
    encode_checkpoint,
)
from flintmq.offline.layout import StoreLayout


class CheckpointPage:
    """The checkpoint of a store that no broker runs in."""

    def __init__(self, layout: StoreLayout) -> None:
        self._path = layout.checkpoint
        self._files = layout.files
        self._old = Checkpoint()
        # A page that is missing or damaged says nothing; a broker begins anew then, too.
        with contextlib.suppress(FileNotFoundError, CorruptCheckpointError):
            self._old = decode_checkpoint(layout.files.read(self._path, limit=FILE_SIZE + 1))

    @property
    def old_marks(self) -> CheckpointMarks | None:
        """The marks that the page had when it was read, None if they did not hold."""
        return self._old.marks

    def void(self) -> None:
        """Take the marks away; the times stay, for they speak of the log and of what was there."""
        if self._old.marks is not None:
            old = self._old
            self._save(Checkpoint(old.physic, old.logics, old.index))

    def write(self, marks: CheckpointMarks, last_time: int) -> None:
        """Say what is true of views that reach up to a record stored at ``last_time``."""
        old = self._old
        self._save(
            Checkpoint(
                max(old.physic, last_time),
                max(old.logics, last_time),
                max(old.index, last_time),
                marks,
            )
        )

    def _save(self, value: Checkpoint) -> None:
        """Replace the page in one step."""
        staged = self._path.with_name(self._path.name + ".new")
        self._files.write(staged, encode_checkpoint(value))
        self._files.sync(staged)
        self._files.rename(staged, self._path)
        self._files.sync_directory(self._path.parent)
