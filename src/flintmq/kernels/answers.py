"""The answers to stored sends, written in machine code.

An answer is made of pieces that all answers share, and of slots between them: numbers, and the ids
of the messages.  The table of pieces has a row for each piece and what follows it.
"""

from typing import Final, NamedTuple

from flintmq.format.wire.frame import PREFIX_SIZE
from flintmq.kernels.compiled import (
    Bytes,
    Longs,
    Target,
    copy_bytes,
    inlined,
    kernel,
    put_int,
)
from flintmq.kernels.group_buffers import (
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    SEND_IS_BINARY,
    SEND_OPAQUE,
    SEND_TARGET,
    Table,
)
from flintmq.kernels.numbers import HEX_LONG_SIZE, put_digits, put_hex_long

# The columns of the table of pieces.
PIECE_AT: Final = 0
PIECE_SIZE: Final = 1
PIECE_SLOT: Final = 2
"""What follows the piece."""

SLOT_NOTHING: Final = 0
SLOT_IDS: Final = 1
SLOT_QUEUE_ID: Final = 2
SLOT_QUEUE_OFFSET: Final = 3
SLOT_OPAQUE: Final = 4
SLOT_RAW_OPAQUE: Final = 5
"""The opaque number as four bytes, as binary headers have it."""
SLOT_EXT_SIZE: Final = 6
"""The size of all that follows in the header."""
SLOT_SIZED: Final = 16
"""Is added to a slot whose size stands before it, as in binary headers."""

ANSWER_NUMBERS_SIZE: Final = PREFIX_SIZE + 3 * 20 + 5 * 4
"""Bytes of an answer besides its pieces and the ids of its messages, at most."""
ID_END_SIZE: Final = HEX_LONG_SIZE + 1
"""Bytes of the id of a message besides the host, with a comma."""

_LENGTH_SIZE: Final = 4
_BINARY_TYPE: Final = 1 << 24
_COMMA: Final = 44


class AnswerPieces(NamedTuple):
    """What answers of both notations are made of."""

    data: Bytes
    json: Table
    binary: Table
    host: Bytes
    """The store host in hexadecimal, with which ids begin."""


@inlined
def _put_ids(out: Target, at: int, host: Bytes, messages: Table, first: int, end: int) -> int:
    for number in range(first, end):
        if number > first:
            out[at] = _COMMA
            at += 1
        copy_bytes(out, at, host, 0, len(host))
        at += len(host)
        put_hex_long(out, at, messages[number, PHYSICAL_OFFSET])
        at += HEX_LONG_SIZE
    return at


@kernel
def encode_answers(
    pieces: AnswerPieces,
    sends: Table,
    send_count: int,
    targets: Table,
    messages: Table,
    first_messages: Longs,
    out: Target,
    ends: Longs,
) -> int:
    """Write the frames of answers to sends one behind the other; return where they end.

    ``ends`` gets where each answer ends.  ``out`` has room: see ANSWER_NUMBERS_SIZE.
    """
    data, json, binary, host = pieces
    at = 0
    for row in range(send_count):
        start = at
        at += PREFIX_SIZE
        is_binary = sends[row, SEND_IS_BINARY] != 0
        table = binary if is_binary else json
        first, end = first_messages[row], first_messages[row + 1]
        ext_size_at = 0
        for piece in range(len(table)):
            size = table[piece, PIECE_SIZE]
            copy_bytes(out, at, data, table[piece, PIECE_AT], size)
            at += size
            slot = table[piece, PIECE_SLOT]
            size_at = at
            if slot & SLOT_SIZED:
                at += _LENGTH_SIZE
            kind = slot & ~SLOT_SIZED
            if kind == SLOT_IDS:
                at = _put_ids(out, at, host, messages, first, end)
            elif kind == SLOT_QUEUE_ID:
                at = put_digits(out, at, targets[sends[row, SEND_TARGET], QUEUE_ID])
            elif kind == SLOT_QUEUE_OFFSET:
                at = put_digits(out, at, messages[first, QUEUE_OFFSET])
            elif kind == SLOT_OPAQUE:
                at = put_digits(out, at, sends[row, SEND_OPAQUE])
            elif kind == SLOT_RAW_OPAQUE:
                put_int(out, at, sends[row, SEND_OPAQUE])
                at += _LENGTH_SIZE
            elif kind == SLOT_EXT_SIZE:
                ext_size_at = at
                at += _LENGTH_SIZE
            if slot & SLOT_SIZED:
                put_int(out, size_at, at - size_at - _LENGTH_SIZE)
        if ext_size_at:
            put_int(out, ext_size_at, at - ext_size_at - _LENGTH_SIZE)
        header_size = at - start - PREFIX_SIZE
        put_int(out, start, header_size + _LENGTH_SIZE)
        put_int(out, start + _LENGTH_SIZE, header_size | _BINARY_TYPE * is_binary)
        ends[row] = at
    return at
