"""The walks of recovery: record by record at first, by machine code where there are many.

Loading machine code takes most of a second, so it has to be worth it: the first records of a
survey are judged one by one, and a log with few of them is done before anything is loaded.  Where
whole files follow, there are many, and none is judged in vain.

Kernels let other threads go on, so threads work ahead: on the next files of a survey, and on the
next tables while the views take the one before them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.store.log.record_walk import LogEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor

    from flintmq.format.delay_levels import DelayLevels
    from flintmq.format.stored.record import CheckedRecord
    from flintmq.kernels.derived_views import SplitViews
    from flintmq.kernels.records import Counted
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.record_walk import LogWalk
    from flintmq.store.recovery.bulk_records import BulkRecords, SoundRecords

logger = logging.getLogger(__name__)

STEP_SIZE: Final = 32 << 20
"""Bytes that are walked between two words about the progress."""

AHEAD_THREADS: Final = 2
"""A table is walked in one while the properties of the one before it are read in the other.
So many files of a survey are counted at once."""

SWITCH_INTERVAL_S: Final = 0.0002
"""How long a thread that comes back from a kernel or the disk waits for the interpreter at most:
each does so thousands of times, and Python's 5 ms would make them wait in turn."""

WHOLE_FILE_SIZE: Final = 64 << 20
"""A file of the log with others behind it that has so many bytes is worth loading machine code."""

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


class _Step(NamedTuple):
    """What a count of records depends on, besides the log."""

    start: int
    stop: int
    may_be_torn: bool


class _Ahead(NamedTuple):
    """A table with what the views hold of it, and the one behind it, which is being made."""

    table: SoundRecords
    following: Future[SoundRecords] | None


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
        self._threads: ThreadPoolExecutor | None = None
        """Its threads work ahead of the walk under way."""
        self._counted: dict[int, Future[dict[_Step, Counted]]] = {}
        """What the threads count in the files after the one that is walked, by where they start."""

    def counts(self, start: int, *, check_crc: bool) -> Iterator[GoodRecords]:
        """Yield how many good records there are from ``start`` on, piece by piece.

        The ``end`` of the walk tells where and why it ended.
        """
        if self._walk.has_whole_file(start, WHOLE_FILE_SIZE):
            self._singles_left = min(self._singles_left, 0)
            self._ready()  # So that the threads begin with the second file.
        count_file = functools.partial(self._count_file, check_crc=check_crc)
        with self._working_ahead():
            yield from self._walk.over_files(start, count_file)
            self._counted.clear()

    @contextlib.contextmanager
    def _working_ahead(self) -> Iterator[None]:
        # Few starts have so much to walk.
        from concurrent.futures import ThreadPoolExecutor

        with (
            short_switch_interval(),
            ThreadPoolExecutor(AHEAD_THREADS, "flintmq-walk-ahead") as self._threads,
        ):
            yield

    def _count_file(
        self, file: MappedFile, offset: int, *, check_crc: bool
    ) -> Generator[GoodRecords, None, LogEnd]:
        walk = self._walk
        known = self._known_counts(file, check_crc=check_crc)
        while offset < file.end_offset:
            bulk = self._ready()
            if bulk is not None:
                step = self._step(file, offset, walk.damaged_at)
                found = known.get(step) or _count(bulk, file, step, check_crc=check_crc)
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

    def _known_counts(self, file: MappedFile, *, check_crc: bool) -> dict[_Step, Counted]:
        """Return what a thread has counted in a file, and have the files behind it counted."""
        counted = self._counted.pop(file.first_offset, None)
        if self._bulk is not None and self._threads is not None:
            known_damage = tuple(self._walk.damaged_at)
            following = self._walk.file_behind(file)
            for _ in range(AHEAD_THREADS):
                if following is None:
                    break
                if following.first_offset not in self._counted:
                    self._counted[following.first_offset] = self._threads.submit(
                        self._count_ahead, self._bulk, following, known_damage, check_crc=check_crc
                    )
                following = self._walk.file_behind(following)
        return {} if counted is None else counted.result()

    def _count_ahead(
        self,
        bulk: BulkRecords,
        file: MappedFile,
        damaged_at: Collection[int],
        *,
        check_crc: bool,
    ) -> dict[_Step, Counted]:
        """Count the records of a whole file, up to the first that is special.

        The walk may come to other steps: by damage that was found meanwhile, or because it does not
        come by the start of the file.  Those it counts itself.
        """
        counts: dict[_Step, Counted] = {}
        offset = file.first_offset
        while offset < file.end_offset:
            step = self._step(file, offset, damaged_at)
            counts[step] = found = _count(bulk, file, step, check_crc=check_crc)
            if not found.record_count:
                break
            offset = file.first_offset + found.position
        return counts

    def _ready(self) -> BulkRecords | None:
        """Return machine code, loaded when enough records were judged without it."""
        if self._singles_left >= 0:
            if self._singles_left == 0:
                self._bulk = self._load()
                if self._bulk is not None:
                    logger.info("recovery goes on in machine code")
            self._singles_left -= 1
        return self._bulk

    def _step(self, file: MappedFile, offset: int, damaged_at: Collection[int]) -> _Step:
        """Return up to where kernels may go on, and whether there may be torn records there."""
        torn_from = self._walk.torn_from
        stop = min(file.end_offset, offset + STEP_SIZE)
        stop = min((known for known in damaged_at if offset <= known < stop), default=stop)
        if offset < torn_from < stop:
            return _Step(offset, torn_from, may_be_torn=False)
        return _Step(offset, stop, may_be_torn=offset >= torn_from)

    @property
    def is_bulk(self) -> bool:
        """Whether machine code is loaded; `pieces` needs it."""
        return self._bulk is not None

    def pieces(self, start: int, end: int) -> Iterator[SoundRecords | CheckedRecord]:
        """Yield the records between two offsets in tables, and alone where they are special."""
        with self._working_ahead():
            for piece in self._walk.over_files(start, functools.partial(self._tables, end=end)):
                if piece is None:
                    return
                yield piece

    def _tables(
        self, file: MappedFile, offset: int, *, end: int
    ) -> Generator[SoundRecords | CheckedRecord | None, None, LogEnd]:
        """Yield tables of one file, and None where ``end`` is reached."""
        assert self._bulk is not None
        assert self._threads is not None
        views = self._bulk.views()
        ahead: Future[_Ahead] | None = None
        while offset < file.end_offset:
            if offset >= end:
                yield None
            if ahead is None:
                walked = self._threads.submit(self._table, file, offset, end, views)
                ahead = self._threads.submit(self._derived, file, walked, end, views)
            table, following = ahead.result()
            ahead = None
            if following is not None:
                ahead = self._threads.submit(self._derived, file, following, end, views)
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

    def _table(self, file: MappedFile, offset: int, end: int, views: SplitViews) -> SoundRecords:
        """Return the next table of a file; in any thread."""
        assert self._bulk is not None
        stop = min(self._step(file, offset, self._walk.damaged_at).stop, end)
        return self._bulk.table(file, offset, stop, views)

    def _derived(
        self, file: MappedFile, walked: Future[SoundRecords], end: int, views: SplitViews
    ) -> _Ahead:
        """Find out what the views hold of a table, while the next one is made; in a thread."""
        assert self._threads is not None
        table, following = walked.result(), None
        if len(table) and table.end < min(end, file.end_offset):
            following = self._threads.submit(self._table, file, table.end, end, views)
        table.derive_ahead()
        return _Ahead(table, following)


@contextlib.contextmanager
def short_switch_interval() -> Iterator[None]:
    """Let threads give way to each other sooner; of several recoveries the first one sees to it."""
    before = sys.getswitchinterval()
    if before <= SWITCH_INTERVAL_S:
        yield
        return
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _count(bulk: BulkRecords, file: MappedFile, step: _Step, *, check_crc: bool) -> Counted:
    return bulk.count(file, step.start, step.stop, check_crc=check_crc, no_zeros=step.may_be_torn)
