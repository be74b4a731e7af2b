"""Telling true records from bytes that look like one.

A body may hold anything, also whole records with the offset of their place and a true checksum,
so what the bytes say proves nothing.  The consume queues do: only the broker writes them, and
the unit at the queue offset that a true record claims leads back to that record.  A copy in a
body claims a queue offset whose unit leads elsewhere.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from flintmq.format.errors import CorruptRecordError
from flintmq.format.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MESSAGE_MAGIC,
    PHYSICAL_OFFSET_AT,
    RECORD_SIZE_MIN,
    SYS_FLAG_AT,
    Blank,
    CheckedRecord,
    check_record,
)
from flintmq.format.sys_flag import host_sizes
from flintmq.offline.layout import StoreLayout, find_store
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.regions import Regions
from flintmq.spark.kernels.compiled import as_bytes
from flintmq.spark.kernels.records import skip_records

CHUNK_SIZE: Final = 1 << 20

_MAGIC_AT: Final = 4
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_SHORT: Final = struct.Struct(">h")
_MESSAGE: Final = _INT.pack(MESSAGE_MAGIC)
_BLANK: Final = _INT.pack(BLANK_MAGIC)


class QueueProof:
    """Asks the consume queues of a store about records; they are opened at the first question."""

    def __init__(self, root: Path, layout: StoreLayout | None = None) -> None:
        self._root = root
        self._layout = layout
        self._regions: Regions | None = None
        self._queues: QueueFiles | None = None

    def says(self, record: CheckedRecord) -> bool | None:
        """Whether the unit at a record's queue offset leads to it; None when there is no unit."""
        if record.queue_offset < 0:
            return None
        try:
            key = record.topic.decode(), record.queue_id
        except UnicodeDecodeError:
            return None
        unit = self._open().unit_at(key, record.queue_offset)
        if unit is None:
            return None
        return unit[:2] == (record.physical_offset, record.size)

    def _open(self) -> QueueFiles:
        if self._queues is None:
            layout = self._layout or find_store(self._root)
            self._regions = Regions(layout.files)
            self._queues = QueueFiles(layout, self._regions)
        return self._queues

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._regions is not None:
            self._regions.close()


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


def find_proven(
    view: memoryview,
    ranges: Iterable[tuple[int, int]],
    limit: int,
    base: int,
    proof: QueueProof,
) -> tuple[int | None, int | None]:
    """Return the first position in ``ranges`` with a record that its queue proves.

    The second value is the first position before it, or at all, with a record or blank that
    looks whole and that no unit contradicts.
    """
    maybe: int | None = None
    for position in candidates(view, ranges, limit, base):
        record = whole_record(view, position, limit, base)
        if record is None:
            continue
        said = None if isinstance(record, Blank) else proof.says(record)
        if said:
            return position, maybe
        if (
            said is None
            and maybe is None
            and whole_record(view, position, limit, base, check_crc=True) is not None
        ):
            maybe = position
    return None, maybe


def walked_starts(
    view: memoryview, start: int, stop: int, limit: int, base: int, *, step: int
) -> list[int]:
    """Follow the records from ``start`` and return the first one from each multiple of ``step`` on.

    The walk ends at ``stop``, or where there is no whole record; checksums are not looked at.
    """
    data = as_bytes(view)
    starts: list[int] = []
    position, stop = start, min(stop, limit)
    while True:
        following = (position // step + 1) * step
        position = skip_records(data, position, min(following, stop), limit, base)
        if not following <= position < stop:
            return starts
        if skip_records(data, position, position + 1, limit, base) == position:
            return starts
        starts.append(position)


def candidates(
    view: memoryview, ranges: Iterable[tuple[int, int]], limit: int, base: int
) -> Iterator[int]:
    """Yield each position in ``ranges`` where a record or the blank of the file could start.

    The time is linear in the bytes, however many places look right.
    """
    for begin, end in ranges:
        stop = min(end, limit)
        for at in range(begin, stop, CHUNK_SIZE):
            chunk_end = min(at + CHUNK_SIZE, stop)
            # The overlap finds what lies across two chunks.
            chunk = bytes(view[at : min(chunk_end + _MAGIC_AT + 3, limit)])
            for hit in _hits(chunk):
                position = at + hit - _MAGIC_AT
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
    if view[position + _MAGIC_AT : position + _MAGIC_AT + 4] == _BLANK:
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
    (magic,) = _INT.unpack_from(view, position + _MAGIC_AT)
    (offset,) = _LONG.unpack_from(view, position + PHYSICAL_OFFSET_AT)
    if magic != MESSAGE_MAGIC and offset != base + position:
        return []
    ends = [position + int(_INT.unpack_from(view, position)[0])]
    (sys_flag,) = _INT.unpack_from(view, position + SYS_FLAG_AT)
    body_length_at = position + 68 + sum(host_sizes(sys_flag))
    if body_length_at + 4 <= limit:
        (body_size,) = _INT.unpack_from(view, body_length_at)
        topic_at = body_length_at + 4 + max(body_size, 0)
        if topic_at < limit:
            properties_at = topic_at + 1 + view[topic_at]
            if properties_at + 2 <= limit:
                (length,) = _SHORT.unpack_from(view, properties_at)
                ends.append(properties_at + 2 + max(length, 0))
    return [end for end in ends if position < end <= limit]
