"""The checksum of bodies: CRC-32 without its highest bit, see ``crc31`` in ``flintmq.format.java``.

Sixteen bytes are taken at a time: a table for each position says what the byte there adds.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from flintmq.format.java import CRC_MASK
from flintmq.kernels.compiled import Bytes, kernel, load_word

_POLYNOMIAL: Final = 0xEDB88320
_STEP: Final = 16


def _tables() -> npt.NDArray[np.uint32]:
    """Return a table for each distance from the end of a step."""
    rows = np.zeros((_STEP, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        rows[0, byte] = crc
    for distance in range(1, _STEP):
        before = rows[distance - 1]
        rows[distance] = before >> 8 ^ rows[0][before & 0xFF]
    return rows


_TABLES: Final = _tables()


@kernel
def crc31(data: Bytes, start: int, size: int) -> int:
    """Return the checksum of ``size`` bytes of ``data`` from ``start`` on, 31 bits of it."""
    crc = np.uint64(0xFFFFFFFF)
    byte = np.uint64(0xFF)
    at = start
    end = start + size
    while end - at >= _STEP:
        low = load_word(data, at)
        high = load_word(data, at + 8)
        # Only four bytes wait for the step before: the others are looked up meanwhile.
        others = (
            _TABLES[11, low >> np.uint64(32) & byte]
            ^ _TABLES[10, low >> np.uint64(40) & byte]
            ^ _TABLES[9, low >> np.uint64(48) & byte]
            ^ _TABLES[8, low >> np.uint64(56)]
            ^ _TABLES[7, high & byte]
            ^ _TABLES[6, high >> np.uint64(8) & byte]
            ^ _TABLES[5, high >> np.uint64(16) & byte]
            ^ _TABLES[4, high >> np.uint64(24) & byte]
            ^ _TABLES[3, high >> np.uint64(32) & byte]
            ^ _TABLES[2, high >> np.uint64(40) & byte]
            ^ _TABLES[1, high >> np.uint64(48) & byte]
            ^ _TABLES[0, high >> np.uint64(56)]
        )
        first = low ^ crc
        crc = np.uint64(
            others
            ^ (_TABLES[15, first & byte] ^ _TABLES[14, first >> np.uint64(8) & byte])
            ^ (
                _TABLES[13, first >> np.uint64(16) & byte]
                ^ _TABLES[12, first >> np.uint64(24) & byte]
            )
        )
        at += _STEP
    while at < end:
        crc = crc >> np.uint64(8) ^ np.uint64(_TABLES[0, (crc ^ np.uint64(data[at])) & byte])
        at += 1
    return int((crc ^ np.uint64(0xFFFFFFFF)) & np.uint64(CRC_MASK))
