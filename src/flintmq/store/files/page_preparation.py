"""Mapped pages made ready for writing before somebody writes: the kernel does it in any thread.

The first write to a page of a file stops the writer while the kernel finds memory and notes the
page in the journal of the file system: mostly microseconds, now and then tens of milliseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

PREPARED_SIZE_MAX: Final = 256 << 10
"""Bytes that are made ready at once."""

_POPULATE_WRITE: Final = 23
"""MADV_POPULATE_WRITE of Linux 5.14; the module `mmap` has no name for it."""


def prepare_for_writing(address: int, size: int) -> bool:
    """Make pages ready for writing; return whether that is done, or else could not be.

    The address is that of a page of a writable map.  What the pages hold stays as it is.  It waits
    for memory and for the journal without the interpreter's lock.
    """
    prepare = _preparer()
    return all(
        prepare(address + start, min(size - start, PREPARED_SIZE_MAX))
        for start in range(0, size, PREPARED_SIZE_MAX)
    )


@functools.cache
def _preparer() -> Callable[[int, int], bool]:
    """Return what asks the kernel to make pages ready; where it cannot, that does nothing."""
    import ctypes
    import sys

    try:
        advise = ctypes.CDLL(None, use_errno=False).madvise
    except (OSError, AttributeError):
        return lambda address, size: False
    if not sys.platform.startswith("linux"):
        return lambda address, size: False
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    advise.restype = ctypes.c_int
    return lambda address, size: advise(address, size, _POPULATE_WRITE) == 0
