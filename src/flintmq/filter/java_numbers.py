"""Numbers as Java reads, compares and prints them.

A property is a text.  Compared with a number it is read as a number of the same type, by the rules
of Java's ``Integer``, ``Long`` and ``Double``, which differ from Python's in what they accept.
"""

import functools
import math
import re
from typing import Final

from flintmq.filter.errors import EvaluationError
from flintmq.format.java import parse_int

_DOUBLE_MIN: Final = 5e-324

_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What Java trims from a text before it reads a double."""

_DECIMAL: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?", re.ASCII
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII
)
_SPECIAL: Final = {
    sign + name: float(sign + value)
    for sign in ("", "+", "-")
    for name, value in (("NaN", "nan"), ("Infinity", "inf"))
}


_SHORT_LENGTH_MAX: Final = 256
"""Characters of a text that is read each time it is compared."""
_LONG_COUNT_MAX: Final = 128
"""Longer texts whose numbers are remembered: a message has no more of them.  To read 30,000 digits
takes as long as a hundred comparisons, and an expression may compare them hundreds of times."""


class Long(int):
    """An integer of 64 bits; a plain ``int`` stands for one of 32 bits."""

    __slots__ = ()


def read_integer(text: str, like: int) -> int:
    """Return the integer that a text is, of the type of ``like``; else raise EvaluationError."""
    bit_count = 64 if isinstance(like, Long) else 32
    is_short = len(text) <= _SHORT_LENGTH_MAX
    value = parse_int(text, bit_count=bit_count) if is_short else _long_integer(text, bit_count)
    if value is None:
        raise EvaluationError("no integer")
    return type(like)(value)


@functools.lru_cache(_LONG_COUNT_MAX)
def _long_integer(text: str, bit_count: int) -> int | None:
    return parse_int(text, bit_count=bit_count)


def read_double(text: str) -> float:
    """Return the double that a text is; else raise EvaluationError."""
    return _parse_double(text) if len(text) <= _SHORT_LENGTH_MAX else _long_double(text)


@functools.lru_cache(_LONG_COUNT_MAX)
def _long_double(text: str) -> float:
    return _parse_double(text)


def _parse_double(text: str) -> float:
    trimmed = text.strip(_BLANKS)
    special = _SPECIAL.get(trimmed)
    if special is not None:
        return special
    decimal = _DECIMAL.fullmatch(trimmed)
    if decimal is not None:
        return float(decimal[1])
    hexadecimal = _HEXADECIMAL.fullmatch(trimmed)
    if hexadecimal is None:
        raise EvaluationError("no double")
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -math.inf if trimmed.startswith("-") else math.inf


def compare_doubles(left: float, right: float) -> int:
    """Compare in Java's order: a negative zero is below zero, NaN above all and equal to itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    """Tell apart those doubles that are neither smaller nor larger than each other."""
    if math.isnan(value):
        return 2
    return 0 if value == 0 and math.copysign(1, value) < 0 else 1


def double_text(value: float) -> str:
    """Return the text that Java prints for a finite double."""
    # Java gives two digits at least, and then those that are nearest.
    digits = "4.9e-324" if abs(value) == _DOUBLE_MIN else repr(abs(value))
    mantissa, _, exponent = digits.partition("e")
    whole, _, fraction = mantissa.partition(".")
    figures = (whole + fraction).lstrip("0")
    point = int(exponent or 0) + len(whole) - (len(whole + fraction) - len(figures))
    figures = figures.rstrip("0")
    if not figures:
        text = "0.0"
    elif -3 < point <= 7:
        padded = "0" * max(1 - point, 0) + figures + "0" * max(point - len(figures), 0)
        at = max(point, 1)
        text = f"{padded[:at]}.{padded[at:] or '0'}"
    else:
        text = f"{figures[0]}.{figures[1:] or '0'}E{point - 1}"
    return "-" + text if math.copysign(1, value) < 0 else text
