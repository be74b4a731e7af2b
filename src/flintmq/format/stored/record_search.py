"""Finding the next record behind damage, and what is not zero behind the end of a log.

A body may hold anything, also whole records with the offset of their place and a true checksum,
so what the bytes say proves nothing.  A ``RecordProof`` knows more: the consume queues.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from flintmq.format.errors import CorruptRecordError
from flintmq.format.stored.record import Blank, CheckedRecord, check_record
from flintmq.format.stored.record_layout import (
    BLANK_MAGIC,
    BLANK_SIZE,
    BODY_LENGTH_TO_BODY,
    HEADERS,
    MAGIC_AT,
    MESSAGE_MAGIC,
    PHYSICAL_OFFSET_AT,
    PROPERTIES_LENGTH,
    PROPERTIES_LENGTH_SIZE,
    RECORD_SIZE_MIN,
    SYS_FLAG_AT,
    TOPIC_LENGTH_SIZE,
)
from flintmq.format.sys_flag import HOSTS_MASK

CHUNK_SIZE: Final = 1 << 20

PROOF_SIZE: Final = 64 << 20
"""So far behind bytes that look like a record a proven one is searched for.  Bytes that only look
so are part of a body, which ends before; and many damaged ranges cost no more than that each."""

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_MESSAGE: Final = _INT.pack(MESSAGE_MAGIC)
_BLANK: Final = _INT.pack(BLANK_MAGIC)

Ranges = Iterable[tuple[int, int]]
"""Where the bytes of a file may differ from zero; the rest are holes."""


class RecordProof(Protocol):
    """Tells true records from bytes that look like one."""

    def says(self, record: CheckedRecord) -> bool | None:
        """Whether the unit at a record's queue offset leads to it; None when there is no unit."""
        ...


def whole_record(
    view: memoryview, position: int, limit: int, base: int, *, check_crc: bool = False
) -> CheckedRecord | Blank | None:
    """Return the record or blank at ``position`` if it is whole."""
    try:
        return check_record(
            view, position, limit, check_crc=check_crc, expected_offset=base + position
        )
    except CorruptRecordError:
        return None


def record_behind(
    view: memoryview,
    position: int,
    ranges: Ranges,
    proof: RecordProof,
    *,
    stop: int,
    limit: int,
    base: int,
    doubts_queues: bool = False,
) -> int | None:
    """Return where records go on behind damage at ``position``, at ``stop`` at the latest.

    ``base`` is the physical offset of ``view``, ``limit`` where the file ends.  What a unit
    contradicts is no record, unless ``doubts_queues`` and none is proven: whoever judges the
    queues themselves must not lose the rest of a file to them.
    """
    for end in claimed_ends(view, position, limit, base):
        if end == stop < limit:
            return end
        record = whole_record(view, end, limit, base) if end < stop else None
        if isinstance(record, Blank) or (record and proof.says(record) is not False):
            return end
    proven, maybe, contradicted = find_proven(view, ranges, limit, base, proof)
    if proven is not None:
        return proven
    if not doubts_queues:
        return maybe
    return min((found for found in (maybe, contradicted) if found is not None), default=None)


def find_proven(
    view: memoryview, ranges: Ranges, limit: int, base: int, proof: RecordProof
) -> tuple[int | None, int | None, int | None]:
    """Return the first position in ``ranges`` with a record that its queue proves.

    The other two are the first positions before it, or at all, with a record or blank that looks
    whole: one that no unit speaks of, and one that a unit contradicts.
    """
    maybe: int | None = None
    contradicted: int | None = None
    for position in candidates(view, ranges, limit, base):
        seen = min(other for other in (maybe, contradicted, position) if other is not None)
        if position - seen > PROOF_SIZE:
            break
        record = whole_record(view, position, limit, base)
        if record is None:
            continue
        said = None if isinstance(record, Blank) else proof.says(record)
        if said:
            return position, maybe, contradicted
        if (maybe if said is None else contradicted) is not None:
            continue
        if whole_record(view, position, limit, base, check_crc=True) is not None:
            if said is None:
                maybe = position
            else:
                contradicted = position
    return None, maybe, contradicted


def candidates(view: memoryview, ranges: Ranges, limit: int, base: int) -> Iterator[int]:
    """Yield each position in ``ranges`` where a record or the blank of the file could start.

    The time is linear in the bytes, however many positions look right.
    """
    for begin, end in ranges:
        stop = min(end, limit)
        for at in range(begin, stop, CHUNK_SIZE):
            chunk_end = min(at + CHUNK_SIZE, stop)
            # The overlap finds what lies across two chunks.
            chunk = bytes(view[at : min(chunk_end + MAGIC_AT + 3, limit)])
            for hit in _hits(chunk):
                position = at + hit - MAGIC_AT
                if at <= position < chunk_end and _claims(view, position, limit, base):
                    yield position


def _hits(chunk: bytes) -> Iterator[int]:
    """Yield where a magic code stands, in order."""
    message, blank = chunk.find(_MESSAGE), chunk.find(_BLANK)
    while message >= 0 or blank >= 0:
        if blank < 0 or 0 <= message < blank:
            yield message
            message = chunk.find(_MESSAGE, message + 1)
        else:
            yield blank
            blank = chunk.find(_BLANK, blank + 1)


def _claims(view: memoryview, position: int, limit: int, base: int) -> bool:
    left = limit - position
    if view[position + MAGIC_AT : position + MAGIC_AT + len(_BLANK)] == _BLANK:
        return left >= BLANK_SIZE and bool(_INT.unpack_from(view, position) == (left,))
    if left < RECORD_SIZE_MIN:
        return False
    return bool(_LONG.unpack_from(view, position + PHYSICAL_OFFSET_AT) == (base + position,))


def claimed_ends(view: memoryview, position: int, limit: int, base: int) -> list[int]:
    """Return where a damaged record may end: by its size, and by the lengths of its parts.

    A fault in one of them leaves the other.  Nothing is returned where no record began.
    """
    if limit - position < RECORD_SIZE_MIN:
        return []
    (magic,) = _INT.unpack_from(view, position + MAGIC_AT)
    (offset,) = _LONG.unpack_from(view, position + PHYSICAL_OFFSET_AT)
    if magic != MESSAGE_MAGIC and offset != base + position:
        return []
    ends = [position + int(_INT.unpack_from(view, position)[0])]
    (sys_flag,) = _INT.unpack_from(view, position + SYS_FLAG_AT)
    body_at = position + HEADERS[sys_flag & HOSTS_MASK].size
    if body_at <= limit:
        (body_size,) = _INT.unpack_from(view, body_at - BODY_LENGTH_TO_BODY)
        topic_at = body_at + max(body_size, 0)
        if topic_at < limit:
            length_at = topic_at + TOPIC_LENGTH_SIZE + view[topic_at]
            properties_at = length_at + PROPERTIES_LENGTH_SIZE
            if properties_at <= limit:
                (length,) = PROPERTIES_LENGTH.unpack_from(view, length_at)
                ends.append(properties_at + max(length, 0))
    return [end for end in ends if position < end <= limit]


def written_bounds(view: memoryview, ranges: Ranges, limit: int) -> tuple[int, int] | None:
    """Return where the first byte in ``ranges`` that is not zero stands, and the end of the last.

    None when all are zero.
    """
    first: int | None = None
    last = 0
    zeros = bytes(CHUNK_SIZE)
    for begin, end in ranges:
        for at in range(begin, min(end, limit), CHUNK_SIZE):
            chunk = bytes(view[at : min(at + CHUNK_SIZE, end, limit)])
            if chunk == zeros or not chunk.strip(b"\0"):
                continue
            if first is None:
                first = at + len(chunk) - len(chunk.lstrip(b"\0"))
            last = at + len(chunk.rstrip(b"\0"))
    return None if first is None else (first, last)
