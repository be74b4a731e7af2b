"""Java string hashes of many keys at once, by arithmetic on one long integer.

Each key stands right-aligned in a lane of 32 or 64 bytes of one big integer (zero bytes in
front of a text do not change its hash).  Inside every lane neighbouring 8-bit digits are folded
into 16-bit ones holding ``31 * left + right``, those into 32-bit ones, and so on until the lane
holds the hash of its key.  A lane has always twice the bits its parts need, so nothing spills
into the next.  The interpreter runs ten operations for a whole batch instead of one for each
character.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from flintmq.format.java import extend_hash, index_hash

LANE_SIZES: Final = (32, 64)
"""A unique id made by a client with an IPv4 address has 32 characters, with an IPv6 one 56."""

BATCH_COUNT_MAX: Final = 256

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 1 << 31
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(LANE_SIZES[-1] + 1))
_FOLDS: Final = tuple((bits, _POWERS[bits // 8]) for bits in (8, 16, 32, 64, 128, 256))
_LANES: Final = {size: struct.Struct(f">{size - 4}xI") for size in LANE_SIZES}


@lru_cache(maxsize=BATCH_COUNT_MAX)
def _masks(count: int, lane_size: int) -> tuple[int, ...]:
    """Return for each fold the mask of the lower half of every digit pair, for ``count`` lanes."""
    total = count * lane_size * 8
    masks = []
    for bits, _ in _FOLDS:
        if bits >= lane_size * 8:
            break
        repeats = total // (2 * bits)
        ones = ((1 << 2 * bits * repeats) - 1) // ((1 << 2 * bits) - 1)
        masks.append(ones * ((1 << bits) - 1))
    return tuple(masks)


def _lane_hashes(keys: Sequence[bytes], lane_size: int) -> list[int]:
    """Return the unsigned hashes of ASCII keys of at most ``lane_size`` bytes each."""
    folded = int.from_bytes(b"".join([key.rjust(lane_size, b"\0") for key in keys]), "big")
    for (bits, power), mask in zip(_FOLDS, _masks(len(keys), lane_size), strict=False):
        folded = (folded & mask) + (folded >> bits & mask) * power
    packed = folded.to_bytes(len(keys) * lane_size, "big")
    return [low for (low,) in _LANES[lane_size].iter_unpack(packed)]


def hash_keys(prefixes: Sequence[int], keys: Sequence[bytes]) -> list[int]:
    """Return the unsigned hash of each key, continued from the hash of its prefix.

    The same as ``extend_hash(prefix, key)`` for every pair, at a fraction of the time.
    """
    hashes: list[int] = []
    for at in range(0, len(keys), BATCH_COUNT_MAX):
        some = keys[at : at + BATCH_COUNT_MAX]
        before = prefixes[at : at + BATCH_COUNT_MAX]
        longest = max(map(len, some))
        if longest <= LANE_SIZES[-1] and b"".join(some).isascii():
            lane_size = LANE_SIZES[0] if longest <= LANE_SIZES[0] else LANE_SIZES[-1]
            powers = _POWERS
            hashes += [
                prefix * powers[len(key)] + low & _MASK
                for prefix, key, low in zip(
                    before, some, _lane_hashes(some, lane_size), strict=True
                )
            ]
        else:
            hashes += map(extend_hash, before, some)
    return hashes


def index_hashes(prefixes: Sequence[int], keys: Sequence[bytes]) -> list[int]:
    """Return the hash that the key index stores for each key, see `index_hash`.

    ``prefixes`` has the hash of what stands before each key (`key_prefix_hash`).
    """
    return [
        unsigned if unsigned < _SIGN else index_hash(unsigned)
        for unsigned in hash_keys(prefixes, keys)
    ]
