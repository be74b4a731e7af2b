"""A batch taken apart into columns: what its messages are, and what the views get of them.

The messages of a batch come from one producer, so most of them look alike: the same properties in
the same order, often the same sizes.  Whatever looks like the message before it is taken in one
step for the whole batch; the rest is taken message by message.
"""

from __future__ import annotations

import functools
import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.batch import BODY_AT, ITEM, LENGTH
from flintmq.format.java import encoded_tags_code

if TYPE_CHECKING:
    from collections.abc import Sequence

ITEM_COUNT_MAX: Final = 16_384
"""Messages of a batch that goes with a run."""

SHAPE_COUNT_MAX: Final = 256
"""Orders of properties that are remembered; clients can make up as many as they like."""
SHAPE_TEXT_SIZE_MAX: Final = 2048
"""Property strings by whose names others are searched are no longer than this."""

_PAIR_END: Final = b"\x02"
_BOUNDARY: Final = b"\0\x02"
"""Stands before each property string when many are searched at once."""
_TAGS, _KEYS, _UNIQUE = b"TAGS", b"KEYS", b"UNIQ_KEY"
_WANTED: Final = rb"\x01([^\x01\x02]+)\x02"
_OTHER: Final = rb"\x01[^\x01\x02]+\x02"
_are_pairs: Final = re.compile(rb"(?:[^\0\x01\x02]+\x01[^\x01\x02]+\x02)*").fullmatch
_find_in_all: Final = re.compile(
    rb"\x02(?:(TAGS|KEYS|UNIQ_KEY)\x01([^\x02]+)|(\0)(?=\x02))"
).findall


class NotPlainError(Exception):
    """A run cannot be stored as one."""


class Items(NamedTuple):
    """The messages of a batch, column by column."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    texts: Sequence[bytes]
    """Their properties, each ended so that others can follow."""


class Dispatched(NamedTuple):
    """What the views get of the messages of a batch."""

    tags: Sequence[int]
    """The tags code of each."""
    keys: list[bytes]
    """The keys of all, one message after the other."""
    key_counts: Sequence[int]
    """How many keys each has."""


class Shape:
    """Properties that many messages have in the same order, and how to find their values."""

    __slots__ = ("_find", "_keys_at", "_tags_at", "_unique_at", "_value_count")

    def __init__(self, names: Sequence[bytes]) -> None:
        wanted = [name for name in names if name in (_TAGS, _KEYS, _UNIQUE)]
        pairs = [re.escape(name) + (_WANTED if name in wanted else _OTHER) for name in names]
        self._find = re.compile(rb"\0\x02" + b"".join(pairs) + rb"(?=\0\x02|\Z)").findall
        self._value_count = len(wanted)
        self._unique_at, self._keys_at, self._tags_at = [
            wanted.index(name) if name in wanted else None for name in (_UNIQUE, _KEYS, _TAGS)
        ]

    def dispatched(self, joined: bytes, count: int) -> Dispatched | None:
        """Return what is in ``count`` property strings, or None if they are not all like this."""
        found = self._find(joined)
        if len(found) != count:
            return None
        columns = list(zip(*found, strict=True)) if self._value_count > 1 else [found]
        tags = [0] * count if self._tags_at is None else _tags_codes(columns[self._tags_at])
        unique = [] if self._unique_at is None else [columns[self._unique_at]]
        if self._keys_at is None:
            return _with_keys(tags, unique)
        keys = columns[self._keys_at]
        if b" " not in b"".join(keys):
            return _with_keys(tags, [*unique, keys])
        own = [[one for one in several.split(b" ") if one] for several in keys]
        for number, value in enumerate(unique[0] if unique else ()):
            own[number].insert(0, value)
        return _of_lists(tags, own)


def _with_keys(tags: Sequence[int], columns: Sequence[Sequence[bytes]]) -> Dispatched:
    """Return what is dispatched of messages that have a key of each column."""
    count, width = len(tags), len(columns)
    keys = [b""] * (count * width)
    for number, column in enumerate(columns):
        keys[number::width] = column
    return Dispatched(tags, keys, [width] * count)


def _of_lists(tags: Sequence[int], own_keys: Sequence[Sequence[bytes]]) -> Dispatched:
    return Dispatched(tags, [key for own in own_keys for key in own], list(map(len, own_keys)))


def _tags_codes(tags: Sequence[bytes]) -> list[int]:
    if tags.count(tags[0]) == len(tags):
        return [encoded_tags_code(tags[0])] * len(tags)
    codes = {value: encoded_tags_code(value) for value in set(tags)}
    return [codes[value] for value in tags]


@functools.lru_cache(maxsize=SHAPE_COUNT_MAX)
def _shape(names: tuple[bytes, ...]) -> Shape | None:
    return Shape(names) if len(set(names)) == len(names) else None


def take_items(body: bytes) -> Items:
    """Take a batch apart, see `flintmq.format.batch`.

    Raises NotPlainError where it is none, or has too many messages.
    """
    try:
        items = _equal_items(body) or _any_items(body)
    except struct.error:
        raise NotPlainError from None
    if not 0 < len(items.flags) <= ITEM_COUNT_MAX:
        raise NotPlainError
    return items


@functools.lru_cache(maxsize=SHAPE_COUNT_MAX)
def _item_struct(body_size: int, text_size: int) -> struct.Struct:
    return struct.Struct(f"{ITEM.format}{body_size}sh{text_size}s")


def _equal_items(body: bytes) -> Items | None:
    """Return the messages of a batch if all of them have the sizes of the first."""
    _, body_size = ITEM.unpack_from(body)
    (text_size,) = LENGTH.unpack_from(body, BODY_AT + body_size)
    if body_size < 0 or text_size < 0:
        raise NotPlainError
    layout = _item_struct(body_size, text_size)
    count, rest = divmod(len(body), layout.size)
    if rest:
        return None
    if count > ITEM_COUNT_MAX:
        raise NotPlainError
    flags, body_sizes, bodies, text_sizes, texts = zip(*layout.iter_unpack(body), strict=True)
    if body_sizes.count(body_size) < count or text_sizes.count(text_size) < count:
        return None
    return Items(flags, bodies, _ended(texts))


def _any_items(body: bytes) -> Items:
    flags, bodies, texts = [], [], []
    at, total = 0, len(body)
    unpack, unpack_length = ITEM.unpack_from, LENGTH.unpack_from
    while at < total:
        flag, body_size = unpack(body, at)
        at += BODY_AT
        length_at = at + body_size
        (text_size,) = unpack_length(body, length_at)
        text_at = length_at + 2
        end = text_at + text_size
        if body_size < 0 or text_size < 0 or end > total:
            raise NotPlainError
        flags.append(flag)
        bodies.append(body[at:length_at])
        texts.append(body[text_at:end])
        at = end
    return Items(flags, bodies, _ended(texts))


def _ended(texts: Sequence[bytes]) -> Sequence[bytes]:
    if b"".join([text[-1:] for text in texts]) == _PAIR_END * len(texts):
        return texts
    return [text + _PAIR_END if text and text[-1] != 2 else text for text in texts]


def dispatched(texts: Sequence[bytes]) -> Dispatched:
    """Return tags codes and keys of many property strings.

    What `flintmq.format.record.dispatch_fields` gives for each, found in one go.
    """
    joined = _BOUNDARY + _BOUNDARY.join(texts)
    if joined.count(_BOUNDARY) != len(texts):
        raise NotPlainError  # A property string holds a boundary.
    first = texts[0]
    if _are_pairs(first) and len(first) <= SHAPE_TEXT_SIZE_MAX:
        names = first.replace(b"\x01", _PAIR_END).split(_PAIR_END)[:-1:2]
        shape = _shape(tuple(names))
        alike = shape.dispatched(joined, len(texts)) if shape is not None else None
        if alike is not None:
            return alike
    return _one_by_one(joined)


def _one_by_one(joined: bytes) -> Dispatched:
    """Return what is in property strings that are not alike, each behind a boundary."""
    all_tags: list[int] = []
    all_keys: list[bytes] = []
    key_counts: list[int] = []
    tags = unique = keys = b""
    found = _find_in_all(joined)
    found.append((b"", b"", b"\0"))
    for name, value, mark in found:
        if mark:
            own = [unique] if unique else []
            if keys:
                own += filter(None, keys.split(b" "))
            all_keys += own
            key_counts.append(len(own))
            all_tags.append(encoded_tags_code(tags) if tags else 0)
            tags = unique = keys = b""
        elif name == _UNIQUE:
            unique = value
        elif name == _KEYS:
            keys = value
        else:
            tags = value
    return Dispatched(all_tags, all_keys, key_counts)
