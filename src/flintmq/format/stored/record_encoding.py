"""Commit-log records, written in Python by ``flintmq.format.stored.record_layout``.

``flintmq.kernels.record_encoding`` writes the same bytes in machine code, and a property test
compares the two.  Everything that stores a message calls one of them.

`encode_record` writes one record.  `batch_records` writes those of a batch, column by column; they
share their *origin*, from the sys flag to the prepared transaction offset.  `encode_unplaced`
writes all of a record that does not depend on where and when it will be stored, and `place_records`
the rest.
"""

from __future__ import annotations

import struct
from collections import deque
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Final

from flintmq.format.errors import HostError, RecordTooLargeError
from flintmq.format.java import crc31
from flintmq.format.stored.record_layout import (
    BATCH_HEAD,
    BATCH_PLACES,
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE,
    BODY_LENGTH,
    FIXED_SIZES,
    HEADERS,
    HEADERS_WITH_ORIGIN,
    MESSAGE_MAGIC,
    ORIGINS,
    PROPERTIES_LENGTH,
    PROPERTIES_LENGTH_MAX,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH,
    TOPIC_LENGTH_MAX,
)
from flintmq.format.sys_flag import HOSTS_MASK, host_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flintmq.format.stored.field_table import FieldTable

_NUMBER_MAX: Final = {"i": (1 << 31) - 1, "q": (1 << 63) - 1}
_INT_MAX: Final = _NUMBER_MAX["i"]

# Found faster here than in their tables.
_HEADERS: Final = {
    form: (table.struct.pack, table.size + PROPERTIES_LENGTH_SIZE, *host_sizes(form))
    for form, table in HEADERS.items()
}
_pack_length: Final = PROPERTIES_LENGTH.pack
_pack_batch_head: Final = BATCH_HEAD.struct.pack
_pack_body_length: Final = BODY_LENGTH.struct.pack


def record_size(sys_flag: int, body_size: int, topic_length: int, properties_length: int) -> int:
    """Return the size of a record from the lengths of its body, topic and properties."""
    return FIXED_SIZES[sys_flag & HOSTS_MASK] + body_size + topic_length + properties_length


def encode_blank(size: int) -> bytes:
    """Return the 8 bytes that begin a blank record of ``size`` bytes."""
    if not BLANK_SIZE <= size <= _INT_MAX:
        raise RecordTooLargeError("size of a blank record", size, _INT_MAX)
    return BLANK.pack(size, BLANK_MAGIC)


def encode_topic(topic: bytes) -> bytes:
    """Return a topic as it stands in a record, with its length before it."""
    if len(topic) > TOPIC_LENGTH_MAX:
        raise RecordTooLargeError("topic length", len(topic), TOPIC_LENGTH_MAX)
    return TOPIC_LENGTH.pack(len(topic)) + topic


def pack_origin(
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> bytes:
    """Return the part of a header that says where a message comes from and is stored."""
    table = ORIGINS[sys_flag & HOSTS_MASK]
    if (len(born_host), len(store_host)) != host_sizes(sys_flag):
        raise _wrong_hosts(sys_flag, born_host, store_host)
    fields = (
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
    )
    try:
        return table.struct.pack(*fields)
    except struct.error:
        _refuse_wide_numbers(table, fields)
        raise


def encode_with_topic(
    topic_part: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    properties: bytes,
    body_crc: int | None = None,
) -> bytes:
    """Return the record of a message whose topic is encoded already (`encode_topic`).

    ``body_crc`` is computed unless it is given.
    """
    properties_length, body_size = len(properties), len(body)
    if properties_length > PROPERTIES_LENGTH_MAX:
        raise RecordTooLargeError("properties length", properties_length, PROPERTIES_LENGTH_MAX)
    pack_header, fixed_size, born_host_size, store_host_size = _HEADERS[sys_flag & HOSTS_MASK]
    if len(born_host) != born_host_size or len(store_host) != store_host_size:
        raise _wrong_hosts(sys_flag, born_host, store_host)
    fields = (
        fixed_size + len(topic_part) + body_size + properties_length,
        MESSAGE_MAGIC,
        crc31(body) if body_crc is None else body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_size,
    )
    try:
        header = pack_header(*fields)
    except struct.error:
        _refuse_wide_numbers(HEADERS[0], fields)
        raise
    return b"".join((header, body, topic_part, _pack_length(properties_length), properties))


def encode_record(
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    properties: bytes,
    body_crc: int | None = None,
) -> bytes:
    """Return the record of a message; ``body_crc`` is computed unless it is given."""
    return encode_with_topic(
        encode_topic(topic),
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body,
        properties,
        body_crc,
    )


def batch_records(
    sizes: Iterable[int],
    queue_id: int,
    flags: Iterable[int],
    queue_offsets: Iterable[int],
    physical_offsets: Iterable[int],
    origin: bytes,
    bodies: Sequence[bytes],
    topic_part: bytes,
    properties: Sequence[bytes],
    last_properties: bytes = b"",
) -> Iterator[bytes]:
    """Return the records of a batch as pieces to be joined, given column by column.

    ``origin`` is what `pack_origin` gives.  ``last_properties`` stand in each record behind its
    own properties.  The bytes are those of `encode_record`, but nothing is checked, and no call in
    Python is made for a single record.
    """
    headers = map(
        HEADERS_WITH_ORIGIN[len(origin)].struct.pack,
        sizes,
        repeat(MESSAGE_MAGIC),
        [crc31(body) for body in bodies],
        repeat(queue_id),
        flags,
        queue_offsets,
        physical_offsets,
        repeat(origin),
        map(len, bodies),
    )
    last_size = len(last_properties)
    topics = [topic_part + _pack_length(len(text) + last_size) for text in properties]
    return chain.from_iterable(
        zip(headers, bodies, topics, properties, repeat(last_properties), strict=False)
    )


def unplaced_gap(sys_flag: int) -> bytes:
    """Return what stands in a record of `encode_unplaced` instead of its offsets and its origin."""
    return bytes(BATCH_PLACES[ORIGINS[sys_flag & HOSTS_MASK].size].size)


def encode_unplaced(
    fixed_size: int,
    queue_id: int,
    flag: int,
    gap: bytes,
    body: bytes,
    topic_part: bytes,
    properties: bytes,
) -> bytes:
    """Return a record without its place and its origin; nothing is checked.

    ``fixed_size`` is its size without body and properties, ``gap`` what `unplaced_gap` gives.
    """
    body_size, properties_length = len(body), len(properties)
    size = fixed_size + body_size + properties_length
    return b"".join(
        (
            _pack_batch_head(size, MESSAGE_MAGIC, crc31(body), queue_id, flag),
            gap,
            _pack_body_length(body_size),
            body,
            topic_part,
            _pack_length(properties_length),
            properties,
        )
    )


def place_records(
    records: bytearray,
    sizes: Sequence[int],
    queue_offsets: Iterable[int],
    physical_offsets: Iterable[int],
    origin: bytes,
) -> None:
    """Write offsets and origin into records that `encode_unplaced` gave, one behind the other.

    It does as little as can be done for each: whoever appends them has others to serve.  Done
    again, it replaces what was written before.
    """
    pack_into = BATCH_PLACES[len(origin)].struct.pack_into
    places = accumulate(sizes[:-1], initial=BATCH_HEAD.size)
    # A deque that keeps nothing runs through the calls without a loop in Python.
    deque(
        map(pack_into, repeat(records), places, queue_offsets, physical_offsets, repeat(origin)),
        maxlen=0,
    )


def _wrong_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> HostError:
    return HostError(
        f"hosts of {len(born_host)} and {len(store_host)} bytes with sys flag {sys_flag:#x}"
    )


def _refuse_wide_numbers(table: FieldTable, values: Sequence[int | bytes]) -> None:
    """Raise for the first number that its field cannot hold."""
    for (name, code), value in zip(table.fields, values, strict=True):
        limit = _NUMBER_MAX.get(code)
        if limit is not None and isinstance(value, int) and not ~limit <= value <= limit:
            raise RecordTooLargeError(name, value, limit)
