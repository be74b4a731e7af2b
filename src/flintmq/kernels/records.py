"""Records of a log file as columns of numbers.

The kernel walks from record to record and notes where each part of a record is.  It goes on as
long as `check_record` would find a whole message with a true checksum.  At anything else (a blank,
damage, the end of the log) it stops without a word: whoever called it asks `check_record`, so that
one place judges and says what is wrong.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final, NamedTuple, Self

import numpy as np

from flintmq.format.host import IPV4_HOST_SIZE
from flintmq.format.stored.record_layout import (
    BODY_CRC_AT,
    BODY_LENGTH_TO_BODY,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    IPV4_BODY_AT,
    IPV6_GROWTH,
    LENGTHS_SIZE,
    MAGIC_AT,
    MESSAGE_MAGIC,
    PHYSICAL_OFFSET_AT,
    PREPARED_OFFSET_TO_BODY,
    PROPERTIES_LENGTH_MAX,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_TO_BODY,
    RECORD_SIZE_MIN,
    SIZE_AT,
    STORE_HOST_END_TO_BODY,
    SYS_FLAG_AT,
    TIMESTAMP_SIZE,
    TOPIC_LENGTH_MAX,
    TOPIC_LENGTH_SIZE,
)
from flintmq.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintmq.kernels.compiled import (
    Bools,
    Bytes,
    Ints,
    Longs,
    inlined,
    kernel,
    load_byte,
    load_int,
    load_long,
    load_short,
)
from flintmq.kernels.crc import crc31
from flintmq.kernels.record_encoding import host_size
from flintmq.kernels.texts import find_byte

ANY_OFFSET: Final = -(1 << 62)
"""The base of records that a broker has sent one behind the other."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordTable:
    """Records in log order; row n of each array tells of record n.

    What ends in ``_at`` is an index into the bytes that were walked, ``position`` is too.  The
    hosts are at `born_host_at` and `store_host_at`; the sys flag tells how long they are.
    Lengths are never negative, and all parts are inside of the bytes that were walked.
    """

    position: Longs
    queue_offset: Longs
    physical_offset: Longs
    store_timestamp: Longs
    prepared_transaction_offset: Longs
    born_timestamp: Longs
    body_at: Longs
    topic_at: Longs
    properties_at: Longs
    size: Ints
    queue_id: Ints
    sys_flag: Ints
    body_crc: Ints
    flag: Ints
    reconsume_times: Ints
    body_size: Ints
    topic_size: Ints
    properties_size: Ints

    def __len__(self) -> int:
        return len(self.position)

    @property
    def born_host_at(self) -> Longs:
        """Where the packed born hosts start."""
        return self.position + BORN_HOST_AT

    @property
    def store_host_at(self) -> Longs:
        """Where the packed store hosts start."""
        is_v6 = self.sys_flag & STORE_HOST_V6 != 0
        size = IPV4_HOST_SIZE + IPV6_GROWTH * is_v6
        found: Longs = self.body_at - STORE_HOST_END_TO_BODY - size
        return found

    def take(self, rows: Bools | slice) -> Self:
        """Return a table of some of the rows."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))


_LONG_COUNT: Final = 9
_INT_COUNT: Final = 9
assert len(fields(RecordTable)) == _LONG_COUNT + _INT_COUNT


class Stop(IntEnum):
    """Why a walk ended."""

    AT_STOP = 0
    """The position to stop at is reached, or passed by the last record."""

    FULL = 1
    """So many rows or bytes were asked for."""

    SPECIAL = 2
    """There is no plain record at this position: `check_record` tells what is there."""


class Walk(NamedTuple):
    """The records that a walk has met, where it ended, and why."""

    table: RecordTable
    position: int
    stop: Stop


def walk_records(
    data: Bytes,
    position: int,
    stop: int,
    limit: int,
    base: int,
    *,
    rows_max: int,
    bytes_max: int,
    check_crc: bool = True,
) -> Walk:
    """Walk the records of ``data`` (see `as_bytes`) that start from ``position`` to ``stop``.

    ``limit`` is where the file ends, ``base`` the physical offset of its start, or ANY_OFFSET if
    the bytes are no part of a file.  The walk ends behind the record that makes it ``bytes_max``
    bytes or more, or ``rows_max`` rows.
    """
    _refuse_outside(data, position, stop, limit)
    longs = np.empty((_LONG_COUNT, rows_max), np.int64)
    ints = np.empty((_INT_COUNT, rows_max), np.int32)
    bytes_end = min(position + bytes_max, stop)
    count, end = _walk(data, position, bytes_end, limit, base, check_crc, longs, ints)
    reason = Stop.AT_STOP
    if end < stop:
        reason = Stop.FULL if count == rows_max or end >= bytes_end else Stop.SPECIAL
    return Walk(RecordTable(*longs[:, :count], *ints[:, :count]), end, reason)


def skip_records(data: Bytes, position: int, stop: int, limit: int, base: int) -> int:
    """Return the first position from ``stop`` on, or before it, where the chain of records is.

    Before ``stop`` something special stands there.  Checksums are not looked at.
    """
    _refuse_outside(data, position, stop, limit)
    return _skip(data, position, stop, limit, base)


class Counted(NamedTuple):
    """How many records a walk has met, where it ended, and where the last of them starts."""

    record_count: int
    position: int
    last_at: int


def count_records(
    data: Bytes,
    position: int,
    stop: int,
    limit: int,
    base: int,
    *,
    check_crc: bool,
    no_zeros: bool,
) -> Counted:
    """Count the records from ``position`` to ``stop``, up to the first that is special.

    With ``no_zeros`` a record is special too if its topic or its properties have a zero byte: a
    power failure may have torn it.
    """
    _refuse_outside(data, position, stop, limit)
    return Counted(*_count(data, position, stop, limit, base, check_crc, no_zeros))


def _refuse_outside(data: Bytes, position: int, stop: int, limit: int) -> None:
    # The kernels rely on it: they look at no bounds of arrays.
    assert position >= 0, position
    assert stop <= limit <= len(data), (stop, limit, len(data))


@inlined
def _end_of(data: Bytes, at: int, limit: int, offset: int, check_crc: bool) -> tuple[int, int, int]:
    """Return where the record at ``at`` ends, its body and its topic start; zeros if it is special.

    The checks are those of `check_record`, in another order.
    """
    special = (0, 0, 0)
    if limit - at < RECORD_SIZE_MIN or load_int(data, at + MAGIC_AT) != MESSAGE_MAGIC:
        return special
    sys_flag = load_int(data, at + SYS_FLAG_AT)
    body_at = at + IPV4_BODY_AT
    if sys_flag & BORN_HOST_V6:
        body_at += IPV6_GROWTH
    if sys_flag & STORE_HOST_V6:
        body_at += IPV6_GROWTH
    if body_at > limit or (offset >= 0 and load_long(data, at + PHYSICAL_OFFSET_AT) != offset):
        return special
    body_size = max(load_int(data, body_at - BODY_LENGTH_TO_BODY), 0)
    topic_at = body_at + body_size
    end = at + load_int(data, at + SIZE_AT)
    if not topic_at + LENGTHS_SIZE <= end <= limit:
        return special
    topic_size = load_byte(data, topic_at)
    properties_size = end - topic_at - topic_size - LENGTHS_SIZE
    if topic_size > TOPIC_LENGTH_MAX or not 0 <= properties_size <= PROPERTIES_LENGTH_MAX:
        return special
    declared = load_short(data, topic_at + TOPIC_LENGTH_SIZE + topic_size)
    if max(declared, 0) != properties_size:
        return special
    if check_crc and body_size:
        stored_crc = load_int(data, at + BODY_CRC_AT)
        if crc31(data, body_at, body_size) != stored_crc:
            return special
    return end, body_at, topic_at


@kernel
def _walk(
    data: Bytes,
    position: int,
    stop: int,
    limit: int,
    base: int,
    check_crc: bool,
    longs: Longs,
    ints: Ints,
) -> tuple[int, int]:
    count = 0
    rows_max = longs.shape[1]
    while position < stop and count < rows_max:
        end, body_at, topic_at = _end_of(data, position, limit, base + position, check_crc)
        if end == 0:
            break
        topic_size = load_byte(data, topic_at)
        properties_at = topic_at + topic_size + LENGTHS_SIZE
        longs[0, count] = position
        longs[1, count] = load_long(data, position + QUEUE_OFFSET_AT)
        longs[2, count] = load_long(data, position + PHYSICAL_OFFSET_AT)
        sys_flag = load_int(data, position + SYS_FLAG_AT)
        store_host_at = body_at - STORE_HOST_END_TO_BODY - host_size(sys_flag, STORE_HOST_V6)
        longs[3, count] = load_long(data, store_host_at - TIMESTAMP_SIZE)
        longs[4, count] = load_long(data, body_at - PREPARED_OFFSET_TO_BODY)
        longs[5, count] = load_long(data, position + BORN_TIMESTAMP_AT)
        longs[6, count] = body_at
        longs[7, count] = topic_at + TOPIC_LENGTH_SIZE
        longs[8, count] = properties_at
        ints[0, count] = end - position
        ints[1, count] = load_int(data, position + QUEUE_ID_AT)
        ints[2, count] = sys_flag
        ints[3, count] = load_int(data, position + BODY_CRC_AT)
        ints[4, count] = load_int(data, position + FLAG_AT)
        ints[5, count] = load_int(data, body_at - RECONSUME_TIMES_TO_BODY)
        ints[6, count] = topic_at - body_at
        ints[7, count] = topic_size
        ints[8, count] = end - properties_at
        count += 1
        position = end
    return count, position


@kernel
def _skip(data: Bytes, position: int, stop: int, limit: int, base: int) -> int:
    while position < stop:
        end, _, _ = _end_of(data, position, limit, base + position, False)
        if end == 0:
            break
        position = end
    return position


@kernel
def _count(
    data: Bytes, position: int, stop: int, limit: int, base: int, check_crc: bool, no_zeros: bool
) -> tuple[int, int, int]:
    count = 0
    last_at = -1
    while position < stop:
        end, _, topic_at = _end_of(data, position, limit, base + position, check_crc)
        if end == 0:
            break
        if no_zeros:
            topic_end = topic_at + TOPIC_LENGTH_SIZE + load_byte(data, topic_at)
            properties_at = topic_end + LENGTHS_SIZE - TOPIC_LENGTH_SIZE
            if (
                find_byte(data, topic_at + TOPIC_LENGTH_SIZE, topic_end, 0) < topic_end
                or find_byte(data, properties_at, end, 0) < end
            ):
                break
        count += 1
        last_at = position
        position = end
    return count, position, last_at
