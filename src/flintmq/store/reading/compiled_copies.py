"""Messages of a read copied by machine code, where numba is installed.

A reader that goes on where it was before has its files at hand (`flintmq.store.read_cursor`), and
needs little more than the copy.  A read that is not plain is left to others: one that has to wait
for the disk, goes over the end of a file, or meets a record that denies its unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE
from flintmq.kernels.compiled import address_of
from flintmq.kernels.queue_reads import copy_records
from flintmq.store.read_cursor import NOTHING_KNOWN, CursorFiles
from flintmq.store.reading.cold_reads import RECENT_UNIT_COUNT
from flintmq.store.reading.contiguous_read import CONTIGUOUS_COUNT_MAX, fitting_count
from flintmq.store.results import CopiedMessages

if TYPE_CHECKING:
    from flintmq.kernels.compiled import Target
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.read_cursor import ReadCursor
    from flintmq.store.reading.cold_reads import ColdReads
    from flintmq.store.reading.copy_sources import CopySources
    from flintmq.store.views.queue_table import StoredQueue

KNOWN_ADDRESS_COUNT_MAX: Final = 4096
"""Files whose addresses are remembered; one more, and the table begins anew."""

_unit_at: Final = UNIT.unpack_from


class CompiledCopies:
    """Copies the plain messages of a read; loaded and ready."""

    def __init__(self) -> None:
        self._addresses: dict[MappedFile, int] = {}
        copy_records(0, 0, 0, 0, 0, 0, 0, 0, np.empty(0, np.uint8))

    def copy(
        self, cursor: ReadCursor, offset: int, count_max: int, target: Target, sources: CopySources
    ) -> CopiedMessages | None:
        """Copy messages to the beginning of ``target``; None if they are not plain."""
        queues, log, cold_reads, hot_size, count_most, size_max = sources
        count = count_max if count_max < count_most else count_most
        if not 0 < count <= CONTIGUOUS_COUNT_MAX:
            return None
        readable_end = log.readable_end
        lowest = readable_end - hot_size if readable_end > hot_size else 0
        limits = target, readable_end, lowest, size_max
        files = cursor.files
        if files is not None:
            copied = self._copy(files, offset, count, limits, cold_reads)
            if copied is not None:
                return copied
        queue = queues.get(cursor.topic, cursor.queue_id)
        files = None if queue is None else self._find(queue, offset, log, cold_reads)
        copied = None if files is None else self._copy(files, offset, count, limits, cold_reads)
        cursor.files = None if copied is None else files
        return copied

    def _copy(
        self,
        files: CursorFiles,
        offset: int,
        count: int,
        limits: tuple[Target, int, int, int],
        cold_reads: ColdReads,
    ) -> CopiedMessages | None:
        """Copy messages that some files have; None if they have them not, or they are not plain."""
        queue, units, log_file = files.queue, files.units, files.log
        target, readable_end, lowest, size_max = limits
        position = offset * UNIT_SIZE - units.first_offset
        unit_count = (units.readable - position) // UNIT_SIZE
        if position < 0 or unit_count <= 0 or offset * UNIT_SIZE < queue.min_logic_offset:
            return None
        end = queue.max_offset
        if not units.hold():
            return None
        try:
            # The unit behind the last message is where a read record by record stops.
            seen_count = count + 1 if count < unit_count else unit_count
            if end - offset > RECENT_UNIT_COUNT and not _has_units_ready(
                files, position, seen_count, cold_reads
            ):
                return None
            view, count = units.view, count if count < unit_count else unit_count
            first, _, _ = _unit_at(view, position)
            last, last_size, _ = _unit_at(view, position + (count - 1) * UNIT_SIZE)
            if last + last_size - first > size_max:
                count = fitting_count(view, count, size_max, position)
                last, last_size, _ = _unit_at(view, position + (count - 1) * UNIT_SIZE)
                seen_count = count + 1 if count < unit_count else count
            log_start = log_file.first_offset
            if not 0 <= first - log_start < log_file.size:
                return None
            if first < cold_reads.hot_below(readable_end) and not _has_log_ready(
                files, first, last + last_size, cold_reads
            ):
                return None
            if not log_file.hold():
                return None
            log_size = log_file.readable
            if log_size > readable_end - log_start:
                log_size = max(readable_end - log_start, 0)
            try:
                size = copy_records(
                    files.units_address + position,
                    count,
                    seen_count,
                    files.log_address,
                    log_size,
                    log_start,
                    lowest,
                    size_max,
                    target,
                )
            finally:
                log_file.release()
        finally:
            units.release()
        if size < 0:
            return None
        # NamedTuple's own constructor takes twice the time of the tuple's.
        return tuple.__new__(CopiedMessages, (count, size, offset + count, queue.min_offset, end))

    def _find(
        self, queue: StoredQueue, offset: int, log: CommitLog, cold_reads: ColdReads
    ) -> CursorFiles | None:
        """Return the files that have the message at an offset, if its unit is in memory."""
        found = queue.units_from(offset)
        if found is None:
            return None
        units, position, _ = found
        try:
            if queue.max_offset - offset > RECENT_UNIT_COUNT:
                ready = cold_reads.ready_around(units, position, position + UNIT_SIZE)
                if ready is NOTHING_KNOWN:
                    return None
            first, _, _ = _unit_at(units.view, position)
            log_file = log.files.find(first)
            if log_file is None or not log_file.hold():
                return None
            try:
                return CursorFiles(
                    queue, units, self._address(units), log_file, self._address(log_file)
                )
            finally:
                log_file.release()
        finally:
            units.release()

    def _address(self, file: MappedFile) -> int:
        """Return where a file is mapped that somebody holds: it stays there until it is closed."""
        address = self._addresses.get(file)
        if address is None:
            if len(self._addresses) >= KNOWN_ADDRESS_COUNT_MAX:
                self._addresses.clear()
            address = self._addresses[file] = address_of(file.view)
        return address


def _has_units_ready(files: CursorFiles, position: int, count: int, cold_reads: ColdReads) -> bool:
    """Return whether units at a position are in memory."""
    start, end, until = files.units_ready
    units_end = position + count * UNIT_SIZE
    if not start <= position < units_end <= end or cold_reads.now() >= until:
        files.units_ready = cold_reads.ready_around(files.units, position, units_end)
    return files.units_ready is not NOTHING_KNOWN


def _has_log_ready(files: CursorFiles, first: int, end: int, cold_reads: ColdReads) -> bool:
    """Return whether the log is in memory between two physical offsets."""
    ready_start, ready_end, until = files.log_ready
    log_start = files.log.first_offset
    first, end = first - log_start, end - log_start
    if not ready_start <= first < end <= ready_end or cold_reads.now() >= until:
        files.log_ready = cold_reads.ready_around(files.log, first, end)
    return files.log_ready is not NOTHING_KNOWN
