"""Requests cut from what sockets brought, and recognised by headers that were seen before.

A known header is made of pieces that all requests of its kind share, and of slots between them:
the number of the request and, of a send, the queue, the time of birth and the properties.  A
request whose header has the same pieces, and in each slot something that its notation allows there,
is of that kind.  At anything else the walk stops: the rest of that read is for code in Python.
"""

from typing import Final, NamedTuple

import numpy as np

from flintmq.format.wire.frame import PREFIX_SIZE
from flintmq.kernels.compiled import (
    Bytes,
    Ints,
    Longs,
    Target,
    inlined,
    kernel,
    load_byte,
    load_int,
)
from flintmq.kernels.group_buffers import (
    SEND_BODY_AT,
    SEND_BODY_SIZE,
    SEND_BORN,
    SEND_CUT_AT,
    SEND_CUT_END,
    SEND_HOST,
    SEND_IS_BINARY,
    SEND_OPAQUE,
    SEND_TARGET,
    SEND_TEXT_AT,
    SEND_TEXT_SIZE,
    Table,
)
from flintmq.kernels.plain_properties import NOT_PLAIN, judge_properties
from flintmq.kernels.properties import PAIRS_MAX
from flintmq.kernels.texts import are_equal, find_byte, is_ascii
from flintmq.model import property_names

# The columns of the table of known headers.
KNOWN_IS_BINARY: Final = 0
KNOWN_FIRST_PIECE: Final = 1
KNOWN_PIECE_END: Final = 2

# The columns of the table of their pieces.
PIECE_AT: Final = 0
PIECE_SIZE: Final = 1
PIECE_SLOT: Final = 2
"""What follows the piece."""

SLOT_END: Final = 0
"""Nothing: the header ends."""
SLOT_OPAQUE: Final = 1
SLOT_QUEUE_ID: Final = 2
SLOT_BORN: Final = 3
SLOT_TEXT: Final = 4
SLOT_EXT_SIZE: Final = 5
"""The size of all that follows, in a binary header."""
SLOT_QUEUE_OFFSET: Final = 6
SLOT_COMMIT_OFFSET: Final = 7
"""The offsets of a pull (`flintmq.kernels.pull_walk`)."""

# Where the offsets of a pull are in a table with the rows of sends.
PULL_QUEUE_OFFSET: Final = SEND_BORN
PULL_COMMIT_OFFSET: Final = SEND_CUT_AT

WALKED_QUEUES_MAX: Final = 64
"""Queues of a topic whose sends are recognised; the table of targets has a column for each."""
NO_TARGET: Final = -1
NO_KIND: Final = -1

LENGTH_SIZE: Final = 4
HEADER_SIZE_MASK: Final = 0xFFFFFF
TYPE_SHIFT: Final = 24
_OPAQUE_MAX: Final = (1 << 31) - 1
_OPAQUE_DIGITS_MAX: Final = 10
_QUEUE_DIGITS_MAX: Final = 4
_LONG_DIGITS_MAX: Final = 18
_QUOTE: Final = 34
_BACKSLASH: Final = 92
_MINUS: Final = 45
_ZERO: Final = 48
_NO_NUMBER: Final = -1
_NOT_TEXT: Final = -1
NOT_WHOLE: Final = -1
_WAIT_TRUE: Final = np.frombuffer(f"{property_names.WAIT}\x01true".encode(), np.uint8)


class KnownHeaders(NamedTuple):
    """The headers that a walk recognises."""

    headers: Table
    pieces: Table
    data: Bytes
    """What the pieces point to."""
    targets: Table
    """The target of each known header and queue, NO_TARGET where it is not known."""
    is_batch: Longs
    """Whether the sends of a target are batches."""


class WalkResult(NamedTuple):
    """Where a walk leaves what it has found."""

    sends: Table
    handled: Longs
    """How many bytes of each read were walked over."""
    send_ends: Longs
    """How many sends there are up to the end of each read."""
    used: Longs
    """The targets that were met, in their order."""
    numbers: Longs
    """The number of each target among those, NO_TARGET for others; it is so again afterwards."""


@inlined
def _digits(data: Bytes, at: int, end: int, size_max: int) -> int:
    """Return the number that digits from ``at`` to ``end`` are, or _NO_NUMBER."""
    if end <= at or end - at > size_max:
        return _NO_NUMBER
    number = 0
    for index in range(at, end):
        digit = load_byte(data, index) - _ZERO
        if digit < 0 or digit > 9:
            return _NO_NUMBER
        number = 10 * number + digit
    return number


@inlined
def _digits_end(data: Bytes, at: int, end: int) -> int:
    while at < end and _ZERO <= load_byte(data, at) <= _ZERO + 9:
        at += 1
    return at


@kernel
def _match_slot(
    data: Bytes, at: int, end: int, slot: int, is_binary: bool, sends: Table, row: int
) -> int:
    """Take what stands in a slot; return where it ends, or _NO_NUMBER if it is not allowed."""
    if is_binary:
        if end - at < LENGTH_SIZE:
            return _NO_NUMBER
        size = load_int(data, at)
        at += LENGTH_SIZE
        if slot == SLOT_OPAQUE:
            sends[row, SEND_OPAQUE] = size
            return at
        if slot == SLOT_EXT_SIZE:
            return at if size == end - at else _NO_NUMBER
        if size < 0 or size > end - at:
            return _NO_NUMBER
        slot_end = at + size
    elif slot == SLOT_OPAQUE:
        is_negative = at < end and load_byte(data, at) == _MINUS
        at += is_negative
        slot_end = _digits_end(data, at, end)
        number = _digits(data, at, slot_end, _OPAQUE_DIGITS_MAX)
        # JSON has no leading zeros, and a zero with a sign is left to others.
        if number == _NO_NUMBER or number > _OPAQUE_MAX:
            return _NO_NUMBER
        if load_byte(data, at) == _ZERO and (slot_end - at > 1 or is_negative):
            return _NO_NUMBER
        sends[row, SEND_OPAQUE] = -number if is_negative else number
        return slot_end
    elif slot == SLOT_TEXT:
        slot_end = find_byte(data, at, end, _QUOTE)
        if slot_end > at and load_byte(data, slot_end - 1) == _BACKSLASH:
            return _NO_NUMBER
    else:
        slot_end = _digits_end(data, at, end)
    if slot == SLOT_TEXT:
        sends[row, SEND_TEXT_AT] = at
        sends[row, SEND_TEXT_SIZE] = slot_end - at
        return slot_end
    if slot == SLOT_QUEUE_ID:
        number = _digits(data, at, slot_end, _QUEUE_DIGITS_MAX)
        if number == _NO_NUMBER or (load_byte(data, at) == _ZERO and slot_end - at > 1):
            return _NO_NUMBER
        sends[row, SEND_TARGET] = number
        return slot_end
    number = _digits(data, at, slot_end, _LONG_DIGITS_MAX)
    if slot == SLOT_COMMIT_OFFSET:
        sends[row, PULL_COMMIT_OFFSET] = number
    elif slot == SLOT_QUEUE_OFFSET:
        sends[row, PULL_QUEUE_OFFSET] = number
    else:
        sends[row, SEND_BORN] = number
    return slot_end if number != _NO_NUMBER else _NO_NUMBER


@kernel
def _matches(
    data: Bytes,
    at: int,
    end: int,
    first_piece: int,
    piece_end: int,
    pieces: Table,
    piece_data: Bytes,
    is_binary: bool,
    sends: Table,
    row: int,
) -> bool:
    """Whether a header is of a known kind; the row of the send then has what is in its slots."""
    sends[row, SEND_TEXT_AT] = at
    sends[row, SEND_TEXT_SIZE] = 0
    for piece in range(first_piece, piece_end):
        size = pieces[piece, PIECE_SIZE]
        if size > end - at or not are_equal(data, at, piece_data, pieces[piece, PIECE_AT], size):
            return False
        at += size
        slot = pieces[piece, PIECE_SLOT]
        if slot == SLOT_END:
            return at == end
        at = _match_slot(data, at, end, slot, is_binary, sends, row)
        if at == _NO_NUMBER:
            return False
    return False


@kernel
def find_kind(
    data: Bytes,
    header: tuple[int, int, bool],
    guess: int,
    headers: Table,
    pieces: Table,
    piece_data: Bytes,
    sends: Table,
    row: int,
) -> int:
    """Return the number of the known header that a header is like, or NO_KIND.

    ``header`` is where it begins and ends, and whether it is binary.
    """
    at, end, is_binary = header
    for number in range(-1, len(headers)):
        # Most requests of a connection are like the one before.
        kind = guess if number < 0 else number
        if kind < len(headers) and (headers[kind, KNOWN_IS_BINARY] != 0) == is_binary:
            first, last = headers[kind, KNOWN_FIRST_PIECE], headers[kind, KNOWN_PIECE_END]
            if _matches(data, at, end, first, last, pieces, piece_data, is_binary, sends, row):
                return kind
    return NO_KIND


@inlined
def _hex_digit(byte: int) -> int:
    if 48 <= byte <= 57:
        return byte - 48
    byte |= 32
    return byte - 87 if 97 <= byte <= 102 else -1


@kernel
def unescape(data: Target, at: int, end: int) -> int:
    """Write a JSON text over itself as it is meant; return its size.

    _NOT_TEXT is for what JSON does not allow, for other than ASCII, and for escapes that clients do
    not write; some of it is overwritten then.
    """
    to = at
    start = at
    while at < end:
        byte = load_byte(data, at)
        at += 1
        if byte < 32 or byte >= 128 or byte == _QUOTE:
            return _NOT_TEXT
        if byte == _BACKSLASH:
            if at == end:
                return _NOT_TEXT
            byte = load_byte(data, at)
            at += 1
            if byte == 117:  # u
                if end - at < 4 or load_byte(data, at) != 48 or load_byte(data, at + 1) != 48:
                    return _NOT_TEXT
                high, low = _hex_digit(load_byte(data, at + 2)), _hex_digit(load_byte(data, at + 3))
                if high < 0 or high > 7 or low < 0:
                    return _NOT_TEXT
                byte = 16 * high + low
                at += 4
            elif byte == 110:  # n
                byte = 10
            elif byte == 116:  # t
                byte = 9
            elif byte != _QUOTE and byte != _BACKSLASH and byte != 47:
                return _NOT_TEXT
        data[to] = np.uint8(byte)
        to += 1
    return to - start


@kernel
def _take_text(
    data: Target,
    sends: Table,
    row: int,
    is_binary: bool,
    waits: bool,
    names_at: Longs,
    names_size: Ints,
) -> bool:
    """Bring a properties text into the form in which it is stored; return whether it is plain."""
    at, size = sends[row, SEND_TEXT_AT], sends[row, SEND_TEXT_SIZE]
    if is_binary:
        if not is_ascii(data, at, at + size):
            return False
    else:
        size = unescape(data, at, at + size)
        if size == _NOT_TEXT:
            return False
        sends[row, SEND_TEXT_SIZE] = size
    cut_at, cut_end = judge_properties(data, at, at + size, names_at, names_size)
    if cut_at == NOT_PLAIN:
        return False
    if waits and cut_end > cut_at:
        pair_size = cut_end - 1 - cut_at
        if pair_size != len(_WAIT_TRUE) or not are_equal(data, cut_at, _WAIT_TRUE, 0, pair_size):
            return False
    sends[row, SEND_CUT_AT] = cut_at
    sends[row, SEND_CUT_END] = cut_end
    return True


@inlined
def end_of_frame(data: Bytes, at: int, end: int, frame_size_max: int) -> int:
    """Return where the frame ends whose prefix stands at ``at``, or NOT_WHOLE."""
    frame_size = load_int(data, at)
    word = load_int(data, at + LENGTH_SIZE)
    is_frame = (
        0 <= word >> TYPE_SHIFT <= 1
        and LENGTH_SIZE + (word & HEADER_SIZE_MASK) <= frame_size
        and frame_size <= frame_size_max - LENGTH_SIZE
        and frame_size <= end - at - LENGTH_SIZE
    )
    return at + LENGTH_SIZE + frame_size if is_frame else NOT_WHOLE


@kernel
def walk_sends(
    data: Target,
    read_ends: Longs,
    known: KnownHeaders,
    frame_size_max: int,
    waits: bool,
    result: WalkResult,
) -> tuple[int, int]:
    """Cut known sends from reads; return how many there are, and how many targets they have.

    ``data`` has the reads one behind the other; texts are unescaped in it, so that where the walk
    of a read has stopped it is of no use any more.  With ``waits`` only sends that wait for the
    disk are taken.
    """
    headers, pieces, piece_data, targets, is_batch = known
    sends, handled, send_ends, used, numbers = result
    names_at = np.empty(PAIRS_MAX, np.int64)
    names_size = np.empty(PAIRS_MAX, np.int32)
    count = used_count = start = 0
    for read in range(len(read_ends)):
        end = read_ends[read]
        at = start
        kind = 0
        while end - at >= PREFIX_SIZE and count < sends.shape[0]:
            frame_end = end_of_frame(data, at, end, frame_size_max)
            if frame_end == NOT_WHOLE:
                break
            word = load_int(data, at + LENGTH_SIZE)
            is_binary = word >> TYPE_SHIFT == 1
            header_at = at + PREFIX_SIZE
            header_end = header_at + (word & HEADER_SIZE_MASK)
            header = (header_at, header_end, is_binary)
            kind = find_kind(data, header, kind, headers, pieces, piece_data, sends, count)
            if kind == NO_KIND:
                break
            queue_id = sends[count, SEND_TARGET]
            target = targets[kind, queue_id] if queue_id < targets.shape[1] else NO_TARGET
            if target == NO_TARGET:
                break
            if is_batch[target]:
                if sends[count, SEND_TEXT_SIZE]:
                    break
            elif not _take_text(data, sends, count, is_binary, waits, names_at, names_size):
                break
            if numbers[target] == NO_TARGET:
                numbers[target] = used_count
                used[used_count] = target
                used_count += 1
            sends[count, SEND_TARGET] = numbers[target]
            sends[count, SEND_BODY_AT] = header_end
            sends[count, SEND_BODY_SIZE] = frame_end - header_end
            sends[count, SEND_HOST] = read
            sends[count, SEND_IS_BINARY] = is_binary
            count += 1
            at = frame_end
        handled[read] = at - start
        send_ends[read] = count
        start = end
    for number in range(used_count):
        numbers[used[number]] = NO_TARGET
    return count, used_count
