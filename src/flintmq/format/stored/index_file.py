"""Key-index files: a hash table on disk that leads from a key to commit-log offsets.

A file is a header, then slots, then entries; all numbers are big-endian and signed.  The header:

    at  size  field            meaning
     0     8  begin_timestamp  store time of the first message with a key here
     8     8  end_timestamp    store time of the last one
    16     8  begin_offset     physical offset of the first
    24     8  end_offset       physical offset of the last
    32     4  slot_count       how many inserts found their slot empty
    36     4  index_count      number of the next free entry; the first entry has number one

A slot is four bytes: the number of the newest entry whose hash falls into it, zero for none.
An entry:

    at  size  field            meaning
     0     4  key_hash         `key_text_hash`, never negative
     4     8  physical_offset  where the record starts
    12     4  elapsed_seconds  store time less begin_timestamp
    16     4  previous         number of the next older entry of the slot, zero for none

Entry zero has its place but is never used.  The header of a new file is zero until its first
insert.  Keys are not stored, only their hashes.
"""

import datetime
import struct
from typing import Final, NamedTuple, Self

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CorruptIndexError
from flintmq.format.java import index_hash, string_hash
from flintmq.format.stored.field_table import FieldTable

HEADER: Final = FieldTable(
    [
        ("begin_timestamp", "q"),
        ("end_timestamp", "q"),
        ("begin_offset", "q"),
        ("end_offset", "q"),
        ("slot_count", "i"),
        ("index_count", "i"),
    ]
).struct
SLOT: Final = struct.Struct(">i")
ENTRY_TABLE: Final = FieldTable(
    [
        ("key_hash", "i"),
        ("physical_offset", "q"),
        ("elapsed_seconds", "i"),
        ("previous", "i"),
    ]
)
ENTRY: Final = ENTRY_TABLE.struct
HEADER_SIZE: Final = HEADER.size
SLOT_SIZE: Final = SLOT.size
ENTRY_SIZE: Final = ENTRY.size
ENTRY_FIELD_COUNT: Final = len(ENTRY_TABLE.fields)
ENTRY_KEY_HASH_AT: Final = ENTRY_TABLE.at("key_hash")
ENTRY_PHYSICAL_OFFSET_AT: Final = ENTRY_TABLE.at("physical_offset")
ENTRY_ELAPSED_AT: Final = ENTRY_TABLE.at("elapsed_seconds")
ENTRY_PREVIOUS_AT: Final = ENTRY_TABLE.at("previous")


class IndexHeader(NamedTuple):
    """The header of an index file."""

    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    slot_count: int
    index_count: int

    @classmethod
    def unpack_from(cls, source: Buffer, position: int = 0) -> Self:
        """Return the header at ``position``; an index_count below one is read as one."""
        if len(source) < position + HEADER_SIZE:
            raise CorruptIndexError("the header is cut off", position)
        header = cls(*HEADER.unpack_from(source, position))
        return header if header.index_count > 0 else header._replace(index_count=1)

    def pack(self) -> bytes:
        """Return the HEADER_SIZE bytes of this header."""
        return HEADER.pack(*self)

    def pack_into(self, target: bytearray | memoryview, position: int = 0) -> None:
        """Write this header over the HEADER_SIZE bytes that start at ``position``.

        It is copied there as a whole: `struct` sets all bytes to zero before it writes the first
        field, and a process that is killed in between would leave that behind in a mapped file.
        """
        target[position : position + HEADER_SIZE] = HEADER.pack(*self)


class IndexEntry(NamedTuple):
    """One entry of an index file."""

    key_hash: int
    physical_offset: int
    elapsed_seconds: int
    previous: int

    @classmethod
    def unpack_from(cls, source: Buffer, position: int = 0) -> Self:
        """Return the entry at ``position``."""
        if len(source) < position + ENTRY_SIZE:
            raise CorruptIndexError("an entry is cut off", position)
        entry = cls(*ENTRY.unpack_from(source, position))
        if entry.key_hash < 0 or entry.physical_offset < 0 or entry.previous < 0:
            raise CorruptIndexError(f"an entry has a negative field: {entry}", position)
        return entry

    def pack(self) -> bytes:
        """Return the ENTRY_SIZE bytes of this entry."""
        return ENTRY.pack(*self)


def file_size(slots: int, entries: int) -> int:
    """Return the bytes of a file with so many slots and entries."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


def slot_position(number: int) -> int:
    """Return where slot ``number`` stands in a file."""
    return HEADER_SIZE + number * SLOT_SIZE


def entry_position(slots: int, number: int) -> int:
    """Return where entry ``number`` stands in a file with so many slots."""
    return HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE


def key_text_hash(topic: str, key: str) -> int:
    """Return the hash under which a message of ``topic`` with ``key`` is entered."""
    return index_hash(string_hash(f"{topic}#{key}") & 0xFFFFFFFF)


def format_file_name(moment: datetime.datetime) -> str:
    """Return the name of a file made at ``moment``, which tells the store's local time."""
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
