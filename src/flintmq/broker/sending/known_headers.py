"""Headers of requests, taken apart into what all of a kind share and what they differ in.

A request that was admitted shows how its client writes headers.  Its header is cut at the number of
the request and at the fields in which requests of its kind differ; what is left are the pieces that
`flintmq.kernels.request_walk` compares.  Headers that could be read in two ways, with a name twice
or with values inside values, are not taken apart: their requests go the ordinary way.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from flintmq.format.wire.frame import HeaderType
from flintmq.kernels.request_walk import (
    SLOT_BORN,
    SLOT_END,
    SLOT_EXT_SIZE,
    SLOT_OPAQUE,
    SLOT_QUEUE_ID,
    SLOT_TEXT,
)

HEADER_SIZE_MAX: Final = 4096
"""Bytes of a header that is taken apart."""

_TOKENS: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"|([{}:,\[\]])|[^\s{}:,\[\]"]+')
_EXT_FIELDS: Final = b"extFields"
_TOP_SLOTS: Final = {b"opaque": SLOT_OPAQUE}
_BINARY_START: Final = struct.Struct(">hbhiiii")  # up to the size of the ext fields
_BINARY_OPAQUE_AT: Final = 5
_BINARY_EXT_SIZE_AT: Final = 17
_KEY_SIZE: Final = struct.Struct(">H")
_VALUE_SIZE: Final = struct.Struct(">i")


class SlotNames(NamedTuple):
    """The ext fields in which requests of a kind differ."""

    slots: Mapping[bytes, int]
    required: frozenset[int]
    """The slots that every header of them has, besides the number of the request."""


SEND_SLOTS: Final = SlotNames(
    {b"e": SLOT_QUEUE_ID, b"g": SLOT_BORN, b"i": SLOT_TEXT}, frozenset({SLOT_QUEUE_ID, SLOT_BORN})
)
"""Those of a send; properties may be missing."""


class HeaderPiece(NamedTuple):
    """A piece of a header, and what follows it."""

    data: bytes
    slot: int


class _Slot(NamedTuple):
    start: int
    end: int
    slot: int


def header_pieces(
    header_type: HeaderType, header: bytes, names: SlotNames
) -> tuple[HeaderPiece, ...] | None:
    """Return the pieces of a header, None if it is not taken apart."""
    if len(header) > HEADER_SIZE_MAX:
        return None
    take_apart = _json_slots if header_type is HeaderType.JSON else _binary_slots
    slots = take_apart(header, names.slots)
    if slots is None:
        return None
    if not names.required | {SLOT_OPAQUE} <= {one.slot for one in slots}:
        return None
    ends = [_Slot(0, 0, SLOT_END), *sorted(slots), _Slot(len(header), len(header), SLOT_END)]
    return tuple(
        HeaderPiece(header[before.end : after.start], after.slot)
        for before, after in pairwise(ends)
    )


def _json_slots(header: bytes, ext_slots: Mapping[bytes, int]) -> list[_Slot] | None:
    """Return where the slots of a strict JSON header are; None if it is unusual."""
    tokens = list(_TOKENS.finditer(header))
    texts = [token.group() for token in tokens]
    if texts[:1] != [b"{"] or texts[-1:] != [b"}"]:
        return None
    slots: list[_Slot] = []
    names: tuple[set[bytes], set[bytes]] = set(), set()
    level, at = 0, 1
    while at < len(tokens) - 1:
        if texts[at] == b"}" and level == 1:
            level, at = 0, at + 1
        elif texts[at] == b",":
            at += 1
        elif at + 2 < len(tokens) and texts[at + 1] == b":":
            name = tokens[at].group(1)
            if name is None or b"\\" in name or name in names[level]:
                return None
            names[level].add(name)
            value = tokens[at + 2]
            at += 3
            if value.group() == b"{" and level == 0 and name == _EXT_FIELDS:
                level = 1
                continue
            if value.group(2) is not None:
                return None  # A value inside a value.
            slot = (ext_slots if level else _TOP_SLOTS).get(name)
            if slot is not None:
                # Texts are between quotes, which belong to the pieces; the number has none.
                is_text = value.group(1) is not None
                if is_text == (slot == SLOT_OPAQUE):
                    return None
                slots.append(_Slot(*value.span(1 if is_text else 0), slot))
        else:
            return None
    return slots


def _binary_slots(header: bytes, ext_slots: Mapping[bytes, int]) -> list[_Slot] | None:
    """Return where the slots of a binary header are; None if it is unusual."""
    try:
        _, _, _, _, flag, remark_size, ext_size = _BINARY_START.unpack_from(header)
        at = _BINARY_START.size
        if flag or remark_size or ext_size != len(header) - at:
            return None
        slots = [
            _Slot(_BINARY_OPAQUE_AT, _BINARY_OPAQUE_AT + _VALUE_SIZE.size, SLOT_OPAQUE),
            _Slot(_BINARY_EXT_SIZE_AT, at, SLOT_EXT_SIZE),
        ]
        names = set()
        while at < len(header):
            (name_size,) = _KEY_SIZE.unpack_from(header, at)
            name = header[at + _KEY_SIZE.size : at + _KEY_SIZE.size + name_size]
            size_at = at + _KEY_SIZE.size + name_size
            (size,) = _VALUE_SIZE.unpack_from(header, size_at)
            at = size_at + _VALUE_SIZE.size + size
            if size < 0 or at > len(header) or name in names or not name.isascii():
                return None
            names.add(name)
            if name in ext_slots:
                slots.append(_Slot(size_at, at, ext_slots[name]))
    except struct.error:
        return None
    return slots
