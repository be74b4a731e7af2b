"""What keeps a store directory from being read, or an output from being written."""

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
    """The place for new files is not free, or lies in the store that is read."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class RequestError(OfflineError):
    """What was asked for contradicts itself."""
