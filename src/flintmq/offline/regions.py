"""Mapped files for reading, a bounded number at a time.

A store can have more files than a process may open, so the files that are read here and there
share one cache.  Nothing is ever opened for writing.
"""

from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

from flintmq.store.errors import StoreIOError, StoreLoadError
from flintmq.store.files.interface import Files, MappedRegion

StoreFiles: TypeAlias = Files
StoreRegion: TypeAlias = MappedRegion
"""The file layer of a store and a file mapped by it, for packages that may not import the store."""

OPEN_MAX: Final = 128
"""Before Python 3.13 each mapping keeps a descriptor, and 1024 of them are a common limit."""


def open_for_reading(files: Files, path: Path) -> MappedRegion | None:
    """Map a file, or return None when it was deleted meanwhile or is empty."""
    try:
        return files.open(path, read_only=True)
    except StoreLoadError:
        return None
    except StoreIOError as error:
        if isinstance(error.cause, FileNotFoundError):
            return None
        raise


class Regions:
    """The most recently used files, mapped.

    A view stays valid only until the next call: that may unmap it to make room.
    """

    def __init__(self, files: Files, *, open_max: int = OPEN_MAX) -> None:
        self.files = files
        self._open_max = open_max
        self._open: OrderedDict[Path, MappedRegion] = OrderedDict()

    def view(self, path: Path) -> memoryview | None:
        """Return the content of a file, None when it was deleted meanwhile or is empty."""
        region = self._open.get(path)
        if region is not None:
            self._open.move_to_end(path)
            return region.view
        while len(self._open) >= self._open_max:
            self._open.popitem(last=False)[1].close()
        region = open_for_reading(self.files, path)
        if region is None:
            return None
        self._open[path] = region
        return region.view

    def close(self) -> None:
        """Unmap everything."""
        while self._open:
            self._open.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
