"""Reading a queue: units that lead to the log, checked against the records that they lead to."""

from typing import Final

from flintmq.format.stored.consume_queue import (
    UNIT_PHYSICAL_OFFSET_AT,
    UNIT_RECORD_SIZE_AT,
    UNIT_SIZE,
)
from flintmq.format.stored.record_layout import PHYSICAL_OFFSET_AT, RECORD_SIZE_MIN, SIZE_AT
from flintmq.kernels.compiled import Bytes, Longs, kernel, load_int, load_long

NOT_CONTIGUOUS: Final = -1
"""Some record has to be looked at by itself."""


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
        at = number * UNIT_SIZE
        offset = load_long(units, at + UNIT_PHYSICAL_OFFSET_AT)
        size = load_int(units, at + UNIT_RECORD_SIZE_AT)
        if offset < lowest or offset < log_start or size < RECORD_SIZE_MIN:
            return NOT_CONTIGUOUS
        position = offset - log_start
        if position > len(log) - size:
            return NOT_CONTIGUOUS
        claimed_size = load_int(log, position + SIZE_AT)
        if claimed_size != size or load_long(log, position + PHYSICAL_OFFSET_AT) != offset:
            return NOT_CONTIGUOUS
        total_size += size
        if position != end:
            pieces[1 + 2 * piece_count] = position
            piece_count += 1
        end = position + size
        pieces[2 * piece_count] = end
    if seen_count > count:
        behind = load_long(units, count * UNIT_SIZE + UNIT_PHYSICAL_OFFSET_AT)
        if behind < lowest:
            return NOT_CONTIGUOUS
    if total_size > size_max:
        return NOT_CONTIGUOUS
    pieces[0] = total_size
    return piece_count
