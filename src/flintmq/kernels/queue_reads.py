"""Reading a queue: units that lead to the log, checked against the records that they lead to."""

from typing import Final

from flintmq.format.stored.consume_queue import (
    UNIT_PHYSICAL_OFFSET_AT,
    UNIT_RECORD_SIZE_AT,
    UNIT_SIZE,
)
from flintmq.format.stored.record_layout import PHYSICAL_OFFSET_AT, RECORD_SIZE_MIN, SIZE_AT
from flintmq.kernels.compiled import (
    Bytes,
    Longs,
    Target,
    bytes_at,
    copy_bytes,
    inlined,
    kernel,
    load_int,
    load_long,
)

NOT_CONTIGUOUS: Final = -1
"""Some record has to be looked at by itself."""


@inlined
def _find_record(units: Bytes, number: int, log: Bytes, log_start: int, lowest: int) -> int:
    """Return where in ``log`` the record is that a unit leads to.

    NOT_CONTIGUOUS if the record does not claim to be what its unit says, is not all in ``log``, or
    lies below ``lowest``.
    """
    at = number * UNIT_SIZE
    offset = load_long(units, at + UNIT_PHYSICAL_OFFSET_AT)
    size = load_int(units, at + UNIT_RECORD_SIZE_AT)
    position = NOT_CONTIGUOUS
    if offset >= lowest and offset >= log_start and size >= RECORD_SIZE_MIN:
        found = offset - log_start
        if (
            found <= len(log) - size
            and load_int(log, found + SIZE_AT) == size
            and load_long(log, found + PHYSICAL_OFFSET_AT) == offset
        ):
            position = found
    return position


@inlined
def _lies_below(units: Bytes, count: int, seen_count: int, lowest: int) -> bool:
    """Whether the unit behind the last of ``count``, if it is seen, leads below ``lowest``."""
    is_below = False
    if seen_count > count:
        is_below = load_long(units, count * UNIT_SIZE + UNIT_PHYSICAL_OFFSET_AT) < lowest
    return is_below


@kernel
def find_pieces(
    units: Bytes,
    count: int,
    seen_count: int,
    log: Bytes,
    log_start: int,
    lowest: int,
    size_max: int,
    pieces: Longs,
) -> int:
    """Find the ranges of a log file that ``count`` units lead to; return how many those are.

    ``pieces`` gets the bytes of all, then the start and the end of each range; records that lie
    side by side are one.  NOT_CONTIGUOUS if a record does not claim to be what its unit says, is
    not all in ``log``, lies below ``lowest``, or if all are larger than ``size_max``.  Of
    ``seen_count`` units the last may be one behind the others, which must not lie below either.
    """
    piece_count = 0
    total_size = 0
    end = -1
    for number in range(count):
        position = _find_record(units, number, log, log_start, lowest)
        if position == NOT_CONTIGUOUS:
            return NOT_CONTIGUOUS
        size = load_int(log, position + SIZE_AT)
        total_size += size
        if position != end:
            pieces[1 + 2 * piece_count] = position
            piece_count += 1
        end = position + size
        pieces[2 * piece_count] = end
    if total_size > size_max or _lies_below(units, count, seen_count, lowest):
        return NOT_CONTIGUOUS
    pieces[0] = total_size
    return piece_count


@kernel
def copy_records(
    units_address: int,
    count: int,
    seen_count: int,
    log_address: int,
    log_size: int,
    log_start: int,
    lowest: int,
    size_max: int,
    target: Target,
) -> int:
    """Copy the records that ``count`` units lead to, one behind the other; return their size.

    Units and the log file of the first of them are given by where they are in memory, and by how
    much of them may be looked at.  NOT_CONTIGUOUS where `find_pieces` gives it, and if ``target``
    has no room for all.  Queues that are filled side by side have their records apart from each
    other: to copy them costs less than a view of each.
    """
    units = bytes_at(units_address, seen_count * UNIT_SIZE)
    log = bytes_at(log_address, log_size)
    size_max = min(size_max, len(target))
    total_size = 0
    if _lies_below(units, count, seen_count, lowest):
        total_size = NOT_CONTIGUOUS
    number = 0
    while number < count and total_size != NOT_CONTIGUOUS:
        position = _find_record(units, number, log, log_start, lowest)
        size = load_int(log, position + SIZE_AT) if position != NOT_CONTIGUOUS else 0
        if position == NOT_CONTIGUOUS or size > size_max - total_size:
            total_size = NOT_CONTIGUOUS
        else:
            copy_bytes(target, total_size, log, position, size)
            total_size += size
        number += 1
    return total_size
