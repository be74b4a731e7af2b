"""Which directory gets the next file of a log that is spread over several."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from flintmq.store.errors import StoreError


class Placement:
    """Which directory gets a file, when the log is spread over several.

    Files go round the usable directories by their number, in the order of the paths, as RocketMQ
    places them.  A read-only directory is loaded but gets no new file; a ``full`` one (retention
    says which) is left out as long as another is left.
    """

    def __init__(self, directories: Sequence[Path], *, read_only: Iterable[Path] = ()) -> None:
        closed = list(read_only)
        self.directories = tuple(dict.fromkeys([*directories, *closed]))
        """All directories to load from."""
        self.full: frozenset[Path] = frozenset()
        """Those that should get no new file for now."""
        self.read_only = frozenset(closed)
        self._writable = sorted({*directories} - self.read_only, key=str)
        if not self._writable:
            raise StoreError("no directory is left that may be written")

    def directory_for(self, file_number: int) -> Path:
        """Return the directory of the file whose offset is ``file_number`` times the file size."""
        full = self.full
        usable = [path for path in self._writable if path not in full] or self._writable
        return usable[file_number % len(usable)]
