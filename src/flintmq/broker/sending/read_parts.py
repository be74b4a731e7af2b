"""Sends of known headers that cannot be stored together, mostly because a file is full.

Where a queue or the log goes on in its next file, a group of sends does not fit as a whole.  The
ordinary way takes ten times as long for each of them, and then all that a turn of the loop has
brought would go that way: a few milliseconds for everybody, some times a second under load.  So
machine code takes what fits, and only the send that does not goes the ordinary way: it brings the
next file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.command import decode_command
from flintmq.format.wire.frame import PREFIX_SIZE, FrameDecoder
from flintmq.format.wire.remoting_errors import RemoteProtocolError
from flintmq.remoting import ReceivedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from flintmq.remoting.request_table import RequestSource

    Read: TypeAlias = tuple[RequestSource, bytes]
    TakesReads: TypeAlias = Callable[[Sequence[Read]], Sequence[int] | None]

FRUITLESS_COUNT_MAX: Final = 2
"""So many sends that follow each other go the ordinary way, one that fills a file and one that
brings the next; if there are more it is no file that is missing."""


def take_in_parts(
    reads: Sequence[Read], take: TakesReads, dispatch: Callable[[], object]
) -> list[int]:
    """Handle sends at the beginnings of reads; return how many bytes of each those were.

    There is at least one read.  ``take`` does so with machine code: it returns nothing while it
    cannot be asked, and None if the sends cannot be stored together.  ``dispatch`` brings the
    queues as far as the log is.
    """
    if len(reads) == 1:
        ((connection, data),) = reads
        return [_take_read(connection, data, take, dispatch)]
    handled: list[int] = []
    middle = len(reads) // 2
    # A file ends in one of the reads: those before it fit together, and those behind it as well.
    for half in (reads[:middle], reads[middle:]):
        taken = take(half) if len(half) > 1 else None
        if taken is None:
            taken = take_in_parts(half, take, dispatch)
        handled += taken or [0] * len(half)
    return handled


def answers_by_read(
    reads: Sequence[Read], send_ends: Sequence[int], joined: memoryview, ends: Sequence[int]
) -> list[tuple[RequestSource, Sequence[bytes]]]:
    """Return the answers to sends, one piece for each connection that has sent any.

    ``send_ends`` tells how many sends there are up to the end of each read, ``ends`` where the
    answer to each of them ends.
    """
    row = begin = 0
    answers: list[tuple[RequestSource, Sequence[bytes]]] = []
    for (connection, _), row_end in zip(reads, send_ends, strict=True):
        if row_end > row:
            end = ends[row_end - 1]
            answers.append((connection, [bytes(joined[begin:end])]))
            row, begin = row_end, end
    return answers


def _take_read(
    connection: RequestSource, data: bytes, take: TakesReads, dispatch: Callable[[], object]
) -> int:
    done = fruitless_count = 0
    while True:
        before = done
        done, is_stuck = _take_what_fits(connection, data, done, take)
        fruitless_count = fruitless_count + 1 if done == before else 0
        if not is_stuck or fruitless_count > FRUITLESS_COUNT_MAX:
            return done
        size, may_go_on = _process_first(connection, data[done:])
        done += size
        if not may_go_on:
            return done
        # Groups are appended only where the queues are as far as the log.
        dispatch()


def _take_what_fits(
    connection: RequestSource, data: bytes, start: int, take: TakesReads
) -> tuple[int, bool]:
    """Take as many sends as fit; return up to where, and whether there the next one does not."""
    done, piece_size = start, len(data) - start
    handled = take(((connection, data[done:]),))
    if handled is not None:
        return done + sum(handled), False
    while (piece_size := piece_size // 2) > PREFIX_SIZE:
        handled = take(((connection, data[done : done + piece_size]),))
        if handled is None:
            continue
        if not sum(handled):
            break  # That is less than one send.
        # What is behind that does not fit as a whole either, else all would have.
        done += sum(handled)
    return done, True


def _process_first(connection: RequestSource, data: bytes) -> tuple[int, bool]:
    """Have the first send go the ordinary way; return its size, and whether others may follow.

    Behind a batch they may have to wait for it.
    """
    try:
        frame = next(FrameDecoder().frames(data), None)
        request = None if frame is None else ReceivedRequest.of(decode_command(frame))
    except RemoteProtocolError:
        return 0, False  # Whoever cuts the frames of the connection says what is wrong.
    if frame is None or request is None:
        return 0, False
    if request.flag or request.code != RequestCode.SEND_MESSAGE_V2:
        return 0, False
    is_open = process_alone(connection, request)
    return PREFIX_SIZE + len(frame.header) + len(frame.body), is_open


def process_alone(connection: RequestSource, request: ReceivedRequest) -> bool:
    """Leave a send to its processor; return False if the connection is dropped for it."""
    try:
        connection.process(request)
    except RemoteProtocolError as error:
        connection.drop(str(error))
        return False
    return True
