"""Delivery times: when a message that names a time is to be delivered, and where it waits.

A producer names a time by one of four properties, of which the first one counts:

    FLINT_DELIVER_AT   a time, in milliseconds since the Unix epoch
    TIMER_DELAY_SEC    how long from now, in seconds
    TIMER_DELAY_MS     how long from now, in milliseconds
    TIMER_DELIVER_MS   a time, as above

The last three are RocketMQ 5's.  A waiting message stands in the queue of its *delay class*: class
0 has those that wait for less than a second, class n those that wait for less than 4**n seconds.
So messages of one queue wait about equally long, and the oldest of them are done first.
"""

from collections.abc import Mapping
from typing import Final

from flintmq.format.errors import FormatError
from flintmq.model.property_names import (
    DELIVER_AT,
    DELIVERY_TIMES,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)

DELAY_CLASS_COUNT: Final = 16
DELAY_MAX_S: Final = 4 ** (DELAY_CLASS_COUNT - 1) - 1
"""The longest delay that has a class: 34 years."""

DEFAULT_DELAY_MAX_S: Final = 10 * 366 * 86_400

_TAG_HASH_END: Final = 1 << 31
_TIME_MAX: Final = (1 << 53) - 1
"""A time has to be told from the hash of a tag, and to pass through JSON."""

_DIGITS_MAX: Final = 19
_UNITS_MS: Final = {DELIVER_AT: 1, TIMER_DELIVER_MS: 1, TIMER_DELAY_MS: 1, TIMER_DELAY_SEC: 1000}
_FROM_NOW: Final = frozenset({TIMER_DELAY_MS, TIMER_DELAY_SEC})


class DeliveryTimeError(FormatError):
    """A property that shall name a time of delivery does not."""


def delivery_time_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Return when a message is to be delivered, None if it names no time.

    Raises:
        DeliveryTimeError: it names something else.
    """
    for name in DELIVERY_TIMES:
        text = properties.get(name)
        if text is not None:
            break
    else:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise DeliveryTimeError(f"{name} is no number of at most {_DIGITS_MAX} digits: {text[:20]}")
    value = int(text) * _UNITS_MS[name]
    return now_ms + value if name in _FROM_NOW else value


def delay_class(delay_ms: int) -> int:
    """Return the queue in which messages wait that are due after ``delay_ms``."""
    seconds = max(delay_ms, 0) // 1000
    return min((seconds.bit_length() + 1) // 2, DELAY_CLASS_COUNT - 1)


def waits_until_ms(text: str) -> int | None:
    """Return the time that a waiting record names, None for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        return None
    value = int(text)
    return value if is_delivery_time(value) else None


def is_delivery_time(tags_code: int) -> bool:
    """Whether the tags code of a unit is a time, and not the hash of a tag."""
    return _TAG_HASH_END <= tags_code <= _TIME_MAX
