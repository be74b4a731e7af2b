"""Patterns of addresses, as the white lists of access files have them.

    1.2.3.4            one address, of IPv4 or IPv6
    1.2.3.4,1.2.3.5    several patterns
    1.2.3.{4,5}        several values of one part
    1.2.3.10-20        a range of values of one part
    1.2.*.*            any value of a part
    *                  every address; *.*.*.* says the same

The parts of an IPv6 address are its eight groups, in hexadecimal; ``::`` stands for zeros.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from flintmq.access.access_errors import AccessFileError

PATTERN_COUNT_MAX: Final = 10_000
_EVERYTHING: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_OUTSIDE_BRACES: Final = re.compile(r",(?![^{}]*\})")
_IPV4_PARTS: Final = 4
_IPV6_PARTS: Final = 8
_DECIMAL: Final = re.compile(r"[0-9]{1,3}", re.ASCII)
_HEXADECIMAL: Final = re.compile(r"[0-9A-Fa-f]{1,4}", re.ASCII)

_Ranges = tuple[tuple[int, int], ...]
"""The values that one part of an address may have: first and last of each range."""


class AddressPatterns(NamedTuple):
    """Addresses that a white list names."""

    matches_all: bool = False
    patterns: tuple[tuple[_Ranges, ...], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no address is named."""
        return not self.matches_all and not self.patterns

    def match(self, host: str) -> bool:
        """Return whether an address, without a port, is among those that are named."""
        if self.matches_all:
            return True
        if not self.patterns:
            return False
        parts = _parts_of(host)
        return parts is not None and any(
            len(pattern) == len(parts) and all(map(_is_among, parts, pattern))
            for pattern in self.patterns
        )


NO_ADDRESSES: Final = AddressPatterns()


def parse_patterns(*texts: str) -> AddressPatterns:
    """Return what some patterns match together; a blank one matches nothing."""
    matches_all, patterns = False, []
    for text in texts:
        for one in filter(None, map(str.strip, _OUTSIDE_BRACES.split(text))):
            if one in _EVERYTHING:
                matches_all = True
            else:
                patterns.append(_pattern(one))
    if len(patterns) > PATTERN_COUNT_MAX:
        raise AccessFileError(f"more than {PATTERN_COUNT_MAX} patterns of addresses")
    return AddressPatterns(matches_all, tuple(patterns))


def _pattern(text: str) -> tuple[_Ranges, ...]:
    if ":" in text:
        return tuple(_ranges(part, text, 0xFFFF) for part in _ipv6_parts(text))
    parts = text.split(".")
    if len(parts) != _IPV4_PARTS:
        raise AccessFileError(f"{text[:80]!r} is no pattern of addresses")
    return tuple(_ranges(part, text, 0xFF) for part in parts)


def _ipv6_parts(text: str) -> list[str]:
    """Return the eight groups of a pattern, with those written that ``::`` stands for."""
    head, gap, tail = text.partition("::")
    left = head.split(":") if head else []
    right = tail.split(":") if tail else []
    missing = _IPV6_PARTS - len(left) - len(right)
    if missing < 0 or bool(gap) != bool(missing) or "::" in tail:
        raise AccessFileError(f"{text[:80]!r} is no pattern of addresses")
    return [*left, *["0"] * missing, *right]


def _ranges(part: str, text: str, largest: int) -> _Ranges:
    if part == "*":
        return ((0, largest),)
    is_set = part.startswith("{") and part.endswith("}")
    ranges = []
    for one in part[1:-1].split(",") if is_set else [part]:
        first, dash, last = one.strip().partition("-")
        low = _number(first.strip(), text, largest)
        high = _number(last.strip(), text, largest) if dash else low
        if low > high:
            raise AccessFileError(f"{text[:80]!r} has a range that ends before it begins")
        ranges.append((low, high))
    return tuple(ranges)


def _number(digits: str, text: str, largest: int) -> int:
    shape, base = (_HEXADECIMAL, 16) if largest == 0xFFFF else (_DECIMAL, 10)
    if shape.fullmatch(digits) is None or int(digits, base) > largest:
        raise AccessFileError(f"{text[:80]!r} is no pattern of addresses")
    return int(digits, base)


def _parts_of(host: str) -> tuple[int, ...] | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return tuple(address.packed)
    if address.ipv4_mapped is not None:
        return tuple(address.ipv4_mapped.packed)
    packed = address.packed
    return tuple(packed[at] << 8 | packed[at + 1] for at in range(0, len(packed), 2))


def _is_among(value: int, ranges: _Ranges) -> bool:
    return any(low <= value <= high for low, high in ranges)
