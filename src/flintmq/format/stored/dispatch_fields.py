"""What the views get of a message: its tags code and its index keys, derived from its properties.

This is the rule in Python; ``flintmq.kernels.dispatch_fields`` is the same rule in machine code,
and a property test compares the two.  Everything else calls one of them.

- The tags code is the Java hash of TAGS, zero without any.  For a record of the schedule topic
  it is the time of delivery instead, which the delay level gives, and for one of the waiting topic
  the time that the record names.
- The index keys are the unique key first, then the words of KEYS, split at single spaces.
"""

import re
from collections.abc import Mapping
from typing import Final

from flintmq.format.delay_levels import DelayLevels
from flintmq.format.delivery_time import waits_until_ms
from flintmq.format.errors import CorruptRecordError
from flintmq.format.java import encoded_tags_code, tags_code
from flintmq.format.properties import find_property
from flintmq.model import property_names
from flintmq.model.topics import SCHEDULE_TOPIC, WAITING_TOPIC

TAGS: Final = property_names.TAGS.encode()
KEYS: Final = property_names.KEYS.encode()
UNIQ_KEY: Final = property_names.UNIQ_KEY.encode()
DISPATCHED_NAMES: Final = (TAGS, KEYS, UNIQ_KEY)
"""The properties that tags code and keys are derived from."""

_DELAY: Final = property_names.DELAY.encode()
# Found faster here than in their module.
_TAGS_NAME: Final = property_names.TAGS
_KEYS_NAME: Final = property_names.KEYS
_UNIQ_KEY_NAME: Final = property_names.UNIQ_KEY
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_WAITING_TOPIC: Final = WAITING_TOPIC.encode()
_TIMER_OUT_MS: Final = property_names.TIMER_OUT_MS.encode()

_find_dispatched: Final = re.compile(
    rb"(?:^|\x02)(%b)\x01([^\x02]+)" % b"|".join(DISPATCHED_NAMES)
).findall
"""Finds the dispatched properties of a message in one go, by the rules of ``find_property``."""


class BadDelayLevelError(CorruptRecordError):
    """A delayed message names a level that is no number.

    Java's dispatch fails such a record.  Here it is due at once, so that it is seen and dealt
    with: ``fields`` are the tags code and the keys that the views get.
    """

    def __init__(self, level: str, fields: tuple[int, list[bytes]]) -> None:
        super().__init__(f"the delay level is no number: {level[:32]!r}")
        self.fields = fields


def split_keys(unique_key: bytes, keys: bytes) -> list[bytes]:
    """Return the index keys of a message from the values of UNIQ_KEY and KEYS, empty for none."""
    found = [unique_key] if unique_key else []
    if keys:
        if b" " in keys:
            found += filter(None, keys.split(b" "))
        else:
            found.append(keys)
    return found


def dispatch_fields(
    topic: bytes, properties: bytes, store_timestamp: int, delay_levels: DelayLevels | None
) -> tuple[int, list[bytes]]:
    """Return the tags code and the index keys of a record.

    Without ``delay_levels`` delayed messages are treated like others.  Recovery and dispatch from
    the log call this for every record.

    Raises:
        BadDelayLevelError: the record is delayed by no number.
    """
    tags = keys = unique_key = b""
    for name, value in _find_dispatched(properties):
        if name == TAGS:
            tags = value
        elif name == KEYS:
            keys = value
        else:
            unique_key = value
    code = encoded_tags_code(tags) if tags else 0
    found = split_keys(unique_key, keys)
    if topic == _SCHEDULE_TOPIC and delay_levels is not None:
        level = find_property(properties, _DELAY)
        if level is not None:
            text = level.decode("utf-8", "replace")
            code = _due_time(text, code, found, store_timestamp, delay_levels)
    elif topic == _WAITING_TOPIC and delay_levels is not None:
        until = find_property(properties, _TIMER_OUT_MS) or b""
        code = waits_until_ms(until.decode("utf-8", "replace")) or code
    return code, found


def dispatch_fields_of_map(
    topic: str, properties: Mapping[str, str], store_timestamp: int, delay_levels: DelayLevels
) -> tuple[int, list[bytes]]:
    """Return what `dispatch_fields` does, of a message whose properties are at hand as a map."""
    tags = properties.get(_TAGS_NAME)
    keys = properties.get(_KEYS_NAME)
    unique_key = properties.get(_UNIQ_KEY_NAME)
    code = tags_code(tags) if tags else 0
    found = split_keys(unique_key.encode() if unique_key else b"", keys.encode() if keys else b"")
    if topic == SCHEDULE_TOPIC and property_names.DELAY in properties:
        level = properties[property_names.DELAY]
        code = _due_time(level, code, found, store_timestamp, delay_levels)
    elif topic == WAITING_TOPIC:
        code = waits_until_ms(properties.get(property_names.TIMER_OUT_MS, "")) or code
    return code, found


def _due_time(
    level_text: str, code: int, keys: list[bytes], store_timestamp: int, delay_levels: DelayLevels
) -> int:
    """Return the tags code of a delayed message, ``code`` if its level means no delay."""
    level = delay_levels.level_of(level_text)
    if level is None:
        raise BadDelayLevelError(level_text, (store_timestamp, keys))
    return delay_levels.due_time(level, store_timestamp) if level > 0 else code


def dispatch_tags_code(
    topic: bytes, properties: bytes, store_timestamp: int, delay_levels: DelayLevels | None
) -> int:
    """Return the tags code that belongs into the consume-queue unit of a record."""
    return dispatch_fields(topic, properties, store_timestamp, delay_levels)[0]


def index_keys(properties: bytes) -> list[bytes]:
    """Return the keys under which the key index enters a message, the unique key first."""
    return dispatch_fields(b"", properties, 0, None)[1]


def has_dispatched(properties: bytes) -> bool:
    """Whether any property is there that tags code and keys are derived from."""
    return bool(_find_dispatched(properties))
