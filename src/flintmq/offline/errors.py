"""Errors of reading store directories and of writing new files for them."""

from pathlib import Path

from flintmq.errors import FlintError


class OfflineError(FlintError):
    """The offline tools cannot do what they were asked to."""


class NotAStoreError(OfflineError):
    """A directory holds nothing that a broker writes, or cannot be read."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: not a store: {reason}")


class StoreInUseError(OfflineError):
    """A broker runs in a store that must stand still, or another tool changes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path}: in use: a broker holds its lock, or another tool does")


class OutputError(OfflineError):
    """The directory for new files is not free, or lies in the store that is read."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class UnknownIndexShapeError(OutputError):
    """No file of the store tells the shape of its index files, and the caller did not either."""

    def __init__(self, path: Path) -> None:
        reason = "the shape of the index files is unknown; give hash_slots and index_entries"
        super().__init__(path, reason)


class RequestError(OfflineError):
    """What was asked for contradicts itself."""
