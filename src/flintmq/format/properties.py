"""The property string of a message: ``name 0x01 value`` pairs joined by 0x02, in UTF-8.

Some writers leave a separator at the end.  A reader counts a segment between separators only
if its first 0x01 has text on both sides; the value may hold further 0x01.  Of two segments with
one name the later counts.
"""

from collections.abc import Mapping
from typing import Final

from flintmq.format.buffer import Buffer
from flintmq.format.errors import PropertiesError

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
_NAME_END_BYTE: Final = b"\x01"
_PAIR_END_BYTE: Final = b"\x02"


def encode_properties(properties: Mapping[str, str | None]) -> bytes:
    """Return the property string of ``properties``, in their order; None values are left out.

    An empty value is written although readers ignore it, as Java does.  Names and values that a
    reader would split elsewhere are refused.
    """
    pairs = []
    for name, value in properties.items():
        if value is None:
            continue
        if not name or NAME_END in name or PAIR_END in name:
            raise PropertiesError(f"a property cannot have the name {name!r}")
        if PAIR_END in value:
            raise PropertiesError(f"the value of property {name!r} holds a separator")
        pairs.append(f"{name}{NAME_END}{value}")
    try:
        return PAIR_END.join(pairs).encode()
    except UnicodeEncodeError as error:
        raise PropertiesError(f"properties have no UTF-8 form: {error.reason}") from error


def decode_properties(data: Buffer, *, strict: bool = False) -> dict[str, str]:
    """Return the properties in the property string ``data``.

    Bytes that are not UTF-8 become replacement characters, as in Java; with ``strict`` they
    raise PropertiesError instead.
    """
    try:
        text = str(data, "utf-8", "strict" if strict else "replace")
    except UnicodeDecodeError as error:
        raise PropertiesError("not UTF-8", error.start) from error
    properties = {}
    for segment in text.split(PAIR_END):
        name, _, value = segment.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def find_property(data: bytes, name: bytes) -> bytes | None:
    """Return the value of property ``name`` in the property string ``data``, or None.

    It gives what `decode_properties` would, without taking the other properties apart.  The
    name must not be empty, nor hold a separator.
    """
    # With a separator before the first pair too, one search serves all; from the end, it finds
    # the later of two pairs.
    _, found, rest = (_PAIR_END_BYTE + data).rpartition(_PAIR_END_BYTE + name + _NAME_END_BYTE)
    if not found:
        return None
    return rest.partition(_PAIR_END_BYTE)[0] or _last_value(data, name + _NAME_END_BYTE)


def _last_value(data: bytes, start: bytes) -> bytes | None:
    """Return what follows ``start`` in the last segment where anything does."""
    for segment in reversed(data.split(_PAIR_END_BYTE)):
        if segment.startswith(start) and len(segment) > len(start):
            return segment[len(start) :]
    return None
