"""Consume-queue units written by kernels, and the queues of records numbered for that."""

from typing import Final

import numpy as np

from flintmq.format.stored.consume_queue import (
    UNIT_PHYSICAL_OFFSET_AT,
    UNIT_RECORD_SIZE_AT,
    UNIT_SIZE,
    UNIT_TAGS_CODE_AT,
)
from flintmq.kernels.compiled import (
    Bytes,
    Ints,
    Longs,
    Target,
    inlined,
    kernel,
    load_byte,
    load_int,
    put_int,
    put_long,
)
from flintmq.kernels.texts import are_equal

_MASK: Final = 0xFFFFFFFF
_STEP: Final = 4
_FNV_START: Final = 0xCBF29CE4
_FNV_FACTOR: Final = 0x01000193


@inlined
def put_unit(units: Target, number: int, physical_offset: int, size: int, code: int) -> None:
    """Write a unit of a consume queue, by its number."""
    at = number * UNIT_SIZE
    put_long(units, at + UNIT_PHYSICAL_OFFSET_AT, physical_offset)
    put_int(units, at + UNIT_RECORD_SIZE_AT, size)
    put_long(units, at + UNIT_TAGS_CODE_AT, code)


@inlined
def _bucket_of(data: Bytes, at: int, size: int, queue_id: int) -> int:
    """Return where the search for a queue begins, before it is cut to the size of the table."""
    found = _FNV_START ^ (queue_id & _MASK)
    end = at + size
    while end - at >= _STEP:
        found = ((found ^ (load_int(data, at) & _MASK)) * _FNV_FACTOR) & _MASK
        found ^= found >> 15
        at += _STEP
    while at < end:
        found = ((found ^ load_byte(data, at)) * _FNV_FACTOR) & _MASK
        at += 1
    return found ^ found >> 15


@kernel
def fill_buckets(
    data: Bytes, known_at: Longs, known_size: Ints, known_id: Ints, count: int, buckets: Ints
) -> None:
    """Fill an empty hash table, a power of two of buckets, with the queues that are known."""
    mask = len(buckets) - 1
    for number in range(count):
        bucket = _bucket_of(data, known_at[number], known_size[number], known_id[number]) & mask
        while buckets[bucket] >= 0:
            bucket = bucket + 1 & mask
        buckets[bucket] = number


@kernel
def number_queues(
    data: Bytes,
    topic_at: Longs,
    topic_size: Ints,
    queue_id: Ints,
    record_size: Ints,
    start: int,
    known_at: Longs,
    known_size: Ints,
    known_id: Ints,
    count: int,
    buckets: Ints,
    numbers: Ints,
    record_counts: Longs,
    record_bytes: Longs,
) -> tuple[int, int]:
    """Give each record from ``start`` on the number of its queue, a new one where it is new.

    Return how many records and queues are done; fewer records than there are when the tables
    are full.  A queue is known by where its topic stands in ``data``.  Its records and their
    bytes are counted.
    """
    mask = len(buckets) - 1
    for row in range(start, len(topic_at)):
        at, size, wanted = topic_at[row], topic_size[row], queue_id[row]
        bucket = _bucket_of(data, at, size, wanted) & mask
        while True:
            number = buckets[bucket]
            if number < 0:
                if count == len(known_at):
                    return row, count
                number = count
                known_at[number], known_size[number], known_id[number] = at, size, wanted
                buckets[bucket] = number
                count += 1
                break
            if (
                known_id[number] == wanted
                and known_size[number] == size
                and are_equal(data, known_at[number], data, at, size)
            ):
                break
            bucket = bucket + 1 & mask
        numbers[row] = number
        record_counts[number] += 1
        record_bytes[number] += record_size[row]
    return len(topic_at), count


@kernel
def gather_slices(
    queues: Ints,
    queue_offset: Longs,
    physical_offset: Longs,
    size: Ints,
    code: Longs,
    next_units: Longs,
    units: Target,
    slice_at: Longs,
    slice_first: Longs,
) -> int:
    """Write the units of each queue side by side; return how many queue slices they form.

    ``next_units`` has for each queue the number of its first unit in ``units`` and is used up.  A
    queue slice is a series of units with consecutive queue offsets: ``slice_at`` tells the number
    of its first unit, ``slice_first`` the queue offset of that.
    """
    following = np.full(len(next_units), -1, np.int64)
    begun = np.zeros(len(next_units), np.uint8)
    slice_count = 0
    for row in range(len(queues)):
        queue = queues[row]
        number = next_units[queue]
        next_units[queue] = number + 1
        put_unit(units, number, physical_offset[row], size[row], code[row])
        offset = queue_offset[row]
        if begun[queue] == 0 or offset != following[queue]:
            begun[queue] = 1
            slice_at[slice_count] = number
            slice_first[slice_count] = offset
            slice_count += 1
        following[queue] = offset + 1
    return slice_count
