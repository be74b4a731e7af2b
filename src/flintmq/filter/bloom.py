"""The bloom filter that notes in a queue which SQL92 subscriptions a message satisfies.

Each subscription has a few bits, chosen by a hash of its group and topic.  The notes of a message
have the bits of all subscriptions that it satisfies.  Where one of its bits is missing, a
subscription does not match, and the message need not be read.
"""

import math
from typing import Final, NamedTuple

_MASK_32: Final = 0xFFFFFFFF
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_FIRST_FACTOR: Final = 0x87C37B91114253D5
_SECOND_FACTOR: Final = 0x4CF5AD432745937F


class FilterBits(NamedTuple):
    """The bits of one subscription: how many there are in all, and which are its own."""

    bit_count: int
    positions: tuple[int, ...]

    def are_in(self, bitmap: bytes) -> bool:
        """Whether a message may satisfy the subscription; True where its notes cannot say."""
        if 8 * len(bitmap) != self.bit_count:
            return True
        return all(bitmap[at >> 3] >> (at & 7) & 1 for at in self.positions)


class BloomFilter(NamedTuple):
    """How many bits there are, and how many of them a subscription has."""

    bit_count: int
    hash_count: int

    @classmethod
    def of(cls, *, error_percent: int, consumer_count: int) -> "BloomFilter":
        """Return the filter for so many subscriptions and so many wrong guesses in a hundred."""
        error = error_percent / 100
        hash_count = math.ceil(math.log(error) / math.log(0.5))
        needed = math.ceil(consumer_count * math.log2(1 / error) * math.log2(math.e))
        return cls(-(-needed // 8) * 8, hash_count)

    def bits_of(self, group: str, topic: str) -> FilterBits:
        """Return the bits of a group's subscription to a topic."""
        hashed = murmur3_low_half(f"{group}#{topic}".encode())
        low, high = hashed & _MASK_32, hashed >> 32
        positions = []
        for number in range(1, self.hash_count + 1):
            combined = low + number * high & _MASK_32
            if combined >> 31:
                combined ^= _MASK_32
            positions.append(combined % self.bit_count)
        return FilterBits(self.bit_count, tuple(positions))

    def bitmap(self, satisfied: list[FilterBits]) -> bytes:
        """Return the notes of a message that satisfies some subscriptions."""
        noted = bytearray(self.bit_count // 8)
        for bits in satisfied:
            for at in bits.positions:
                noted[at >> 3] |= 1 << (at & 7)
        return bytes(noted)


def murmur3_low_half(data: bytes) -> int:
    """Return the first 64 bits of the 128-bit Murmur3 hash (x64, seed 0), without a sign."""
    first = second = 0
    whole = len(data) & ~15
    for at in range(0, whole, 16):
        first ^= _mixed_first(int.from_bytes(data[at : at + 8], "little"))
        first = (_rotated(first, 27) + second) * 5 + 0x52DCE729 & _MASK_64
        second ^= _mixed_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        second = (_rotated(second, 31) + first) * 5 + 0x38495AB5 & _MASK_64
    tail = data[whole:]
    first ^= _mixed_first(int.from_bytes(tail[:8], "little")) ^ len(data)
    second ^= _mixed_second(int.from_bytes(tail[8:], "little")) ^ len(data)
    first = first + second & _MASK_64
    second = second + first & _MASK_64
    return _finished(first) + _finished(second) & _MASK_64


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & _MASK_64


def _mixed_first(block: int) -> int:
    return _rotated(block * _FIRST_FACTOR & _MASK_64, 31) * _SECOND_FACTOR & _MASK_64


def _mixed_second(block: int) -> int:
    return _rotated(block * _SECOND_FACTOR & _MASK_64, 33) * _FIRST_FACTOR & _MASK_64


def _finished(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK_64
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK_64
    return value ^ value >> 33
