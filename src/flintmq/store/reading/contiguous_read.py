"""Contiguous reads: the messages of one pull, read from the log all at once.

Most reads are simple: nothing is filtered, and the records are in memory, in one file and where
the queue says.  Then no record has to be handled by itself, and records that lie side by side are
served as one piece.  The checks are the same as those of a read record by record; where one of
them fails, `StoreReader` reads record by record.

This is the engine in Python; `CompiledRead` goes by the same rules in machine code.
"""

from __future__ import annotations

import functools
import struct
from bisect import bisect_right
from itertools import accumulate, repeat
from operator import add, ne, sub
from typing import TYPE_CHECKING, Final

from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE, UNIT_TABLE
from flintmq.format.stored.record_layout import IPV4, RECORD_SIZE_MIN

if TYPE_CHECKING:
    from flintmq.store.config import StoreConfig
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.results import GetResult

CONTIGUOUS_COUNT_MAX: Final = 1024
"""Messages that are read at once; the layout of so many units takes some 100 KB."""

_LAYOUT_COUNT_MAX: Final = 64
"""Layouts that are remembered: of units by their number, of records by number and size."""

_CLAIM: Final = IPV4.pick("size", "physical_offset")
read_claim: Final = _CLAIM.unpack_from
"""Gives what a record claims: its size and its physical offset."""


@functools.lru_cache(maxsize=_LAYOUT_COUNT_MAX)
def _units_layout(count: int) -> struct.Struct:
    """Return the layout of offset and size in ``count`` units; tags codes are left out."""
    unit = UNIT_TABLE.pick("physical_offset", "record_size")
    rest = UNIT_SIZE - unit.size
    return struct.Struct(">" + f"{unit.format.removeprefix('>')}{rest}x" * count)


@functools.lru_cache(maxsize=_LAYOUT_COUNT_MAX)
def _claims_layout(size: int, count: int) -> struct.Struct:
    """Return the layout of the claims of ``count`` records of one size, side by side."""
    rest = size - _CLAIM.size
    return struct.Struct(">" + f"{_CLAIM.format.removeprefix('>')}{rest}x" * count)


def fitting_count(units: memoryview, count: int, size_max: int, at: int = 0) -> int:
    """Return how many of ``count`` records a read brings: as many as fit, and one at least.

    Their units begin at an index of ``units``.
    """
    first, _, _ = UNIT.unpack_from(units, at)
    last, last_size, _ = UNIT.unpack_from(units, at + (count - 1) * UNIT_SIZE)
    if last + last_size - first <= size_max:
        return count
    sizes = _units_layout(count).unpack_from(units, at)[1::2]
    return max(bisect_right(list(accumulate(sizes)), size_max), 1)


def read_contiguous(
    result: GetResult,
    units: memoryview,
    count_max: int,
    *,
    config: StoreConfig,
    log: CommitLog,
    hot_size: int,
) -> bool:
    """Put the messages that ``units`` lead to into ``result``, from its next offset on.

    False means that they have to be read record by record, and that ``result`` is unchanged.
    """
    count = min(count_max, config.transfer_count_in_memory_max)
    if not 0 < count <= CONTIGUOUS_COUNT_MAX:
        return False
    unit_count = len(units) // UNIT_SIZE
    count = fitting_count(units, min(count, unit_count), config.transfer_bytes_in_memory_max)
    # The unit behind the last message is where a read record by record stops.
    seen_count = min(count + 1, unit_count)
    claimed = _units_layout(seen_count).unpack_from(units)
    offsets, sizes = claimed[: 2 * count : 2], claimed[1 : 2 * count : 2]
    side_by_side = tuple(accumulate(sizes, initial=offsets[0]))
    total_size = side_by_side[-1] - offsets[0]
    if total_size > config.transfer_bytes_in_memory_max or min(sizes) < RECORD_SIZE_MIN:
        return False
    is_one_piece = side_by_side[:-1] == offsets
    first = offsets[0] if is_one_piece else min(offsets)
    end = side_by_side[-1] if is_one_piece else max(map(add, offsets, sizes))
    newest = claimed[2 * min(count, seen_count - 1)]
    file, readable_end = log.files.find(first), log.readable_end
    cold_below = max(0, readable_end - hot_size)
    if file is None or min(first, newest) < cold_below or not file.hold():
        return False
    start, view = file.first_offset, file.view
    are_equal_sized = is_one_piece and sizes.count(sizes[0]) == len(sizes)
    if end > min(start + file.readable, readable_end) or not (
        _equal_sized_claims_hold(view, start, offsets, sizes)
        if are_equal_sized
        else _claims_hold(view, start, offsets, sizes)
    ):
        file.release()
        return False
    if is_one_piece:
        pieces = [view[first - start : end - start]]
    else:
        pieces = [
            view[at - start : at - start + size] for at, size in zip(offsets, sizes, strict=True)
        ]
    result.set_pieces(file, pieces, len(offsets), total_size)
    result.suggest_slave = readable_end - newest > hot_size
    return True


def _claims_hold(
    view: memoryview, start: int, offsets: tuple[int, ...], sizes: tuple[int, ...]
) -> bool:
    """Return whether all records claim the offsets and sizes that their units have."""
    claims = map(read_claim, repeat(view), map(sub, offsets, repeat(start)))
    return not any(map(ne, claims, zip(sizes, offsets, strict=True)))


def _equal_sized_claims_hold(
    view: memoryview, start: int, offsets: tuple[int, ...], sizes: tuple[int, ...]
) -> bool:
    """Return the same as `_claims_hold` for records of one size, side by side, in half the time."""
    claims = _claims_layout(sizes[0], len(sizes)).unpack_from(view, offsets[0] - start)
    return claims[::2] == sizes and claims[1::2] == offsets
