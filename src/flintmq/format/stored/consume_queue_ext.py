"""Consume-queue extension units: what a 20-byte unit has no room for.

A unit of the consume queue then holds, in place of its tags code, the address of one of these:

    at  size  field          meaning
     0     2  unit size      20 + bitmap length
     2     8  tags_code      the real one
    10     8  store_time     of the message, milliseconds
    18     2  bitmap length  n, zero for no bitmap
    20     n  bitmap         which filters take the message

A file keeps its last four bytes free.  Where the next unit would reach into them, a unit size
of -1 ends the file.  An address is the byte offset in the extension less 2^63, so it is below
every tags code.
"""

import struct
from typing import Final, NamedTuple

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CorruptUnitError, RecordTooLargeError

HEADER_SIZE: Final = 20
FILE_END_BLANK: Final = 4
UNIT_SIZE_MAX: Final = 32767
BITMAP_SIZE_MAX: Final = UNIT_SIZE_MAX - HEADER_SIZE
ADDRESS_MAX: Final = -(1 << 31) - 1
"""The highest address; every sign-extended 32-bit hash is above it."""

_ADDRESS_BASE: Final = -(1 << 63)
BYTE_OFFSET_MAX: Final = ADDRESS_MAX - _ADDRESS_BASE

_SIZE: Final = struct.Struct(">h")
_HEADER: Final = struct.Struct(
    ">"
    "h"  # unit size
    "q"  # tags_code
    "q"  # store_time
    "h"  # bitmap length
)
assert _HEADER.size == HEADER_SIZE

END_MARK: Final = _SIZE.pack(-1)


class ExtUnit(NamedTuple):
    """One unit of a consume-queue extension."""

    tags_code: int
    store_time: int
    bitmap: bytes | None

    @property
    def size(self) -> int:
        """The bytes this unit takes in a file."""
        return HEADER_SIZE + len(self.bitmap or b"")


def encode_ext_unit(unit: ExtUnit) -> bytes:
    """Return the bytes of ``unit``; an empty bitmap is written as none."""
    bitmap = unit.bitmap or b""
    if len(bitmap) > BITMAP_SIZE_MAX:
        raise RecordTooLargeError("bitmap size", len(bitmap), BITMAP_SIZE_MAX)
    return _HEADER.pack(unit.size, unit.tags_code, unit.store_time, len(bitmap)) + bitmap


def decode_ext_unit(source: Buffer, position: int = 0) -> ExtUnit | None:
    """Return the unit at ``position``, or None where none was written or the file's end is marked.

    What is cut off, or has a bitmap that does not fit its size, raises CorruptUnitError.
    """
    left = len(source) - position
    if position < 0 or left < _SIZE.size:
        raise CorruptUnitError("the unit is cut off", position)
    (size,) = _SIZE.unpack_from(source, position)
    if size < 1:
        return None
    if not HEADER_SIZE <= size <= left:
        raise CorruptUnitError(f"a unit of {size} bytes with {left} left", position)
    _, tags_code, store_time, bitmap_size = _HEADER.unpack_from(source, position)
    if max(bitmap_size, 0) != size - HEADER_SIZE:
        raise CorruptUnitError(f"a unit of {size} bytes, its bitmap of {bitmap_size}", position)
    bitmap = bytes(source[position + HEADER_SIZE : position + size])
    return ExtUnit(tags_code, store_time, bitmap or None)


def has_room(position: int, unit_size: int, file_size: int) -> bool:
    """Return whether a unit fits behind ``position`` of a file, which keeps its end free."""
    return unit_size <= file_size - position - FILE_END_BLANK


def address(byte_offset: int) -> int:
    """Return the address of the unit at ``byte_offset`` of the extension."""
    if not 0 <= byte_offset <= BYTE_OFFSET_MAX:
        raise RecordTooLargeError("byte offset", byte_offset, BYTE_OFFSET_MAX)
    return byte_offset + _ADDRESS_BASE


def is_address(tags_code: int) -> bool:
    """Return whether the tags code in a consume-queue unit is an address."""
    return tags_code <= ADDRESS_MAX


def byte_offset(address: int) -> int:
    """Return where in the extension the unit with this address stands."""
    if not _ADDRESS_BASE <= address <= ADDRESS_MAX:
        raise CorruptUnitError(f"not an address: {address}")
    return address - _ADDRESS_BASE
