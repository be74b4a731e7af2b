"""Loads, stores and copies in plain Python, which look at bounds.

With ``NUMBA_DISABLE_JIT=1`` kernels run as the Python functions that they are written as, and use
these.  That is slow and good for one thing: whatever a kernel would do outside of the arrays that
it was given is found.
"""

import ctypes
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]


def checked_loader(bits: int, order: str, *, is_signed: bool) -> Callable[[_Bytes, int], int]:
    """Return a function that loads a number from any place of an array."""
    size = bits // 8

    def load(data: _Bytes, at: int) -> int:
        _check(data, at, size)
        piece = data[at : at + size].tobytes()
        number = int.from_bytes(piece, "big" if order == "big" else "little", signed=is_signed)
        return np.uint64(number) if bits == 64 and not is_signed else number  # type: ignore[return-value]

    return load


def checked_storer(bits: int) -> Callable[[_Bytes, int, int], None]:
    """Return a function that stores a big-endian number at any index of an array."""
    size = bits // 8

    def store(target: _Bytes, at: int, value: int) -> None:
        _check(target, at, size)
        lowest = int(value) & ((1 << bits) - 1)
        target[at : at + size] = np.frombuffer(lowest.to_bytes(size, "big"), np.uint8)

    return store


def checked_copy(target: _Bytes, to: int, source: _Bytes, start: int, size: int) -> None:
    """Copy bytes from one array to another."""
    _check(target, to, size)
    _check(source, start, size)
    target[to : to + size] = source[start : start + size]


def checked_bytes_at(address: int, size: int) -> _Bytes:
    """Return the bytes at an address of this process; an array knows its bounds."""
    if size < 0:
        raise IndexError(f"{size} bytes at an address")
    view = memoryview((ctypes.c_uint8 * int(size)).from_address(int(address))).cast("B")
    return np.frombuffer(view, np.uint8)


def count_trailing_zeros(word: np.uint64) -> int:
    """Return how many zero bits a number has at its lower end; 64 if it is zero."""
    number = int(word)
    return (number & -number).bit_length() - 1 if number else 64


def _check(data: _Bytes, at: int, size: int) -> None:
    if size < 0 or at < 0 or at + size > len(data):
        raise IndexError(f"{size} bytes at {at} of {len(data)}")
