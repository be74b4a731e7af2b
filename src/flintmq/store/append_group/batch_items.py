"""The items of a batch as columns, and what the views get of them.

The messages of a batch come from one producer, so most of them look alike: the same properties in
the same order, often the same sizes.  Items that look like the one before are handled in one step
for the whole batch; the others are handled one by one.
"""

from __future__ import annotations

import functools
import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.java import encoded_tags_code
from flintmq.format.stored.batch import BODY_AT, ITEM, LENGTH
from flintmq.format.stored.dispatch_fields import (
    DISPATCHED_NAMES,
    KEYS,
    TAGS,
    UNIQ_KEY,
    split_keys,
)
from flintmq.store.append_group.sends import NotPlainError

if TYPE_CHECKING:
    from collections.abc import Sequence

ITEM_COUNT_MAX: Final = 16_384
"""Messages of a batch that can be appended in a group."""

LARGE_BATCH_SIZE: Final = 64 << 10
LARGE_BATCH_COUNT: Final = 2048
"""Bytes and messages of a batch that takes long in Python, see `is_large_batch`."""

SPACE_COUNT_MAX: Final = 8192
"""Spaces in the properties of a batch that can be: each may stand between two keys."""

ORDER_COUNT_MAX: Final = 256
"""Orders of names that are remembered; clients can make up as many as they like."""
ORDER_TEXT_SIZE_MAX: Final = 2048
"""Properties texts by whose names others are searched are no longer than this."""

_PAIR_END: Final = b"\x02"
_BOUNDARY: Final = b"\0\x02"
"""Stands before each properties text when many are searched at once."""
_WANTED: Final = rb"\x01([^\x01\x02]+)\x02"
_OTHER: Final = rb"\x01[^\x01\x02]+\x02"
_are_pairs: Final = re.compile(rb"(?:[^\0\x01\x02]+\x01[^\x01\x02]+\x02)*").fullmatch
_find_in_all: Final = re.compile(
    rb"\x02(?:(%b)\x01([^\x02]+)|(\0)(?=\x02))" % b"|".join(DISPATCHED_NAMES)
).findall


class ItemColumns(NamedTuple):
    """The messages of a batch, column by column."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    texts: Sequence[bytes]
    """Their properties texts, each with a separator at its end so that others can follow."""


class DispatchColumns(NamedTuple):
    """What the views get of the messages of a batch."""

    tags_codes: Sequence[int]
    keys: list[bytes]
    """The keys of all messages, one message after the other."""
    key_counts: Sequence[int]
    """How many keys each message has."""


class CommonNames:
    """Names of properties that many messages have in the same order, and how to find the values."""

    __slots__ = ("_find", "_keys_at", "_tags_at", "_unique_at", "_value_count")

    def __init__(self, names: Sequence[bytes]) -> None:
        wanted = [name for name in names if name in DISPATCHED_NAMES]
        pairs = [re.escape(name) + (_WANTED if name in wanted else _OTHER) for name in names]
        self._find = re.compile(rb"\0\x02" + b"".join(pairs) + rb"(?=\0\x02|\Z)").findall
        self._value_count = len(wanted)
        self._unique_at, self._keys_at, self._tags_at = [
            wanted.index(name) if name in wanted else None for name in (UNIQ_KEY, KEYS, TAGS)
        ]

    def dispatch(self, joined: bytes, count: int) -> DispatchColumns | None:
        """Return the columns of ``count`` properties texts, None if not all have these names."""
        found = self._find(joined)
        if len(found) != count:
            return None
        columns = list(zip(*found, strict=True)) if self._value_count > 1 else [found]
        tags = [0] * count if self._tags_at is None else _tags_codes(columns[self._tags_at])
        unique = [] if self._unique_at is None else [columns[self._unique_at]]
        if self._keys_at is None:
            return _with_key_columns(tags, unique)
        keys = columns[self._keys_at]
        if b" " not in b"".join(keys):
            return _with_key_columns(tags, [*unique, keys])
        unique_keys = unique[0] if unique else [b""] * count
        return _with_key_lists(tags, list(map(split_keys, unique_keys, keys)))


def _with_key_columns(
    tags_codes: Sequence[int], columns: Sequence[Sequence[bytes]]
) -> DispatchColumns:
    """Return the columns of messages that have one key of each column of keys."""
    count, width = len(tags_codes), len(columns)
    keys = [b""] * (count * width)
    for number, column in enumerate(columns):
        keys[number::width] = column
    return DispatchColumns(tags_codes, keys, [width] * count)


def _with_key_lists(
    tags_codes: Sequence[int], key_lists: Sequence[Sequence[bytes]]
) -> DispatchColumns:
    """Return the columns of messages that have each its own list of keys."""
    keys = [key for own in key_lists for key in own]
    return DispatchColumns(tags_codes, keys, list(map(len, key_lists)))


def _tags_codes(tags: Sequence[bytes]) -> list[int]:
    if tags.count(tags[0]) == len(tags):
        return [encoded_tags_code(tags[0])] * len(tags)
    codes = {value: encoded_tags_code(value) for value in set(tags)}
    return [codes[value] for value in tags]


@functools.lru_cache(maxsize=ORDER_COUNT_MAX)
def _common_names(names: tuple[bytes, ...]) -> CommonNames | None:
    return CommonNames(names) if len(set(names)) == len(names) else None


def is_large_batch(body: bytes) -> bool:
    """Whether a batch has so many messages that Python takes several milliseconds for it.

    A store whose owner has others to serve encodes such a batch as a group by machine code only.
    Without that it is prepared step by step (`flintmq.store.appending.batch_preparation`).
    """
    total, at = len(body), 0
    if total <= LARGE_BATCH_SIZE:
        return False
    unpack, unpack_length, length_size = ITEM.unpack_from, LENGTH.unpack_from, LENGTH.size
    try:
        for _ in range(LARGE_BATCH_COUNT):
            _, body_size = unpack(body, at)
            at += BODY_AT + body_size
            (text_size,) = unpack_length(body, at)
            at += length_size + text_size
            if body_size < 0 or text_size < 0 or at >= total:
                return False  # That was the last one, or whoever takes it out finds the fault.
    except struct.error:
        return False
    return True


def split_items(body: bytes) -> ItemColumns:
    """Return the items of a batch body, see `flintmq.format.stored.batch`.

    Raises:
        NotPlainError: the body is no batch, or has too many messages.
    """
    try:
        items = _equal_items(body) or _any_items(body)
    except struct.error:
        raise NotPlainError from None
    if not 0 < len(items.flags) <= ITEM_COUNT_MAX:
        raise NotPlainError
    return items


@functools.lru_cache(maxsize=ORDER_COUNT_MAX)
def _item_struct(body_size: int, text_size: int) -> struct.Struct:
    length = LENGTH.format.removeprefix(">")
    return struct.Struct(f"{ITEM.format}{body_size}s{length}{text_size}s")


def _equal_items(body: bytes) -> ItemColumns | None:
    """Return the items of a batch if all of them have the sizes of the first."""
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
    return ItemColumns(flags, bodies, _ended(texts))


def _any_items(body: bytes) -> ItemColumns:
    """Return the items of a batch, whatever sizes they have."""
    flags, bodies, texts = [], [], []
    at, total = 0, len(body)
    unpack, unpack_length, length_size = ITEM.unpack_from, LENGTH.unpack_from, LENGTH.size
    while at < total:
        flag, body_size = unpack(body, at)
        at += BODY_AT
        length_at = at + body_size
        (text_size,) = unpack_length(body, length_at)
        text_at = length_at + length_size
        end = text_at + text_size
        if body_size < 0 or text_size < 0 or end > total:
            raise NotPlainError
        flags.append(flag)
        bodies.append(body[at:length_at])
        texts.append(body[text_at:end])
        at = end
    return ItemColumns(flags, bodies, _ended(texts))


def _ended(texts: Sequence[bytes]) -> Sequence[bytes]:
    """Return properties texts with a separator at the end of each that is not empty."""
    if b"".join([text[-1:] for text in texts]) == _PAIR_END * len(texts):
        return texts
    return [text + _PAIR_END if text and text[-1] != 2 else text for text in texts]


def dispatch_columns(texts: Sequence[bytes]) -> DispatchColumns:
    """Return tags codes and keys of many properties texts.

    This is `flintmq.format.stored.dispatch_fields` for each text, found in one go.
    """
    joined = _BOUNDARY + _BOUNDARY.join(texts)
    if joined.count(_BOUNDARY) != len(texts):
        raise NotPlainError  # A properties text holds a boundary.
    if joined.count(b" ") > SPACE_COUNT_MAX:
        raise NotPlainError  # To find all keys would take long; they may be found one by one.
    first = texts[0]
    if _are_pairs(first) and len(first) <= ORDER_TEXT_SIZE_MAX:
        names = first.replace(b"\x01", _PAIR_END).split(_PAIR_END)[:-1:2]
        common = _common_names(tuple(names))
        columns = common.dispatch(joined, len(texts)) if common is not None else None
        if columns is not None:
            return columns
    return _dispatch_one_by_one(joined)


def _dispatch_one_by_one(joined: bytes) -> DispatchColumns:
    """Return the columns of properties texts that are not alike, each behind a boundary."""
    tags_codes: list[int] = []
    key_lists: list[list[bytes]] = []
    tags = unique_key = keys = b""
    found = _find_in_all(joined)
    found.append((b"", b"", b"\0"))
    for name, value, mark in found:
        if mark:
            key_lists.append(split_keys(unique_key, keys))
            tags_codes.append(encoded_tags_code(tags) if tags else 0)
            tags = unique_key = keys = b""
        elif name == UNIQ_KEY:
            unique_key = value
        elif name == KEYS:
            keys = value
        else:
            tags = value
    return _with_key_lists(tags_codes, key_lists)
