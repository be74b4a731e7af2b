"""Pages of files made ready for writing, and let go when they were written, in any thread.

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
_DONT_NEED: Final = 4
"""MADV_DONTNEED, which takes nothing but its entries from a shared map of a file."""
_HUGE_PAGE: Final = 14
"""MADV_HUGEPAGE; the file system decides whether it has so large pieces."""
PIECE_SIZE: Final = 2 << 20
"""Bytes of a large piece."""
_BEGIN_WRITING: Final = 2
"""SYNC_FILE_RANGE_WRITE.  Who waits as well would be told of an error that a sync has to tell."""


def prepare_for_writing(address: int, size: int) -> bool:
    """Make pages ready for writing; return whether that is done, or else could not be.

    The address is that of a page of a writable map.  What the pages hold stays as it is.  It waits
    for memory and for the journal without the interpreter's lock.
    """
    advise = _adviser()
    return all(
        advise(address + start, min(size - start, PREPARED_SIZE_MAX), _POPULATE_WRITE)
        for start in range(0, size, PREPARED_SIZE_MAX)
    )


def use_large_pieces(address: int, size: int) -> None:
    """Have the kernel keep what is written to a map of a file in large pieces.

    It takes memory for a whole piece at the first write to it, which costs a tenth of what its
    pages would cost one by one.  But a sync writes a piece whole where a byte of it has changed.
    The address is a multiple of PIECE_SIZE away from where the map begins.
    """
    _adviser()(address, size, _HUGE_PAGE)


def detach_written(address: int, size: int) -> None:
    """Let go of pages that were written through a shared map, and are synced next.

    The kernel keeps what they hold, and maps them again for whoever looks at them.  While they are
    mapped, a sync would protect each of them from writes by itself and would interrupt all other
    cores of this process for it, which takes longer than all else that a sync computes.
    """
    _adviser()(address, size, _DONT_NEED)


def begin_write_out(descriptor: int, start: int, size: int) -> None:
    """Have the kernel begin to write a range of a file, where it can do that."""
    _writer()(descriptor, start, size, _BEGIN_WRITING)


@functools.cache
def _writer() -> Callable[[int, int, int, int], object]:
    """Return what has the kernel write a range of a file; where it cannot, that does nothing."""
    import ctypes

    try:
        write = ctypes.CDLL(None, use_errno=False).sync_file_range
    except (OSError, AttributeError):
        return lambda descriptor, start, size, flags: None
    write.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    write.restype = ctypes.c_int
    return write


@functools.cache
def _adviser() -> Callable[[int, int, int], bool]:
    """Return what advises the kernel about pages; where it cannot, that does nothing."""
    import ctypes
    import sys

    try:
        advise = ctypes.CDLL(None, use_errno=False).madvise
    except (OSError, AttributeError):
        return lambda address, size, advice: False
    if not sys.platform.startswith("linux"):
        return lambda address, size, advice: False
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    advise.restype = ctypes.c_int
    return lambda address, size, advice: advise(address, size, advice) == 0
