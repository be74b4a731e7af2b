"""What stands before the messages in the answer to a pull, written in machine code.

A head is made of pieces that all heads of its notation share, and of slots between them: numbers.
It is written from its end, which stands before the messages, so that each size is known when its
place is reached.
"""

from typing import Final

import numpy as np

from flintmq.format.wire.frame import PREFIX_SIZE
from flintmq.kernels.answers import (
    PIECE_AT,
    PIECE_SIZE,
    PIECE_SLOT,
    SLOT_EXT_SIZE,
    SLOT_NOTHING,
    SLOT_RAW_OPAQUE,
    SLOT_SIZED,
)
from flintmq.kernels.compiled import Bytes, Target, copy_bytes, inlined, kernel, put_int
from flintmq.kernels.group_buffers import Table

# What follows a piece here, beside what may follow one in any answer (`flintmq.kernels.answers`).
SLOT_BROKER: Final = 8
SLOT_NEXT: Final = 9
SLOT_LEAST: Final = 10
SLOT_END: Final = 11

NUMBER_SIZE_MAX: Final = 20
"""Bytes of a number in digits, at most."""
SIZE_SIZE: Final = 4
_BINARY_TYPE: Final = 1 << 24
_ZERO: Final = 48
_MINUS: Final = 45


@inlined
def _put_digits_before(target: Target, end: int, value: int) -> int:
    """Write a number so that its digits end there; return where they begin."""
    rest = -value if value < 0 else value
    at = end - 1
    target[at] = np.uint8(_ZERO + rest % 10)
    rest //= 10
    while rest:
        at -= 1
        target[at] = np.uint8(_ZERO + rest % 10)
        rest //= 10
    if value < 0:
        at -= 1
        target[at] = np.uint8(_MINUS)
    return at


@kernel
def put_pulled_head(
    target: Target,
    body_at: int,
    body_size: int,
    pieces: Table,
    data: Bytes,
    is_binary: bool,
    broker_id: int,
    next_offset: int,
    least: int,
    end: int,
    opaque: int,
) -> int:
    """Write the head of a frame before the messages in ``target``; return where it begins.

    ``target`` has room for it: PREFIX_SIZE, all pieces, and for each slot a number and its size.
    """
    at = body_at
    for row in range(len(pieces) - 1, -1, -1):
        slot = pieces[row, PIECE_SLOT]
        kind = slot & ~SLOT_SIZED
        slot_end = at
        if kind == SLOT_RAW_OPAQUE:
            at -= SIZE_SIZE
            put_int(target, at, opaque)
        elif kind == SLOT_EXT_SIZE:
            at -= SIZE_SIZE
            put_int(target, at, body_at - slot_end)
        elif kind != SLOT_NOTHING:
            number = opaque
            if kind == SLOT_BROKER:
                number = broker_id
            elif kind == SLOT_NEXT:
                number = next_offset
            elif kind == SLOT_LEAST:
                number = least
            elif kind == SLOT_END:
                number = end
            at = _put_digits_before(target, at, number)
            if slot & SLOT_SIZED:
                at -= SIZE_SIZE
                put_int(target, at, slot_end - at - SIZE_SIZE)
        size = pieces[row, PIECE_SIZE]
        at -= size
        copy_bytes(target, at, data, pieces[row, PIECE_AT], size)
    header_size = body_at - at
    at -= PREFIX_SIZE
    put_int(target, at, SIZE_SIZE + header_size + body_size)
    put_int(target, at + SIZE_SIZE, header_size | _BINARY_TYPE * is_binary)
    return at
