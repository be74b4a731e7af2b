"""Records one behind the other, as the answer to a pull brings them.

The layout of a record is in ``flintmq.format.record``.  Here is a short way through records with
IPv4 hosts, which nearly all are; whatever looks otherwise is judged by the long one.
"""

import struct
from typing import Final

from flintmq.format.errors import CorruptRecordError
from flintmq.format.record import (
    IPV4_HEADER,
    MESSAGE_MAGIC,
    RECORD_SIZE_MIN,
    Record,
    decode_record,
)
from flintmq.format.sys_flag import HOSTS_MASK

_SIZE: Final = struct.Struct(">i")
_LENGTHS_SIZE: Final = 3
"""Bytes of the lengths of topic and properties."""

_SYS_FLAG: Final = 7
"""The position of the sys flag among the fields."""

# Found faster here than as attributes of their types.
_unpack_header: Final = IPV4_HEADER.unpack_from
_HEADER_SIZE: Final = IPV4_HEADER.size
_new_tuple: Final = tuple.__new__


def decode_records(source: bytes) -> list[Record]:
    """Return the records that fill ``source``; checksums are not looked at.

    Raises:
        CorruptRecordError: it holds something else, or ends within a record.
    """
    found: list[Record] = []
    at, end = 0, len(source)
    last_topic, topic = b"", ""
    while at < end:
        if end - at < RECORD_SIZE_MIN:
            raise CorruptRecordError("the run ends within a record", at)
        fields = _unpack_header(source, at)
        body_at = at + _HEADER_SIZE
        topic_at = body_at + fields[-1]
        next_at = at + fields[0]
        if (
            fields[1] != MESSAGE_MAGIC
            or fields[_SYS_FLAG] & HOSTS_MASK
            or not body_at <= topic_at <= next_at - _LENGTHS_SIZE
            or next_at > end
        ):
            at = _take_carefully(source, at, found)
            continue
        properties_at = topic_at + _LENGTHS_SIZE + source[topic_at]
        stored_topic = source[topic_at + 1 : properties_at - 2]
        declared = source[properties_at - 2 : properties_at]
        if (
            properties_at > next_at
            or int.from_bytes(declared) != next_at - properties_at
            or not stored_topic.isascii()
        ):
            at = _take_carefully(source, at, found)
            continue
        if stored_topic != last_topic:
            last_topic, topic = stored_topic, stored_topic.decode()
        body, properties = source[body_at:topic_at], source[properties_at:next_at]
        # A Record has its fields in the order of the layout, without the magic code.
        record = (fields[0], *fields[2:-1], body, topic, properties)
        found.append(_new_tuple(Record, record))
        at = next_at
    return found


def _take_carefully(source: bytes, at: int, found: list[Record]) -> int:
    """Decode the record at ``at`` and return where the next one starts."""
    (size,) = _SIZE.unpack_from(source, at)
    left = len(source) - at
    if not 0 < size <= left:
        raise CorruptRecordError(f"a record of {size} bytes, {left} are left", at)
    found.append(decode_record(source[at : at + size]))
    return at + int(size)
