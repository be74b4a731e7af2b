"""What queues and index must hold for the records of a table: codes, key hashes, runs of units.

The kernels know plain ASCII text.  A record they cannot judge (other text, a delayed message,
one that enters several queues) gets a mark, and the code in Python looks at that record.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from flintmq.kernels.compiled import Bytes, Ints, Longs, kernel, load_byte

Target = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint8]

IS_ODD: Final = 1
"""Code and keys of the record are to be found in Python."""

IS_MULTI: Final = 2
"""The record has the property of messages that enter several queues."""

_NAME_END: Final = 1
_PAIR_END: Final = 2
_SPACE: Final = 32
_ASCII_END: Final = 128
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 1 << 31
_FNV_START: Final = 0xCBF29CE4
_FNV_FACTOR: Final = 0x01000193

_TAGS: Final = np.frombuffer(b"TAGS\x01", np.uint8)
_KEYS: Final = np.frombuffer(b"KEYS\x01", np.uint8)
_UNIQ_KEY: Final = np.frombuffer(b"UNIQ_KEY\x01", np.uint8)
_MULTI_DISPATCH: Final = np.frombuffer(b"INNER_MULTI_DISPATCH\x01", np.uint8)


@kernel
def put_int(target: Target, at: int, value: int) -> None:
    """Write a big-endian number of four bytes; the caller looks at the bounds."""
    for place in range(4):
        target[at + place] = np.uint8(value >> (24 - 8 * place) & 0xFF)


@kernel
def put_long(target: Target, at: int, value: int) -> None:
    """Write a big-endian number of eight bytes; the caller looks at the bounds."""
    for place in range(8):
        target[at + place] = np.uint8(value >> (56 - 8 * place) & 0xFF)


@kernel
def _place_hash(data: Bytes, at: int, size: int, queue_id: int) -> int:
    """Return where the search for a queue begins."""
    place = _FNV_START ^ (queue_id & _MASK)
    for index in range(at, at + size):
        place = ((place ^ load_byte(data, index)) * _FNV_FACTOR) & _MASK
    return place ^ place >> 15


@kernel
def place_queues(
    data: Bytes, known_at: Longs, known_size: Ints, known_id: Ints, count: int, places: Ints
) -> None:
    """Fill an empty table of places, a power of two of them, with the queues that are known."""
    mask = len(places) - 1
    for number in range(count):
        place = _place_hash(data, known_at[number], known_size[number], known_id[number]) & mask
        while places[place] >= 0:
            place = place + 1 & mask
        places[place] = number


@kernel
def number_queues(
    data: Bytes,
    topic_at: Longs,
    topic_size: Ints,
    queue_id: Ints,
    start: int,
    known_at: Longs,
    known_size: Ints,
    known_id: Ints,
    count: int,
    places: Ints,
    numbers: Ints,
) -> tuple[int, int]:
    """Give each record from ``start`` on the number of its queue, a new one where it is new.

    Return how many records and queues are done; fewer records than there are when the tables
    are full.  A queue is known by where its topic stands in ``data``.
    """
    mask = len(places) - 1
    for row in range(start, len(topic_at)):
        at, size, wanted = topic_at[row], topic_size[row], queue_id[row]
        place = _place_hash(data, at, size, wanted) & mask
        while True:
            number = places[place]
            if number < 0:
                if count == len(known_at):
                    return row, count
                number = count
                known_at[number], known_size[number], known_id[number] = at, size, wanted
                places[place] = number
                count += 1
                break
            if known_id[number] == wanted and known_size[number] == size:
                known = known_at[number]
                same = True
                for index in range(size):
                    if data[known + index] != data[at + index]:
                        same = False
                        break
                if same:
                    break
            place = place + 1 & mask
        numbers[row] = number
    return len(topic_at), count


@kernel
def _starts_with(data: Bytes, at: int, end: int, name: Bytes) -> bool:
    index = 0
    while index < len(name) and at + index < end and data[at + index] == name[index]:
        index += 1
    return index == len(name)


@kernel
def hash_text(data: Bytes, at: int, end: int, start: int) -> int:
    """Return the unsigned Java hash of a text that continues one of hash ``start``; -1 if odd."""
    found = start
    every = 0
    for index in range(at, end):
        byte = load_byte(data, index)
        every |= byte
        found = (found * 31 + byte) & _MASK
    return -1 if every >= _ASCII_END else found


@kernel
def put_hash(hashes: Ints, at: int, found: int) -> None:
    """Store a hash as the index does: without its sign."""
    hashes[at] = found if found < _SIGN else (_MASK + 1 - found) & (_SIGN - 1)


@kernel
def derive_fields(
    data: Bytes,
    properties_at: Longs,
    properties_size: Ints,
    queues: Ints,
    prefixes: Longs,
    start: int,
    codes: Longs,
    key_counts: Ints,
    flags: Flags,
    hashes: Ints,
    hash_count: int,
) -> tuple[int, int]:
    """Find tags code and key hashes of the records from ``start`` on.

    ``prefixes`` has for each queue the hash of its topic and ``#``, -1 where its records are
    for Python.  Return how many records and hashes are done; fewer records than there are when
    ``hashes`` is full.
    """
    room = len(hashes)
    for row in range(start, len(properties_at)):
        prefix = prefixes[queues[row]]
        at = properties_at[row]
        end = at + properties_size[row]
        tags_at = tags_end = keys_at = keys_end = unique_at = unique_end = 0
        flag = IS_ODD if prefix < 0 else 0
        while at < end:
            stop = at
            while stop < end and load_byte(data, stop) != _PAIR_END:
                stop += 1
            first = load_byte(data, at) if at < stop else 0
            # Of two pairs with one name the later counts, and a pair without a value does not.
            if first == 84 and stop - at > 5 and _starts_with(data, at, stop, _TAGS):
                tags_at, tags_end = at + 5, stop
            elif first == 75 and stop - at > 5 and _starts_with(data, at, stop, _KEYS):
                keys_at, keys_end = at + 5, stop
            elif first == 85 and stop - at > 9 and _starts_with(data, at, stop, _UNIQ_KEY):
                unique_at, unique_end = at + 9, stop
            elif first == 73 and _starts_with(data, at, stop, _MULTI_DISPATCH):
                flag |= IS_MULTI
            at = stop + 1
        if hash_count + (keys_end - keys_at) // 2 + 2 > room:
            return row, hash_count
        count = 0
        if flag & IS_ODD == 0:
            code = hash_text(data, tags_at, tags_end, 0)
            is_odd = code < 0
            codes[row] = code if code < _SIGN else code - (_MASK + 1)
            if unique_end > unique_at:
                found = hash_text(data, unique_at, unique_end, prefix)
                is_odd |= found < 0
                put_hash(hashes, hash_count, found)
                count = 1
            at = keys_at
            while at < keys_end:
                stop = at
                while stop < keys_end and load_byte(data, stop) != _SPACE:
                    stop += 1
                if stop > at:
                    found = hash_text(data, at, stop, prefix)
                    is_odd |= found < 0
                    put_hash(hashes, hash_count + count, found)
                    count += 1
                at = stop + 1
            if is_odd:
                flag |= IS_ODD
                count = 0
        key_counts[row] = count
        flags[row] = flag
        hash_count += count
    return len(properties_at), hash_count


@kernel
def gather_runs(
    queues: Ints,
    queue_offset: Longs,
    physical_offset: Longs,
    size: Ints,
    code: Longs,
    places: Longs,
    units: Target,
    run_at: Longs,
    run_first: Longs,
) -> int:
    """Write the units of each queue side by side; return how many runs they form.

    ``places`` has for each queue the number of its first unit in ``units`` and is used up.  A
    run is a series of units with consecutive queue offsets: ``run_at`` tells its first unit,
    ``run_first`` the queue offset of that.
    """
    following = np.full(len(places), -1, np.int64)
    begun = np.zeros(len(places), np.uint8)
    run_count = 0
    for row in range(len(queues)):
        queue = queues[row]
        place = places[queue]
        places[queue] = place + 1
        at = place * 20
        put_long(units, at, physical_offset[row])
        put_int(units, at + 8, size[row])
        put_long(units, at + 12, code[row])
        offset = queue_offset[row]
        if begun[queue] == 0 or offset != following[queue]:
            begun[queue] = 1
            run_at[run_count] = place
            run_first[run_count] = offset
            run_count += 1
        following[queue] = offset + 1
    return run_count
