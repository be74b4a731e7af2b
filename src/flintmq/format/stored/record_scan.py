"""Checking records while a commit log is scanned.

The layout is in ``flintmq.format.stored.record_layout``.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from flintmq.format.buffer import Buffer
from flintmq.format.errors import CorruptRecordError, EndOfRecords
from flintmq.format.java import crc31
from flintmq.format.stored.record_layout import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE,
    HEADERS,
    IPV4_BODY_AT,
    LENGTHS_SIZE,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH_MAX,
    RECORD_SIZE_MIN,
    TOPIC_LENGTH_MAX,
    TOPIC_LENGTH_SIZE,
)
from flintmq.format.sys_flag import HOSTS_MASK

_TAIL_CACHE_COUNT: Final = 4096

_SCAN_HEADERS: Final = {
    form: table.pick(
        "size",
        "magic",
        "body_crc",
        "queue_id",
        "queue_offset",
        "physical_offset",
        "sys_flag",
        "store_timestamp",
        "prepared_transaction_offset",
        "body_length",
    )
    for form, table in HEADERS.items()
}
"""The header without what `check_record` has no use for, by the host bits of the sys flag."""

# Found faster here than as attributes of their modules and types.
_unpack_scan_header_v4: Final = _SCAN_HEADERS[0].unpack_from
_new_tuple: Final = tuple.__new__


class CheckedRecord(NamedTuple):
    """What dispatch and recovery need of a record that `check_record` found whole."""

    size: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_timestamp: int
    topic: bytes
    properties: bytes
    prepared_transaction_offset: int


class Blank(NamedTuple):
    """A blank record: nothing more follows in its file."""

    size: int


class _Tails(dict[int, Callable[[Buffer, int], tuple[Any, ...]]]):
    """Unpacks topic, properties length and properties at once, by the two lengths.

    The key is topic length << 16 | properties length.  Messages of one topic repeat few
    pairs of lengths, and one call costs less than taking the three parts separately.
    """

    def __missing__(self, lengths: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
        if len(self) >= _TAIL_CACHE_COUNT:
            self.clear()
        tail = struct.Struct(f">{lengths >> 16}sh{lengths & 0xFFFF}s").unpack_from
        self[lengths] = tail
        return tail


_TAILS: Final = _Tails()


def check_record(
    view: Buffer, position: int, limit: int, *, check_crc: bool, expected_offset: int | None
) -> CheckedRecord | Blank:
    """Return what stands at ``position`` of ``view`` if it is a whole record or a true blank.

    ``limit`` is where the file ends, at most the length of ``view``.  A blank must reach just
    to it.  ``expected_offset`` is the physical offset the record must claim, None for any.
    Raise EndOfRecords if nothing was written there, CorruptRecordError if what was written is
    damaged; the offset of the error counts from the start of ``view``.

    Recovery calls this for every record of a log, hence the long form: it does no call that it
    can avoid.
    """
    if limit - position < RECORD_SIZE_MIN:
        return _check_blank(view, position, limit)
    size, magic, crc, queue_id, queue_offset, offset, sys_flag, store_time, prepared, body_size = (
        _unpack_scan_header_v4(view, position)
    )
    if magic != MESSAGE_MAGIC:
        return _check_blank(view, position, limit)
    body_at = position + IPV4_BODY_AT
    if sys_flag & HOSTS_MASK:
        header = _SCAN_HEADERS[sys_flag & HOSTS_MASK]
        body_at = position + header.size
        if body_at > limit:
            raise CorruptRecordError("the header is cut off", position)
        *_, store_time, prepared, body_size = header.unpack_from(view, position)
    if body_size < 0:
        body_size = 0
    topic_at = body_at + body_size
    end = position + size
    if not topic_at + LENGTHS_SIZE <= end <= limit:
        raise CorruptRecordError(
            f"size {size} with a body of {body_size} bytes, {limit - position} bytes left", position
        )
    topic_length = view[topic_at]
    properties_length = end - topic_at - topic_length - LENGTHS_SIZE
    if topic_length > TOPIC_LENGTH_MAX or not 0 <= properties_length <= PROPERTIES_LENGTH_MAX:
        raise CorruptRecordError(f"size {size} with a topic of {topic_length} bytes", position)
    topic, declared_length, properties = _TAILS[topic_length << 16 | properties_length](
        view, topic_at + TOPIC_LENGTH_SIZE
    )
    if declared_length != properties_length and (declared_length > 0 or properties_length):
        raise CorruptRecordError(
            f"size {size} leaves {properties_length} bytes for properties of {declared_length}",
            position,
        )
    if offset != expected_offset and expected_offset is not None:
        raise CorruptRecordError(
            f"claims the offset {offset} and stands at {expected_offset}", position
        )
    # Like Java, do not look at the checksum of an empty body.
    if check_crc and body_size and crc31(view[body_at:topic_at]) != crc:
        raise CorruptRecordError("the body does not match its checksum", position)
    fields = size, queue_id, queue_offset, offset, sys_flag, store_time, topic, properties, prepared
    return _new_tuple(CheckedRecord, fields)


def _check_blank(view: Buffer, position: int, limit: int) -> Blank:
    """Return the blank at ``position``, where no message record can be."""
    left = limit - position
    if position < 0 or left < BLANK_SIZE:
        raise CorruptRecordError(f"{left} bytes left, no record has so few", position)
    size, magic = BLANK.unpack_from(view, position)
    if magic == BLANK_MAGIC:
        if size != left:
            raise CorruptRecordError(f"a blank of {size} bytes with {left} left", position)
        return Blank(size)
    if magic == size == 0:
        raise EndOfRecords("nothing was written here", position)
    if magic == MESSAGE_MAGIC:
        raise CorruptRecordError(f"size {size} with {left} bytes left", position)
    raise CorruptRecordError(f"no magic code: {magic & 0xFFFFFFFF:#010x}", position)
