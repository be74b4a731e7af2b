"""JSON state with a backup: topics, consumer offsets, delay offsets.

RocketMQ deletes the old file before it renames the new one, and syncs neither.  Here the file
itself is whole and durable at every instant:

1. the new content goes to ``{file}.tmp`` and is synced;
2. the old content, known to be whole and durable, is written to ``{file}.bak`` and synced;
3. ``{file}.tmp`` is renamed to ``{file}``, and the directory is synced.

The backup may be torn only during step 2, when the file is whole.  A file that was found torn is
never copied over the backup it was replaced by.
"""

import contextlib
import logging
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from flintmq.format import fastjson
from flintmq.format.errors import StateTextError
from flintmq.store.errors import StoreError
from flintmq.store.files.interface import Files, make_directory_durable

logger = logging.getLogger(__name__)

STATE_SIZE_MAX: Final = 64 << 20
"""The most bytes a state file may have; a million consumer offsets take about 20 MB."""


class StateFileError(StoreError):
    """Neither a state file nor its backup can be read, or a state is too large to be written."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class LoadedState(NamedTuple):
    """What a state file held."""

    value: Any
    """The decoded JSON; None when there is no state."""
    origin: Literal["file", "backup", "none"]
    problem: str | None
    """Why the file itself was not used, in words; None when all is well."""


class _Copy(NamedTuple):
    """One of the two files as found on the disk; ``problem`` is set when it holds no state."""

    problem: str | None
    content: bytes = b""
    value: Any = None
    exists: bool = True
    is_damaged: bool = False


class StateFile:
    """One JSON state and its backup."""

    def __init__(self, path: Path, *, files: Files, size_max: int = STATE_SIZE_MAX) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._temporary_path = path.with_name(path.name + ".tmp")
        self._files = files
        self._size_max = size_max
        # Whether the disk was looked at, and the content of the file if that is whole.
        self._is_known = False
        self._content: bytes | None = None
        self._is_durable = False

    def load(self) -> LoadedState:
        """Read the state: the file, else its backup, else nothing.

        A file that is missing, empty or damaged is replaced by the backup, with a warning when
        there is one.  Raises StateFileError when the file or the backup is damaged and the other
        one holds no state either: starting with nothing would forget what could be repaired.
        """
        current = self._read(self.path)
        if current.problem is None:
            self._remember(current.content)
            return LoadedState(current.value, "file", None)
        backup = self._read(self.backup_path)
        if backup.problem is None:
            self._remember(None)
            problem = f"{self.path.name}: {current.problem}"
            logger.warning("state read from its backup: file=%s reason=%s", self.path, problem)
            return LoadedState(backup.value, "backup", problem)
        if current.is_damaged or backup.is_damaged:
            raise StateFileError(
                self.path, f"{current.problem}; {self.backup_path.name}: {backup.problem}"
            )
        self._remember(None)
        if not current.exists:
            return LoadedState(None, "none", None)
        problem = f"{self.path.name}: {current.problem}"
        logger.warning("state file holds nothing: file=%s reason=%s", self.path, problem)
        return LoadedState(None, "none", problem)

    def load_backup(self) -> Any:
        """Return what the backup holds, None if it cannot be read or is not there."""
        return self._read(self.backup_path).value

    def save(self, value: Any) -> None:
        """Replace the state, durably; when this raises, the old state or the new one is there.

        Bytes are taken for the text of a state.
        """
        content = value if isinstance(value, bytes) else fastjson.dumps(value).encode()
        if len(content) > self._size_max:
            raise StateFileError(
                self.path, f"a state of {len(content)} bytes, at most {self._size_max} are allowed"
            )
        if not self._is_known:
            self.load()
        make_directory_durable(self._files, self.path.parent)
        previous = self._content
        if previous is not None and not self._is_durable:
            # Whoever wrote it may not have synced it, and after a sync that failed another one
            # proves nothing: only bytes written anew can be made durable.
            self._stage(previous)
            self._commit(previous)
        self._stage(content)
        if previous is not None:
            self._files.write(self.backup_path, previous)
            self._files.sync(self.backup_path)
        self._commit(content)

    def _stage(self, content: bytes) -> None:
        try:
            self._files.write(self._temporary_path, content)
            self._files.sync(self._temporary_path)
        except StoreError:
            # Half a file is of no use, and the disk may be short of the room it takes.
            with contextlib.suppress(StoreError):
                self._files.remove(self._temporary_path, missing_ok=True)
            raise

    def _commit(self, content: bytes) -> None:
        self._files.rename(self._temporary_path, self.path)
        self._content = content
        self._files.sync_directory(self.path.parent)
        self._is_durable = True

    def _remember(self, content: bytes | None) -> None:
        self._is_known = True
        self._content = content
        self._is_durable = False

    def _read(self, path: Path) -> _Copy:
        try:
            content = self._files.read(path, limit=self._size_max + 1)
        except FileNotFoundError:
            return _Copy("is missing", exists=False)
        if len(content) > self._size_max:
            return _Copy(f"has more than {self._size_max} bytes", is_damaged=True)
        if not content.strip():
            return _Copy("is empty")
        try:
            return _Copy(None, content, fastjson.loads(content))
        except StateTextError as error:
            return _Copy(f"cannot be decoded: {error}", is_damaged=True)
