"""Java string hashes of many keys at once, in arrays.

Each key stands right-aligned in a row of 32 or 64 bytes (zero bytes in front of a text do not
change its hash); a row times the powers of 31 is the hash.  It pays from some dozen keys on; see
`flintmq.format.hash_batch` for fewer, and for keys that are no plain ASCII.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flintmq.format.hash_batch import LANE_SIZES, hash_keys

_LENGTH_MAX: Final = LANE_SIZES[-1]
_POWERS: Final = np.array([pow(31, n, 1 << 32) for n in range(_LENGTH_MAX + 1)], np.uint32)
_WEIGHTS: Final = {size: _POWERS[:size][::-1].copy() for size in LANE_SIZES}


def key_hashes(prefixes: Sequence[int], keys: Sequence[bytes]) -> NDArray[np.uint32]:
    """Return the unsigned hash of each key, continued from the hash of its prefix."""
    longest = max(map(len, keys))
    if longest > _LENGTH_MAX or not b"".join(keys).isascii():
        return np.array(hash_keys(prefixes, keys), np.uint32)
    width = LANE_SIZES[0] if longest <= LANE_SIZES[0] else _LENGTH_MAX
    rows = np.frombuffer(b"".join([key.rjust(width, b"\0") for key in keys]), np.uint8)
    # Sums of 32-bit numbers wrap around, as Java's do.
    low = rows.reshape(len(keys), width).astype(np.uint32) @ _WEIGHTS[width]
    return np.array(prefixes, np.uint32) * _POWERS[list(map(len, keys))] + low


def without_sign(hashes: NDArray[np.uint32]) -> NDArray[np.int32]:
    """Return hashes as the key index has them: `flintmq.format.java.index_hash` of each."""
    absolute = np.abs(hashes.view(np.int32))
    # The lowest number has no opposite.
    absolute[absolute < 0] = 0
    return absolute
