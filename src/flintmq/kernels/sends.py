"""Plain sends of one read, encoded as records, queue units and key hashes; and their answers.

The kernel judges the properties of each message: any that mean more than queues and index have
to know, and any text that is not as clients write it, make it stop.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from flintmq.format.consume_queue import UNIT_SIZE
from flintmq.format.frame import PREFIX_SIZE
from flintmq.format.record import IPV4_HEADER, MESSAGE_MAGIC, PROPERTIES_LENGTH_MAX
from flintmq.kernels.batch import NOT_PLAIN, Room, dispatch_text
from flintmq.kernels.compiled import Bytes, Longs, copy_bytes, kernel, load_byte
from flintmq.kernels.crc import kept_crc
from flintmq.kernels.derive import Target, put_int, put_long
from flintmq.kernels.properties import find_byte
from flintmq.kernels.texts import are_equal
from flintmq.model import property_names

PAIR_COUNT_MAX: Final = 64
"""Each name is compared with those before it, which takes long for very many."""

_HEAD_SIZE: Final = IPV4_HEADER.size
_LENGTH_SIZE: Final = 2
_NAME_END: Final = 1
_PAIR_END: Final = 2

NOT_PLAIN_NAMES: Final = (
    property_names.DELAY,
    property_names.TRAN_MSG,
    property_names.INNER_MULTI_DISPATCH,
    property_names.CLUSTER,
)
"""Properties that mean more than queues and index have to know."""


def _names(*names: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return names behind each other, and where each ends."""
    encoded = [name.encode() for name in names]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(one) for one in encoded])


ANSWER_PIECE_COUNT: Final = 5
ANSWER_NUMBERS_SIZE: Final = PREFIX_SIZE + 16 + 3 * 20
"""Bytes of an answer besides its pieces, at most."""

_TYPE_AND_SIZE_FIELD: Final = 4
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_ZERO: Final = 48
_MINUS: Final = 45

Table = npt.NDArray[np.int64]

_ODD_NAMES, _ODD_ENDS = _names(*NOT_PLAIN_NAMES)
_WAIT: Final = np.frombuffer(property_names.WAIT.encode(), np.uint8)


# The columns of a table of targets, which tells for sends of each kind where they go to.
QUEUE: Final = 0
"""The number of the queue in the table of queues."""
QUEUE_ID: Final = 1
SYS_FLAG: Final = 2
FLAG: Final = 3
RECONSUME_TIMES: Final = 4
KEY_PREFIX: Final = 5
"""The hash of what stands before each key."""
TOPIC_AT: Final = 6
"""Where the topic stands among the topics, with its length before it."""
TOPIC_SIZE: Final = 7

# The columns of a table of queues.
NEXT_OFFSET: Final = 0
"""The next queue offset; the kernel counts on."""
UNIT_END: Final = 1
"""The number behind the last unit of the queue; the kernel fills it in."""
LOG_SIZE: Final = 2
"""Bytes of the log that its messages take; the kernel adds them up."""


@kernel
def encode_sends(
    data: Bytes,
    body_sizes: Longs,
    text_sizes: Longs,
    born_timestamps: Longs,
    numbers: Longs,
    targets: Table,
    queues: Table,
    shared: Bytes,
    topics_size: int,
    born_host: int,
    store_timestamp: int,
    store_host: int,
    physical_offset: int,
    record_size_max: int,
    body_size_max: int,
    room: Room,
) -> tuple[int, int]:
    """Encode messages; return where their records end in the room, and how many keys they have.

    ``data`` has all bodies, then all property texts; ``numbers`` are the rows of ``targets`` that
    the messages go by.  ``shared`` has all topics, then the properties that each message gets.
    The units of each queue stand side by side.  The first number is NOT_PLAIN where something is
    odd.
    """
    records, units, offsets, hashes, key_offsets, queue_ids, queue_offsets = room
    count = len(numbers)
    if count * 8 > len(offsets):
        return NOT_PLAIN, 0
    _place_units(numbers, targets, queues)
    names_at = np.empty(PAIR_COUNT_MAX, np.int64)
    names_size = np.empty(PAIR_COUNT_MAX, np.int64)
    last_size = len(shared) - topics_size
    body_at = 0
    text_at = body_sizes.sum()
    record_at = key_count = 0
    for row in range(count):
        target = targets[numbers[row]]
        body_size = body_sizes[row]
        text_end = text_at + text_sizes[row]
        wait_at, wait_end = _judge(data, text_at, text_end, names_at, names_size)
        if wait_at < 0 or body_size > body_size_max:
            return NOT_PLAIN, 0
        # The pair of WAIT is left out, and the last pair gets an end if it has none.
        lacks_end = text_end > text_at and load_byte(data, text_end - 1) != _PAIR_END
        lacks_end = lacks_end and wait_end <= text_end
        after_size = max(text_end - wait_end, 0)
        stored_size = wait_at - text_at + after_size + lacks_end + last_size
        topic_size = target[TOPIC_SIZE]
        size = _HEAD_SIZE + body_size + topic_size + _LENGTH_SIZE + stored_size
        if (
            size > record_size_max
            or stored_size > PROPERTIES_LENGTH_MAX
            or record_at + size > len(records)
        ):
            return NOT_PLAIN, 0
        code, key_end = dispatch_text(
            data,
            text_at,
            text_end,
            target[KEY_PREFIX],
            physical_offset,
            hashes,
            key_offsets,
            key_count,
        )
        if key_end < 0:
            return NOT_PLAIN, 0
        queue = queues[target[QUEUE]]
        queue_offset = queue[NEXT_OFFSET]
        put_int(records, record_at, size)
        put_int(records, record_at + 4, MESSAGE_MAGIC)
        put_int(records, record_at + 8, kept_crc(data, body_at, body_size))
        put_int(records, record_at + 12, target[QUEUE_ID])
        put_int(records, record_at + 16, target[FLAG])
        put_long(records, record_at + 20, queue_offset)
        put_long(records, record_at + 28, physical_offset)
        put_int(records, record_at + 36, target[SYS_FLAG])
        put_long(records, record_at + 40, born_timestamps[row])
        put_long(records, record_at + 48, born_host)
        put_long(records, record_at + 56, store_timestamp)
        put_long(records, record_at + 64, store_host)
        put_int(records, record_at + 72, target[RECONSUME_TIMES])
        put_long(records, record_at + 76, 0)
        put_int(records, record_at + 84, body_size)
        to = record_at + _HEAD_SIZE
        copy_bytes(records, to, data, body_at, body_size)
        to += body_size
        copy_bytes(records, to, shared, target[TOPIC_AT], topic_size)
        to += topic_size
        records[to] = np.uint8(stored_size >> 8)
        records[to + 1] = np.uint8(stored_size & 0xFF)
        to += _LENGTH_SIZE
        copy_bytes(records, to, data, text_at, wait_at - text_at)
        to += wait_at - text_at
        copy_bytes(records, to, data, wait_end, after_size)
        to += after_size
        if lacks_end:
            records[to] = np.uint8(_PAIR_END)
            to += 1
        copy_bytes(records, to, shared, topics_size, last_size)
        unit_at = queue[UNIT_END] * UNIT_SIZE
        put_long(units, unit_at, physical_offset)
        put_int(units, unit_at + 8, size)
        put_long(units, unit_at + 12, code)
        put_long(offsets, row * 8, physical_offset)
        queue_ids[row] = target[QUEUE_ID]
        queue_offsets[row] = queue_offset
        queue[NEXT_OFFSET] = queue_offset + 1
        queue[UNIT_END] += 1
        queue[LOG_SIZE] += size
        record_at += size
        physical_offset += size
        key_count = key_end
        body_at += body_size
        text_at = text_end
    return record_at, key_count


@kernel
def _place_units(numbers: Longs, targets: Table, queues: Table) -> None:
    """Note for each queue where its units begin."""
    for row in range(len(queues)):
        queues[row, UNIT_END] = 0
    for number in numbers:
        queues[targets[number, QUEUE], UNIT_END] += 1
    start = 0
    for row in range(len(queues)):
        count = queues[row, UNIT_END]
        queues[row, UNIT_END] = start
        start += count


@kernel
def _judge(
    data: Bytes, start: int, end: int, names_at: Longs, names_size: Longs
) -> tuple[int, int]:
    """Return where the pair of WAIT begins and ends in a property text, its end if it has none.

    The first number is NOT_PLAIN for a text that is not made of pairs, has a name twice, or has
    one that means more than queues and index have to know.
    """
    wait_at = wait_end = end
    count = 0
    at = start
    while at < end:
        stop = find_byte(data, at, end, _PAIR_END)
        name_end = find_byte(data, at, stop, _NAME_END)
        size = name_end - at
        if (
            size == 0
            or name_end + 1 >= stop
            or find_byte(data, name_end + 1, stop, _NAME_END) < stop
            or count == PAIR_COUNT_MAX
            or _is_odd_name(data, at, size)
        ):
            return NOT_PLAIN, 0
        for before in range(count):
            if names_size[before] == size and are_equal(data, names_at[before], data, at, size):
                return NOT_PLAIN, 0
        if size == len(_WAIT) and are_equal(data, at, _WAIT, 0, size):
            if at == start:
                return NOT_PLAIN, 0
            wait_at, wait_end = at, stop + 1
        names_at[count] = at
        names_size[count] = size
        count += 1
        at = stop + 1
    return wait_at, wait_end


@kernel
def _is_odd_name(data: Bytes, at: int, size: int) -> bool:
    begin = 0
    for end in _ODD_ENDS:
        if end - begin == size and are_equal(data, at, _ODD_NAMES, begin, size):
            return True
        begin = end
    return False


@kernel
def _put_digits(target: Target, at: int, value: int) -> int:
    """Write a number in decimal; return where it ends."""
    if value < 0:
        target[at] = np.uint8(_MINUS)
        at += 1
        value = -value
    size = 1
    rest = value // 10
    while rest:
        size += 1
        rest //= 10
    for place in range(at + size - 1, at - 1, -1):
        target[place] = np.uint8(_ZERO + value % 10)
        value //= 10
    return at + size


@kernel
def _put_hex(target: Target, at: int, data: Bytes, start: int, size: int) -> int:
    """Write bytes in upper-case hex; return where that ends."""
    for index in range(start, start + size):
        byte = load_byte(data, index)
        target[at] = _HEX[byte >> 4]
        target[at + 1] = _HEX[byte & 15]
        at += 2
    return at


@kernel
def encode_answers(
    pieces: Bytes,
    piece_ends: Longs,
    opaques: Longs,
    queue_ids: Longs,
    queue_offsets: Longs,
    physical_offsets: Bytes,
    out: Target,
) -> int:
    """Write the frames of answers to sends behind each other; return where they end.

    Their JSON headers are ``pieces`` with the hexadecimal physical offset, queue id, queue offset
    and opaque between them.  There is room for ANSWER_NUMBERS_SIZE bytes more for each.
    """
    at = 0
    for row in range(len(opaques)):
        start = at
        at += PREFIX_SIZE
        begin = 0
        for piece in range(len(piece_ends)):
            size = piece_ends[piece] - begin
            copy_bytes(out, at, pieces, begin, size)
            at += size
            begin = piece_ends[piece]
            if piece == 0:
                at = _put_hex(out, at, physical_offsets, row * 8, 8)
            elif piece == 1:
                at = _put_digits(out, at, queue_ids[row])
            elif piece == 2:
                at = _put_digits(out, at, queue_offsets[row])
            elif piece == 3:
                at = _put_digits(out, at, opaques[row])
        header_size = at - start - PREFIX_SIZE
        put_int(out, start, header_size + _TYPE_AND_SIZE_FIELD)
        put_int(out, start + 4, header_size)
    return at
