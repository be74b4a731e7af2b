"""Whether mapped pages are in memory: the kernel knows, and Python has no call to ask it."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable
from typing import Final

ASKED_SIZE_MAX: Final = 16 << 20
"""Bytes that the kernel is asked about at once."""

_IN_MEMORY: Final = 1


def address_of(mapped: mmap.mmap) -> int:
    """Return where a writable map begins."""
    import ctypes

    # The object is gone at once: while it lives the map cannot be closed.
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))


def are_resident(address: int, size: int) -> bool:
    """Whether the pages from an address on are in memory; True where nobody can tell.

    The address is that of a page, and mapped for as many bytes.
    """
    ask = _asker()
    for start in range(0, size, ASKED_SIZE_MAX):
        pages = ask(address + start, min(size - start, ASKED_SIZE_MAX))
        if pages is None:
            return True
        # Mostly all are, and no other bit is set.
        if pages.count(_IN_MEMORY) < len(pages) and not all(page & _IN_MEMORY for page in pages):
            return False
    return True


@functools.cache
def _asker() -> Callable[[int, int], bytes | None]:
    """Return what asks the kernel for the state of pages, a byte for each; None if it fails.

    It is loaded when it is first needed: a broker that only serves what is new never asks.
    """
    import ctypes

    try:
        mincore = ctypes.CDLL(None, use_errno=False).mincore
    except (OSError, AttributeError):
        return lambda address, size: None
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    mincore.restype = ctypes.c_int

    def ask(address: int, size: int) -> bytes | None:
        state = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        return state.raw if mincore(address, size, state) == 0 else None

    return ask
