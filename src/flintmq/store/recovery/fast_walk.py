"""The walks of recovery: record by record at first, by machine code where there are many.

Loading machine code takes most of a second, so it has to be worth it: the first records of a
survey are judged one by one, and a log with few of them is done before anything is loaded.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.store.log.record_walk import LogEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.format.stored.record import CheckedRecord
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.record_walk import LogWalk
    from flintmq.store.recovery.bulk_records import BulkRecords, SoundRecords

logger = logging.getLogger(__name__)

STEP_SIZE: Final = 32 << 20
"""Bytes that are walked between two words about the progress."""


COMPILE_SIZE_MIN: Final = 1 << 30
"""To compile takes as long as it takes to recover so many bytes without."""

BULK_PROGRAM: Final = (
    "from flintmq.format.delay_levels import DelayLevels; "
    "from flintmq.store.recovery.bulk_records import ready_records; "
    "ready_records(delay_levels=DelayLevels.parse('1s'), multi=False, lmq=False)"
)
"""Loads all machine code of recovery."""


class GoodRecords(NamedTuple):
    """Some good records of the log, and where they end."""

    record_count: int
    end_offset: int


def load_bulk_records(
    *, delay_levels: DelayLevels, multi: bool, lmq: bool, remaining_size: int
) -> BulkRecords | None:
    """Load machine code; return None where it is not installed, or not worth compiling.

    Where it never was compiled on this machine, ``remaining_size`` bytes of the log have to be
    worth that.
    """
    # Both are needed by few starts, and take long to load.
    from flintmq.kernels.compile_ahead import is_compiled

    try:
        if remaining_size < COMPILE_SIZE_MIN and not is_compiled(BULK_PROGRAM):
            return None
        from flintmq.store.recovery.bulk_records import ready_records
    except ImportError:
        return None
    return ready_records(delay_levels=delay_levels, multi=multi, lmq=lmq)


class FastWalk:
    """Walks a log for recovery; it finds what `LogWalk` finds, in larger pieces."""

    def __init__(
        self,
        walk: LogWalk,
        load: Callable[[], BulkRecords | None],
        *,
        single_records_max: int,
    ) -> None:
        """Walk as ``walk`` does; ``load`` is asked once, when there are many records."""
        self._walk = walk
        self._load = load
        self._singles_left = single_records_max
        self._bulk: BulkRecords | None = None

    def counts(self, start: int, *, check_crc: bool) -> Iterator[GoodRecords]:
        """Yield how many good records there are from ``start`` on, piece by piece.

        The ``end`` of the walk tells where and why it ended.
        """
        count_file = functools.partial(self._count_file, check_crc=check_crc)
        return self._walk.over_files(start, count_file)

    def _count_file(
        self, file: MappedFile, offset: int, *, check_crc: bool
    ) -> Generator[GoodRecords, None, LogEnd]:
        walk = self._walk
        while offset < file.end_offset:
            bulk = self._ready()
            if bulk is not None:
                stop, may_be_torn = self._stop(file, offset)
                found = bulk.count(file, offset, stop, check_crc=check_crc, no_zeros=may_be_torn)
                if found.record_count:
                    walk.last_time = walk.store_time_of(file.first_offset + found.last_at)
                    offset = file.first_offset + found.position
                    yield GoodRecords(found.record_count, offset)
                    continue
            record = walk.judge(file, offset, check_crc=check_crc)
            if isinstance(record, LogEnd):
                return record
            walk.last_time = record.store_timestamp
            offset += record.size
            yield GoodRecords(1, offset)
        return LogEnd(offset, "")

    def _ready(self) -> BulkRecords | None:
        """Return machine code, loaded when enough records were judged without it."""
        if self._singles_left >= 0:
            if self._singles_left == 0:
                self._bulk = self._load()
                if self._bulk is not None:
                    logger.info("recovery goes on in machine code")
            self._singles_left -= 1
        return self._bulk

    def _stop(self, file: MappedFile, offset: int) -> tuple[int, bool]:
        """Return up to where kernels may go on, and whether there may be torn records there."""
        walk = self._walk
        stop = min(file.end_offset, offset + STEP_SIZE)
        stop = min((known for known in walk.damaged_at if offset <= known < stop), default=stop)
        if offset < walk.torn_from < stop:
            return walk.torn_from, False
        return stop, offset >= walk.torn_from

    @property
    def is_bulk(self) -> bool:
        """Whether machine code is loaded; `pieces` needs it."""
        return self._bulk is not None

    def pieces(self, start: int, end: int) -> Iterator[SoundRecords | CheckedRecord]:
        """Yield the records between two offsets in tables, and alone where they are special."""
        for piece in self._walk.over_files(start, functools.partial(self._tables, end=end)):
            if piece is None:
                return
            yield piece

    def _tables(
        self, file: MappedFile, offset: int, *, end: int
    ) -> Generator[SoundRecords | CheckedRecord | None, None, LogEnd]:
        """Yield tables of one file, and None where ``end`` is reached."""
        assert self._bulk is not None
        views = self._bulk.views()
        while offset < file.end_offset:
            if offset >= end:
                yield None
            stop = min(self._stop(file, offset)[0], end)
            table = self._bulk.table(file, offset, stop, views)
            if len(table):
                offset = table.end
                yield table
                continue
            record = self._walk.judge(file, offset, check_crc=False)
            if isinstance(record, LogEnd):
                return record
            offset += record.size
            yield record
        return LogEnd(offset, "")
