"""Numbers written by kernels in decimal and hexadecimal digits.

No function looks at bounds: the kernel that calls it has to.
"""

from typing import Final

import numpy as np

from flintmq.kernels.compiled import Bytes, Target, kernel, load_byte

HEX_LONG_SIZE: Final = 16
"""Digits of a number of eight bytes."""

_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_ZERO: Final = 48
_MINUS: Final = 45


@kernel
def put_digits(target: Target, at: int, value: int) -> int:
    """Write a number in decimal digits; return where they end."""
    if value < 0:
        target[at] = np.uint8(_MINUS)
        at += 1
        value = -value
    size = 1
    rest = value // 10
    while rest:
        size += 1
        rest //= 10
    for place in range(at + size - 1, at - 1, -1):
        target[place] = np.uint8(_ZERO + value % 10)
        value //= 10
    return at + size


@kernel
def put_hex(target: Target, at: int, data: Bytes, start: int, size: int) -> int:
    """Write bytes in upper-case hexadecimal digits; return where they end."""
    for index in range(start, start + size):
        byte = load_byte(data, index)
        target[at] = _HEX[byte >> 4]
        target[at + 1] = _HEX[byte & 15]
        at += 2
    return at


@kernel
def put_hex_long(target: Target, at: int, value: int) -> None:
    """Write a number of eight bytes in HEX_LONG_SIZE hexadecimal digits."""
    for place in range(HEX_LONG_SIZE - 1, -1, -1):
        target[at + place] = _HEX[value & 15]
        value >>= 4
