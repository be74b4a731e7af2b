"""Stretches: the messages of one read, taken from the log all at once.

Most reads hold no surprise: nothing is filtered, and the records are in memory, in one file and
where the queue says.  Then no record has to be handled by itself, and records that lie side by
side are served as one piece.  Whether a read is such a one is found out with the same checks that
a read record by record makes; if it is not, that one decides.
"""

from __future__ import annotations

import functools
import struct
from itertools import accumulate, repeat
from operator import add, ne, sub
from typing import TYPE_CHECKING, Final

from flintmq.format.consume_queue import UNIT_SIZE
from flintmq.format.record import RECORD_SIZE_MIN

if TYPE_CHECKING:
    from flintmq.store.commit_log import CommitLog
    from flintmq.store.config import StoreConfig
    from flintmq.store.results import GetResult

STRETCH_COUNT_MAX: Final = 1024
"""Messages that are taken at once; the layout of so many units takes some 100 KB."""

_LAYOUT_COUNT_MAX: Final = 64
"""Layouts that are remembered: of units by their number, of records by number and size."""

_PLACE: Final = struct.Struct(">i24xq")
read_place: Final = _PLACE.unpack_from
"""The size of a record, and the physical offset it says it has."""


@functools.lru_cache(maxsize=_LAYOUT_COUNT_MAX)
def _places_layout(count: int) -> struct.Struct:
    """Return where offset and size stand in so many units; nobody here needs their codes."""
    layout = struct.Struct(">" + "qi8x" * count)
    assert layout.size == count * UNIT_SIZE
    return layout


@functools.lru_cache(maxsize=_LAYOUT_COUNT_MAX)
def _claims_layout(size: int, count: int) -> struct.Struct:
    """Return where so many records of one size, side by side, say their size and offset."""
    rest = size - _PLACE.size
    return struct.Struct(">" + f"{_PLACE.format[1:]}{rest}x" * count)


def take_stretch(
    result: GetResult,
    units: memoryview,
    count_max: int,
    *,
    config: StoreConfig,
    log: CommitLog,
    hot_size: int,
) -> bool:
    """Take the messages that ``units`` lead to into ``result``, from its next offset on.

    False means that something about them is not plain, and that nothing was taken.
    """
    count = min(count_max, config.transfer_count_in_memory_max)
    if not 0 < count <= STRETCH_COUNT_MAX:
        return False
    # The unit behind the last message is where a read record by record stops.
    seen_count = min(count + 1, len(units) // UNIT_SIZE)
    places = _places_layout(seen_count).unpack_from(units)
    offsets, sizes = places[: 2 * count : 2], places[1 : 2 * count : 2]
    side_by_side = tuple(accumulate(sizes, initial=offsets[0]))
    total_size = side_by_side[-1] - offsets[0]
    if total_size > config.transfer_bytes_in_memory_max or min(sizes) < RECORD_SIZE_MIN:
        return False
    is_one_part = side_by_side[:-1] == offsets
    first = offsets[0] if is_one_part else min(offsets)
    end = side_by_side[-1] if is_one_part else max(map(add, offsets, sizes))
    newest = places[2 * min(count, seen_count - 1)]
    file, readable_end = log.files.find(first), log.readable_end
    cold_below = max(0, readable_end - hot_size)
    if file is None or min(first, newest) < cold_below or not file.hold():
        return False
    start, view = file.first_offset, file.view
    are_alike = is_one_part and sizes.count(sizes[0]) == len(sizes)
    if end > min(start + file.readable, readable_end) or not (
        _say_so_alike(view, start, offsets, sizes)
        if are_alike
        else _say_so(view, start, offsets, sizes)
    ):
        file.release()
        return False
    if is_one_part:
        parts = [view[first - start : end - start]]
    else:
        parts = [
            view[at - start : at - start + size] for at, size in zip(offsets, sizes, strict=True)
        ]
    result.take(file, parts, len(offsets), total_size)
    result.suggest_slave = readable_end - newest > hot_size
    return True


def _say_so(view: memoryview, start: int, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether all records say that they are where they were found, and of which size."""
    claims = map(read_place, repeat(view), map(sub, offsets, repeat(start)))
    return not any(map(ne, claims, zip(sizes, offsets, strict=True)))


def _say_so_alike(
    view: memoryview, start: int, offsets: tuple[int, ...], sizes: tuple[int, ...]
) -> bool:
    """Tell the same of records of one size, side by side; that takes half of the time."""
    claims = _claims_layout(sizes[0], len(sizes)).unpack_from(view, offsets[0] - start)
    return claims[::2] == sizes and claims[1::2] == offsets
