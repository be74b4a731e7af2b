"""Batches as producers send them, encoded as records, queue units and key hashes.

The kernel knows plain ASCII keys and tags, and batches that fit into the room it is given.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from flintmq.format.batch import ITEM_SIZE_MIN
from flintmq.format.consume_queue import UNIT_SIZE
from flintmq.format.record import IPV4_HEADER, MESSAGE_MAGIC, PROPERTIES_LENGTH_MAX
from flintmq.kernels.compiled import (
    Bytes,
    Ints,
    Longs,
    copy_bytes,
    kernel,
    load_byte,
    load_int,
    load_long,
    load_short,
)
from flintmq.kernels.crc import kept_crc
from flintmq.kernels.derive import hash_text, put_hash, put_int, put_long
from flintmq.kernels.properties import find_byte

NOT_PLAIN: Final = -1
"""The answer of the kernel to a batch that it leaves to others."""

_FLAG_AT: Final = 12
_BODY_SIZE_AT: Final = 16
_BODY_AT: Final = 20
_LENGTH_SIZE: Final = 2
_HEAD_SIZE: Final = IPV4_HEADER.size
_SHARED_HEAD_AT: Final = 36
"""Where the part of a record's header begins that the records of a batch share."""
_BODY_LENGTH_AT: Final = _HEAD_SIZE - 4
SHARED_HEAD_SIZE: Final = _BODY_LENGTH_AT - _SHARED_HEAD_AT

_NAME_END: Final = 1
_PAIR_END: Final = 2
_SPACE: Final = 32
_SIGN: Final = 1 << 31
_TAGS: Final = int.from_bytes(b"TAGS", "big")
_KEYS: Final = int.from_bytes(b"KEYS", "big")
_UNIQ_KEY: Final = int.from_bytes(b"UNIQ_KEY", "big")

Target = npt.NDArray[np.uint8]


class Room(NamedTuple):
    """Where the kernel writes to; several batches follow each other in it."""

    records: Target
    units: Target
    """Units of consume queues."""
    offsets: Target
    """Physical offsets of records, big-endian."""
    hashes: Ints
    """Of keys, as the index has them."""
    key_offsets: Longs
    """Physical offsets of the records of these."""
    queue_ids: Longs
    """Of records that are not all in one queue."""
    queue_offsets: Longs
    """The same of those."""

    @classmethod
    def of(cls, *, record_bytes: int, records: int, keys: int) -> "Room":
        """Return room for so much; memory that is never written to is never taken."""
        return cls(
            np.empty(record_bytes, np.uint8),
            np.empty(records * UNIT_SIZE, np.uint8),
            np.empty(records * 8, np.uint8),
            np.empty(keys, np.int32),
            np.empty(keys, np.int64),
            np.empty(records, np.int64),
            np.empty(records, np.int64),
        )

    def units_of(self, first: int, end: int) -> bytes:
        """Return the units of records, by their numbers."""
        return self.units[first * UNIT_SIZE : end * UNIT_SIZE].tobytes()

    def offsets_of(self, first: int, end: int) -> bytes:
        """Return the physical offsets of records, by their numbers."""
        return self.offsets[first * 8 : end * 8].tobytes()


@kernel
def encode_batch(
    body: Bytes,
    shared: Bytes,
    topic_size: int,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    prefix: int,
    record_size_max: int,
    room: Room,
    record_at: int,
    count: int,
    key_count: int,
) -> tuple[int, int, int]:
    """Encode the messages of a batch; return where records end, how many, and how many keys.

    ``shared`` is what all records have: a part of the header, the topic with its length before
    it, the last properties.  ``count`` and ``key_count`` are those in the room already, which
    are counted on.  ``prefix`` is the hash of what stands before each key.  The first number is
    NOT_PLAIN where something is odd; what is in the room behind the old ends is then no matter.
    """
    records, units, offsets, hashes, key_offsets, _, _ = room
    last_at = SHARED_HEAD_SIZE + topic_size
    last_size = len(shared) - last_at
    at = 0
    total = len(body)
    while at < total:
        if total - at < ITEM_SIZE_MIN:
            return NOT_PLAIN, 0, 0
        flag = load_int(body, at + _FLAG_AT)
        body_size = load_int(body, at + _BODY_SIZE_AT)
        body_at = at + _BODY_AT
        if body_size < 0 or body_size > total - body_at - _LENGTH_SIZE:
            return NOT_PLAIN, 0, 0
        text_size = load_short(body, body_at + body_size)
        text_at = body_at + body_size + _LENGTH_SIZE
        if text_size < 0 or text_size > total - text_at:
            return NOT_PLAIN, 0, 0
        text_end = text_at + text_size
        lacks_end = text_size > 0 and load_byte(body, text_end - 1) != _PAIR_END
        stored_size = text_size + lacks_end + last_size
        size = _HEAD_SIZE + body_size + topic_size + _LENGTH_SIZE + stored_size
        if (
            size > record_size_max
            or stored_size > PROPERTIES_LENGTH_MAX
            or record_at + size > len(records)
            or (count + 1) * 8 > len(offsets)
        ):
            return NOT_PLAIN, 0, 0
        code, key_end = dispatch_text(
            body, text_at, text_end, prefix, physical_offset, hashes, key_offsets, key_count
        )
        if key_end < 0:
            return NOT_PLAIN, 0, 0
        put_int(records, record_at, size)
        put_int(records, record_at + 4, MESSAGE_MAGIC)
        put_int(records, record_at + 8, kept_crc(body, body_at, body_size))
        put_int(records, record_at + 12, queue_id)
        put_int(records, record_at + 16, flag)
        put_long(records, record_at + 20, queue_offset)
        put_long(records, record_at + 28, physical_offset)
        copy_bytes(records, record_at + _SHARED_HEAD_AT, shared, 0, SHARED_HEAD_SIZE)
        put_int(records, record_at + _BODY_LENGTH_AT, body_size)
        to = record_at + _HEAD_SIZE
        copy_bytes(records, to, body, body_at, body_size)
        to += body_size
        copy_bytes(records, to, shared, SHARED_HEAD_SIZE, topic_size)
        to += topic_size
        records[to] = np.uint8(stored_size >> 8)
        records[to + 1] = np.uint8(stored_size & 0xFF)
        to += _LENGTH_SIZE
        copy_bytes(records, to, body, text_at, text_size)
        to += text_size
        if lacks_end:
            records[to] = np.uint8(_PAIR_END)
            to += 1
        copy_bytes(records, to, shared, last_at, last_size)
        unit_at = count * UNIT_SIZE
        put_long(units, unit_at, physical_offset)
        put_int(units, unit_at + 8, size)
        put_long(units, unit_at + 12, code)
        put_long(offsets, count * 8, physical_offset)
        record_at += size
        physical_offset += size
        queue_offset += 1
        count += 1
        key_count = key_end
        at = text_end
    return record_at, count, key_count


@kernel
def dispatch_text(
    data: Bytes,
    at: int,
    end: int,
    prefix: int,
    physical_offset: int,
    hashes: Ints,
    key_offsets: Longs,
    key_count: int,
) -> tuple[int, int]:
    """Put down the keys of a property text; return its tags code and how many keys are there.

    The second number is NOT_PLAIN where a text is not ASCII or there is no room.
    """
    tags_at = tags_end = keys_at = keys_end = unique_at = unique_end = at
    while at < end:
        stop = find_byte(data, at, end, _PAIR_END)
        # Of two pairs with one name the later counts, and a pair without a value does not.
        if stop - at > 5 and load_byte(data, at + 4) == _NAME_END:
            name = load_int(data, at)
            if name == _TAGS:
                tags_at, tags_end = at + 5, stop
            elif name == _KEYS:
                keys_at, keys_end = at + 5, stop
        elif (
            stop - at > 9
            and load_byte(data, at + 8) == _NAME_END
            and load_long(data, at) == _UNIQ_KEY
        ):
            unique_at, unique_end = at + 9, stop
        at = stop + 1
    if key_count + (keys_end - keys_at) // 2 + 2 > len(hashes):
        return 0, NOT_PLAIN
    code = hash_text(data, tags_at, tags_end, 0)
    is_odd = code < 0
    if unique_end > unique_at:
        found = hash_text(data, unique_at, unique_end, prefix)
        is_odd |= found < 0
        put_hash(hashes, key_count, found)
        key_offsets[key_count] = physical_offset
        key_count += 1
    at = keys_at
    while at < keys_end:
        stop = find_byte(data, at, keys_end, _SPACE)
        if stop > at:
            found = hash_text(data, at, stop, prefix)
            is_odd |= found < 0
            put_hash(hashes, key_count, found)
            key_offsets[key_count] = physical_offset
            key_count += 1
        at = stop + 1
    signed = code if code < _SIGN else code - (_SIGN << 1)
    return signed, (NOT_PLAIN if is_odd else key_count)
