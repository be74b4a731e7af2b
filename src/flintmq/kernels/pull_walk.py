"""Pulls cut from what sockets brought, and recognised by headers that were seen before.

See `flintmq.kernels.request_walk`, by whose rules headers are recognised.  The slots of a pull are
the number of the request, the queue and the two offsets.
"""

from typing import Final, NamedTuple

from flintmq.format.wire.frame import PREFIX_SIZE
from flintmq.kernels.compiled import Bytes, kernel, load_int
from flintmq.kernels.group_buffers import (
    SEND_BODY_AT,
    SEND_IS_BINARY,
    SEND_OPAQUE,
    SEND_TARGET,
    Table,
)
from flintmq.kernels.request_walk import (
    HEADER_SIZE_MASK,
    LENGTH_SIZE,
    NO_KIND,
    NOT_WHOLE,
    TYPE_SHIFT,
    end_of_frame,
    find_kind,
)

# The rows of the table of pulls are those of sends, so that both are recognised by the same code;
# the offsets have theirs in `request_walk`.
PULL_NUMBER: Final = SEND_TARGET
"""The number of the known pull."""
PULL_AT: Final = SEND_BODY_AT
"""How many bytes of its read stand before it."""
PULL_OPAQUE: Final = SEND_OPAQUE
PULL_IS_BINARY: Final = SEND_IS_BINARY

NO_PULL: Final = -1


class KnownPullHeaders(NamedTuple):
    """The headers that a walk recognises."""

    headers: Table
    pieces: Table
    data: Bytes
    """What the pieces point to."""
    numbers: Table
    """The number of the pull of each known header and queue, NO_PULL where it is not known."""


@kernel
def walk_pulls(
    data: Bytes, known: KnownPullHeaders, frame_size_max: int, pulls: Table
) -> tuple[int, int]:
    """Cut known pulls from the beginning of a read; return how many, and where they end.

    ``pulls`` gets a row for each.
    """
    headers, pieces, piece_data, numbers = known
    end = len(data)
    count = at = kind = 0
    while end - at >= PREFIX_SIZE and count < pulls.shape[0]:
        next_at = end_of_frame(data, at, end, frame_size_max)
        if next_at == NOT_WHOLE:
            break
        word = load_int(data, at + LENGTH_SIZE)
        is_binary = word >> TYPE_SHIFT == 1
        header_at = at + PREFIX_SIZE
        header = (header_at, header_at + (word & HEADER_SIZE_MASK), is_binary)
        kind = find_kind(data, header, kind, headers, pieces, piece_data, pulls, count)
        if kind == NO_KIND:
            break
        queue_id = pulls[count, SEND_TARGET]
        number = numbers[kind, queue_id] if queue_id < numbers.shape[1] else NO_PULL
        if number == NO_PULL:
            break
        pulls[count, PULL_NUMBER] = number
        pulls[count, PULL_AT] = at
        pulls[count, PULL_IS_BINARY] = is_binary
        count += 1
        at = next_at
    return count, at
