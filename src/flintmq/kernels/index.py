"""The entries of one index file: chained into their slots, written or compared."""

from typing import Final

from flintmq.format.stored.index_file import (
    ENTRY_ELAPSED_AT,
    ENTRY_KEY_HASH_AT,
    ENTRY_PHYSICAL_OFFSET_AT,
    ENTRY_PREVIOUS_AT,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
)
from flintmq.kernels.compiled import (
    Bytes,
    Ints,
    Longs,
    Target,
    inlined,
    kernel,
    load_int,
    load_long,
    put_int,
    put_long,
)

_INT_MAX: Final = (1 << 31) - 1


@kernel
def elapsed_seconds(time: int, begin_time: int) -> int:
    """Return the seconds of an entry in a file that begins at ``begin_time``."""
    if 0 < begin_time < time:
        return min((time - begin_time) // 1000, _INT_MAX)
    return 0


@inlined
def _put_entry(
    target: Target, at: int, key_hash: int, physical_offset: int, seconds: int, previous: int
) -> None:
    """Write an entry."""
    put_int(target, at + ENTRY_KEY_HASH_AT, key_hash)
    put_long(target, at + ENTRY_PHYSICAL_OFFSET_AT, physical_offset)
    put_int(target, at + ENTRY_ELAPSED_AT, seconds)
    put_int(target, at + ENTRY_PREVIOUS_AT, previous)


@kernel
def write_entries(
    hashes: Ints,
    offsets: Longs,
    times: Longs,
    begin_time: int,
    newest: Ints,
    number: int,
    target: Target,
) -> int:
    """Write entries from ``number`` on into ``target``; return how many found their slot empty.

    ``newest`` has for each slot the number of its newest entry and is brought up to date.
    """
    slots = len(newest)
    used = 0
    for row in range(len(hashes)):
        slot = hashes[row] % slots
        previous = newest[slot]
        used += previous == 0
        seconds = elapsed_seconds(times[row], begin_time)
        _put_entry(target, row * ENTRY_SIZE, hashes[row], offsets[row], seconds, previous)
        newest[slot] = number + row
    return used


@inlined
def _chain(file: Target, slots: int, number: int, key_hash: int) -> int:
    """Have the slot of a hash lead to entry ``number``; return the entry before it, 0 for none."""
    slot_at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
    previous = load_int(file, slot_at)
    if previous <= 0 or previous > number:
        previous = 0
    put_int(file, slot_at, number)
    return previous


@kernel
def insert_entries(
    file: Target, hashes: Ints, offsets: Longs, slots: int, first: int, seconds: int
) -> int:
    """Add entries from number ``first`` on to a whole file; return how many slots are new."""
    used = 0
    at = HEADER_SIZE + slots * SLOT_SIZE + first * ENTRY_SIZE
    for row in range(len(hashes)):
        previous = _chain(file, slots, first + row, hashes[row])
        used += previous == 0
        _put_entry(file, at + row * ENTRY_SIZE, hashes[row], offsets[row], seconds, previous)
    return used


@kernel
def chain_timed_entries(
    file: Target,
    hashes: Ints,
    offsets: Longs,
    times: Longs,
    slots: int,
    first: int,
    begin_time: int,
    entries: Target,
) -> int:
    """Write entries from number ``first`` on into ``entries``; return how many slots are new.

    The slots of ``file`` lead to them then.  ``begin_time`` is the time from which the entries of
    the file count.
    """
    used = 0
    for row in range(len(hashes)):
        seconds = elapsed_seconds(times[row], begin_time)
        previous = _chain(file, slots, first + row, hashes[row])
        used += previous == 0
        _put_entry(entries, row * ENTRY_SIZE, hashes[row], offsets[row], seconds, previous)
    return used


@kernel
def match_timed_entries(
    data: Bytes,
    hashes: Ints,
    offsets: Longs,
    times: Longs,
    newest: Ints,
    entry_base: int,
    first: int,
    begin_time: int,
) -> int:
    """Return how many entries from number ``first`` on are those that these keys ask for.

    ``newest`` has for each slot the entry before them, and after the call the last of them.
    """
    slots = len(newest)
    for row in range(len(hashes)):
        at = entry_base + (first + row) * ENTRY_SIZE
        slot = hashes[row] % slots
        if (
            load_int(data, at + ENTRY_KEY_HASH_AT) != hashes[row]
            or load_long(data, at + ENTRY_PHYSICAL_OFFSET_AT) != offsets[row]
            or load_int(data, at + ENTRY_ELAPSED_AT) != (times[row] - begin_time) // 1000
            or load_int(data, at + ENTRY_PREVIOUS_AT) != newest[slot]
        ):
            return row
        newest[slot] = first + row
    return len(hashes)


@kernel
def chain_breaks_at(data: Bytes, entry_base: int, count: int, newest: Ints) -> int:
    """Return the first of the entries below number ``count`` with a wrong link, 0 for none.

    ``newest`` is empty before, and has for each slot what it must hold after it.
    """
    slots = len(newest)
    for number in range(1, count):
        at = entry_base + number * ENTRY_SIZE
        key_hash = load_int(data, at + ENTRY_KEY_HASH_AT)
        if key_hash < 0:
            return number
        slot = key_hash % slots
        if load_int(data, at + ENTRY_PREVIOUS_AT) != newest[slot]:
            return number
        newest[slot] = number
    return 0


@kernel
def first_entry_from(data: Bytes, entry_base: int, count: int, physical_offset: int) -> int:
    """Return the first entry number whose record is at ``physical_offset`` or behind it."""
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        at = entry_base + middle * ENTRY_SIZE
        if load_long(data, at + ENTRY_PHYSICAL_OFFSET_AT) < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def entries_match(
    data: Bytes,
    entry_base: int,
    number: int,
    hashes: Ints,
    offsets: Longs,
    times: Longs,
    begin_time: int,
) -> bool:
    """Whether the entries from ``number`` on are those of the keys; links are not looked at.

    The seconds of entry one are not looked at either: it counts from the file before.
    """
    for row in range(len(hashes)):
        at = entry_base + (number + row) * ENTRY_SIZE
        if (
            load_int(data, at + ENTRY_KEY_HASH_AT) != hashes[row]
            or load_long(data, at + ENTRY_PHYSICAL_OFFSET_AT) != offsets[row]
        ):
            return False
        elapsed = load_int(data, at + ENTRY_ELAPSED_AT)
        if number + row > 1 and elapsed != elapsed_seconds(times[row], begin_time):
            return False
    return True
