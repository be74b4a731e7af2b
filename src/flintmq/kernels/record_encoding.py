"""Commit-log records, written in machine code by ``flintmq.format.stored.record_layout``.

``flintmq.format.stored.record_encoding`` writes the same bytes in Python, and a property test
compares the two.
"""

from typing import NamedTuple

import numpy as np

from flintmq.format.host import IPV4_HOST_SIZE
from flintmq.format.stored.record_layout import (
    BODY_CRC_AT,
    BODY_LENGTH_TO_BODY,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    IPV6_GROWTH,
    MAGIC_AT,
    MESSAGE_MAGIC,
    PHYSICAL_OFFSET_AT,
    PREPARED_OFFSET_TO_BODY,
    PROPERTIES_LENGTH_SIZE,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_TO_BODY,
    SIZE_AT,
    STORE_HOST_END_TO_BODY,
    SYS_FLAG_AT,
    TIMESTAMP_SIZE,
    TOPIC_LENGTH_SIZE,
)
from flintmq.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintmq.kernels.compiled import (
    Bools,
    Bytes,
    Longs,
    Target,
    copy_bytes,
    inlined,
    kernel,
    put_int,
    put_long,
    put_short,
)


class RecordHead(NamedTuple):
    """The numbers of a record's header."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int


class HeadColumns(NamedTuple):
    """The numbers of the headers of many records, see `RecordHead`."""

    size: Longs
    body_crc: Longs
    queue_id: Longs
    flag: Longs
    queue_offset: Longs
    physical_offset: Longs
    sys_flag: Longs
    born_timestamp: Longs
    store_timestamp: Longs
    reconsume_times: Longs
    prepared_transaction_offset: Longs
    body_length: Longs


class PieceColumn(NamedTuple):
    """Pieces of bytes one behind the other; piece n is from ``at[n]`` to ``at[n + 1]``."""

    data: Bytes
    at: Longs


class RecordRows(NamedTuple):
    """What the records of many rows are made of."""

    heads: HeadColumns
    hosts: Bytes
    """Born host and store host of each row, with room for IPv6 each: 40 bytes a row."""
    bodies: PieceColumn
    topics: PieceColumn
    properties: PieceColumn
    is_raw: Bools
    """Whether a record is given as its bytes."""
    raw: PieceColumn


@inlined
def host_size(sys_flag: int, family_bit: int) -> int:
    """Return how many bytes a host takes; ``family_bit`` is the bit of the sys flag for it."""
    return IPV4_HOST_SIZE + IPV6_GROWTH * (sys_flag & family_bit != 0)


@inlined
def put_header(
    records: Target, at: int, head: RecordHead, hosts: Bytes, born_at: int, store_at: int
) -> int:
    """Write the header of a record; return where its body begins.

    The packed hosts stand at ``born_at`` and ``store_at`` of ``hosts``; the sys flag says how
    long they are.
    """
    born_size = host_size(head.sys_flag, BORN_HOST_V6)
    store_size = host_size(head.sys_flag, STORE_HOST_V6)
    put_int(records, at + SIZE_AT, head.size)
    put_int(records, at + MAGIC_AT, MESSAGE_MAGIC)
    put_int(records, at + BODY_CRC_AT, head.body_crc)
    put_int(records, at + QUEUE_ID_AT, head.queue_id)
    put_int(records, at + FLAG_AT, head.flag)
    put_long(records, at + QUEUE_OFFSET_AT, head.queue_offset)
    put_long(records, at + PHYSICAL_OFFSET_AT, head.physical_offset)
    put_int(records, at + SYS_FLAG_AT, head.sys_flag)
    put_long(records, at + BORN_TIMESTAMP_AT, head.born_timestamp)
    copy_bytes(records, at + BORN_HOST_AT, hosts, born_at, born_size)
    at += BORN_HOST_AT + born_size
    put_long(records, at, head.store_timestamp)
    copy_bytes(records, at + TIMESTAMP_SIZE, hosts, store_at, store_size)
    body_at = at + TIMESTAMP_SIZE + store_size + STORE_HOST_END_TO_BODY
    put_int(records, body_at - RECONSUME_TIMES_TO_BODY, head.reconsume_times)
    put_long(records, body_at - PREPARED_OFFSET_TO_BODY, head.prepared_transaction_offset)
    put_int(records, body_at - BODY_LENGTH_TO_BODY, head.body_length)
    return body_at


@inlined
def put_topic(records: Target, at: int, topics: Bytes, topic_at: int, size: int) -> int:
    """Write a topic with its length before it; return where it ends."""
    records[at] = np.uint8(size)
    copy_bytes(records, at + TOPIC_LENGTH_SIZE, topics, topic_at, size)
    return at + TOPIC_LENGTH_SIZE + size


@kernel
def encode_rows(rows: RecordRows, at: Longs, records: Target) -> None:
    """Write the records of all rows; record n goes to ``at[n]`` of ``records``."""
    heads = rows.heads
    for row in range(len(at) - 1):
        start = at[row]
        if rows.is_raw[row]:
            raw_at = rows.raw.at[row]
            copy_bytes(records, start, rows.raw.data, raw_at, rows.raw.at[row + 1] - raw_at)
            continue
        head = RecordHead(
            heads.size[row],
            heads.body_crc[row],
            heads.queue_id[row],
            heads.flag[row],
            heads.queue_offset[row],
            heads.physical_offset[row],
            heads.sys_flag[row],
            heads.born_timestamp[row],
            heads.store_timestamp[row],
            heads.reconsume_times[row],
            heads.prepared_transaction_offset[row],
            heads.body_length[row],
        )
        hosts_at = row * 2 * (IPV4_HOST_SIZE + IPV6_GROWTH)
        to = put_header(
            records, start, head, rows.hosts, hosts_at, hosts_at + IPV4_HOST_SIZE + IPV6_GROWTH
        )
        body_at = rows.bodies.at[row]
        body_size = rows.bodies.at[row + 1] - body_at
        copy_bytes(records, to, rows.bodies.data, body_at, body_size)
        topic_at = rows.topics.at[row]
        to = put_topic(
            records, to + body_size, rows.topics.data, topic_at, rows.topics.at[row + 1] - topic_at
        )
        text_at = rows.properties.at[row]
        text_size = rows.properties.at[row + 1] - text_at
        put_short(records, to, text_size)
        copy_bytes(records, to + PROPERTIES_LENGTH_SIZE, rows.properties.data, text_at, text_size)
