"""What can go wrong with the files of a store."""

from pathlib import Path

from flintmq.errors import FlintError


class StoreError(FlintError):
    """The store cannot do what it was asked to."""


class StoreClosedError(StoreError):
    """The store, or the part of it that was called, has been closed."""

    def __init__(self, what: str = "the store") -> None:
        super().__init__(f"{what} is closed")


class StoreIOError(StoreError):
    """The operating system refused a file call."""

    def __init__(self, path: Path, operation: str, cause: OSError) -> None:
        self.path = path
        self.operation = operation
        self.cause = cause
        super().__init__(f"{path}: {operation}: {cause.strerror or cause}")


class DiskFullError(StoreError):
    """There is no room for bytes that had to be reserved or written."""

    retriable = True

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        super().__init__(f"{path}: no room for {size} bytes")


class StoreLockedError(StoreError):
    """The store directory belongs to another running broker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path}: another broker holds this lock")


class StoreLoadError(StoreError):
    """A store directory holds something that no broker has put there."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class FlushFailedError(StoreError):
    """Bytes could not be made durable; what the kernel has dropped cannot be flushed later."""

    def __init__(self, path: Path, cause: Exception) -> None:
        self.path = path
        self.cause = cause
        super().__init__(f"{path}: flush failed: {cause}")


class ReplicaGapError(StoreError):
    """Bytes of a master's log do not follow the end of the own one."""

    def __init__(self, expected: int, offset: int, size: int) -> None:
        self.expected = expected
        self.offset = offset
        super().__init__(f"{size} bytes at {offset} cannot follow a log that ends at {expected}")


class CorruptStoreError(StoreError):
    """Stored bytes contradict the format or each other."""

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        self.path = path
        self.offset = offset
        self.reason = reason
        super().__init__(f"{path}: at {offset}: {reason}")
