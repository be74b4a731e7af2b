"""Consume-queue units: fixed-size entries that lead from a queue offset to the commit log.

A consume-queue file is an array of big-endian units; it has no header and no checksum:

    at  size  field            meaning
     0     8  physical_offset  where the record starts in the commit log
     8     4  record_size      bytes of the record, its own length field included
    12     8  tags_code        Java hash of the tag, or a delivery time for delayed messages,
                               or the address of a unit in the queue's extension

A unit whose record_size is zero has never been written; readers stop there.  A queue whose
first unit does not belong at the start of its file is preceded by pre-blank units.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CorruptUnitError
from flintmq.format.stored.field_table import FieldTable

UNIT_TABLE: Final = FieldTable(
    [
        ("physical_offset", "q"),
        ("record_size", "i"),
        ("tags_code", "q"),
    ]
)
UNIT: Final = UNIT_TABLE.struct
UNIT_SIZE: Final = UNIT_TABLE.size
UNIT_PHYSICAL_OFFSET_AT: Final = UNIT_TABLE.at("physical_offset")
UNIT_RECORD_SIZE_AT: Final = UNIT_TABLE.at("record_size")
UNIT_TAGS_CODE_AT: Final = UNIT_TABLE.at("tags_code")

PRE_BLANK_SIZE: Final = 0x7FFFFFFF
PRE_BLANK: Final = UNIT.pack(0, PRE_BLANK_SIZE, 0)

UNIT_FIELD_COUNT: Final = len(UNIT_TABLE.fields)
_STRUCT_COUNT_MAX: Final = 1024
"""Numbers of units whose layout is remembered."""


class ConsumeQueueUnit(NamedTuple):
    """One entry of a consume queue."""

    physical_offset: int
    record_size: int
    tags_code: int

    @property
    def is_pre_blank(self) -> bool:
        """Whether this unit only fills the place before a queue's first one."""
        return self.record_size == PRE_BLANK_SIZE and self.physical_offset == 0

    def pack(self) -> bytes:
        """Return the UNIT_SIZE bytes of this unit."""
        return UNIT.pack(*self)

    def pack_into(self, target: bytearray | memoryview, position: int) -> None:
        """Write this unit over the UNIT_SIZE bytes of ``target`` that start at ``position``."""
        UNIT.pack_into(target, position, *self)


def read_units(source: Buffer) -> Iterator[ConsumeQueueUnit]:
    """Yield the written units of ``source``, a whole number of units from one file."""
    if len(source) % UNIT_SIZE:
        raise CorruptUnitError("the last unit is cut off", len(source) // UNIT_SIZE * UNIT_SIZE)
    for number, fields in enumerate(UNIT.iter_unpack(source)):
        unit = ConsumeQueueUnit._make(fields)
        if unit.record_size == 0:
            return
        if unit.record_size < 0 or unit.physical_offset < 0:
            reason = f"record of {unit.record_size} bytes at {unit.physical_offset}"
            raise CorruptUnitError(reason, number * UNIT_SIZE)
        yield unit


_units_struct: Final = functools.lru_cache(maxsize=_STRUCT_COUNT_MAX)(UNIT_TABLE.repeated)


def pack_units(fields: Sequence[int]) -> bytes:
    """Return units behind each other, given physical offset, size and code of one by one."""
    return _units_struct(len(fields) // UNIT_FIELD_COUNT).pack(*fields)
