"""Messages of many reads copied by one call of machine code, where numba is installed.

The pulls that one turn of the loop brings are read together: what they have in common is looked up
once.  A read that is not plain is left to others: one that has to wait for the disk, goes over the
end of a file, or meets a record that denies its unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE
from flintmq.kernels.compiled import address_of
from flintmq.kernels.queue_reads import (
    READ_AT,
    READ_COLUMN_COUNT,
    READ_GIVEN_COUNT,
    READ_SIZE,
    copy_records,
)
from flintmq.store.read_cursor import CursorFiles, ReadCursor
from flintmq.store.reading.cold_reads import RECENT_UNIT_COUNT
from flintmq.store.reading.contiguous_read import CONTIGUOUS_COUNT_MAX
from flintmq.store.results import CopiedMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flintmq.store.config import StoreConfig
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.reading.cold_reads import ColdReads
    from flintmq.store.results import WantedMessages
    from flintmq.store.views.queue_table import QueueTable

COPIED_SIZE_MAX: Final = 64 << 10
"""Bytes of the messages of one read that are copied; of more, views cost less."""
ALL_COPIED_SIZE_MAX: Final = 2 << 20
"""Bytes of the messages of all reads that are copied together."""
KNOWN_ADDRESS_COUNT_MAX: Final = 4096
"""Files whose addresses are remembered; one more, and the table begins anew."""


class _Found(NamedTuple):
    """What a read will have brought, beside the bytes."""

    number: int
    """Which of the reads it is."""
    message_count: int
    offset: int
    least: int
    end: int
    cursor: ReadCursor | None


class _Gathered:
    """Reads that are copied by one call: where each has its units and its records."""

    __slots__ = (
        "_address_of",
        "_cold_reads",
        "_hot_from",
        "_log",
        "_log_file",
        "_log_part",
        "_now",
        "_queues",
        "_readable_end",
        "found",
        "held",
        "rows",
    )

    def __init__(
        self,
        queues: QueueTable,
        log: CommitLog,
        cold_reads: ColdReads,
        address_of: Callable[[MappedFile], int],
    ) -> None:
        self._queues = queues
        self._log = log
        self._cold_reads = cold_reads
        self._address_of = address_of
        self._readable_end = log.readable_end
        self._hot_from = cold_reads.hot_from
        self._now = cold_reads.now()
        self._log_file: MappedFile | None = None
        self._log_part = (0, 0, 0)
        self.rows: list[tuple[int, ...]] = []
        self.found: list[_Found] = []
        self.held: list[MappedFile] = []
        """Whoever gathers releases these."""

    def add_again(self, number: int, offset: int, count: int, cursor: ReadCursor) -> bool:
        """Add a read that goes on where a cursor has been; return False if it has to look anew."""
        files = cursor.files
        if files is None:
            return False
        queue, units, log_file = files.queue, files.units, files.log
        position = offset * UNIT_SIZE - units.first_offset
        unit_count = (units.readable - position) // UNIT_SIZE
        if position < 0 or unit_count <= 0 or offset * UNIT_SIZE < queue.min_logic_offset:
            return False
        # The unit behind the last message is where a read record by record stops.
        seen_count = count + 1 if count < unit_count else unit_count
        count = min(count, seen_count)
        last_at = position + (count - 1) * UNIT_SIZE
        end = queue.max_offset
        if end - offset > RECENT_UNIT_COUNT:
            ready = files.units_ready
            is_ready = ready.start <= position and last_at + UNIT_SIZE <= ready.end
            if not is_ready or self._now >= ready.until:
                return False
        if not units.hold():
            return False
        self.held.append(units)
        view = units.view
        (first, _, _) = UNIT.unpack_from(view, position)
        log_start = log_file.first_offset
        at = first - log_start
        if not 0 <= at < log_file.size:
            return False
        if first < self._hot_from:
            last, last_size, _ = UNIT.unpack_from(view, last_at)
            ready = files.log_ready
            if (
                not ready.start <= at <= last - log_start <= ready.end - last_size
                or self._now >= ready.until
            ):
                return False
        if log_file is not self._log_file and not self._hold_log(log_file, files.log_address):
            return False
        self.rows.append((files.units_address + position, count, seen_count, *self._log_part))
        # NamedTuple's own constructor takes twice the time of the tuple's.
        found = number, count, offset, queue.min_offset, end, cursor
        self.found.append(tuple.__new__(_Found, found))
        return True

    def add(self, number: int, wanted: WantedMessages, count: int) -> None:
        """Add a read that has to look where its messages are, if they are plain and in memory."""
        topic, queue_id, offset, _, cursor = wanted
        queue = self._queues.get(topic, queue_id)
        found = None if queue is None else queue.units_from(offset)
        if queue is None or found is None:
            return
        units, position, units_end = found
        self.held.append(units)
        seen_count = min(count + 1, (units_end - position) // UNIT_SIZE)
        count, end = min(count, seen_count), queue.max_offset
        cold_reads = self._cold_reads
        if not cold_reads.are_ready(units, position, count, behind_count=end - offset):
            return
        (first, _, _) = UNIT.unpack_from(units.view, position)
        log_file = self._log_file
        if log_file is None or not log_file.first_offset <= first < log_file.end_offset:
            log_file = self._log.files.find(first)
            if log_file is None or not self._hold_log(log_file, self._address_of(log_file)):
                return
        units_address, (log_address, _, log_start) = self._address_of(units), self._log_part
        self.rows.append((units_address + position, count, seen_count, *self._log_part))
        self.found.append(_Found(number, count, offset, queue.min_offset, end, cursor))
        if cursor is not None:
            cursor.files = CursorFiles(
                queue,
                units,
                units_address,
                cold_reads.known_around(units, position),
                log_file,
                log_address,
                cold_reads.known_around(log_file, first - log_start),
            )

    def _hold_log(self, file: MappedFile, address: int) -> bool:
        """Hold a log file, and find out how much of it can be read; return whether it is there."""
        if not file.hold():
            return False
        self.held.append(file)
        self._log_file, start = file, file.first_offset
        self._log_part = (address, max(min(file.readable, self._readable_end - start), 0), start)
        return True


class CompiledCopies:
    """Copies plain messages of many reads at once; loaded and ready."""

    def __init__(self) -> None:
        copied = bytearray(ALL_COPIED_SIZE_MAX)
        self._copied, self._copied_view = np.frombuffer(copied, np.uint8), memoryview(copied)
        self._reads = np.empty((0, READ_COLUMN_COUNT), np.int64)
        self._addresses: dict[MappedFile, int] = {}
        copy_records(self._reads, 0, 0, self._copied)

    def copy(
        self,
        wanted: Sequence[WantedMessages],
        *,
        queues: QueueTable,
        config: StoreConfig,
        log: CommitLog,
        hot_size: int,
        cold_reads: ColdReads,
    ) -> list[CopiedMessages | None]:
        """Return copies of what is wanted, good until the next call; None for what is not plain."""
        copies: list[CopiedMessages | None] = [None] * len(wanted)
        count_most = config.transfer_count_in_memory_max
        gathered = _Gathered(queues, log, cold_reads, self._address)
        try:
            for number, one in enumerate(wanted):
                _, _, offset, count_max, cursor = one
                count = count_max if count_max < count_most else count_most
                if not 0 < count <= CONTIGUOUS_COUNT_MAX:
                    continue
                if cursor is None or not gathered.add_again(number, offset, count, cursor):
                    gathered.add(number, one, count)
            places = self._copy_all(
                gathered.rows,
                lowest=max(0, log.readable_end - hot_size),
                size_max=min(config.transfer_bytes_in_memory_max, COPIED_SIZE_MAX),
            )
        finally:
            for file in gathered.held:
                file.release()
        view = self._copied_view
        for (number, count, offset, least, end, cursor), (at, size) in zip(
            gathered.found, places, strict=True
        ):
            if size >= 0:
                pieces = (view[at : at + size],)
                copies[number] = tuple.__new__(
                    CopiedMessages, (count, size, pieces, offset + count, least, end)
                )
            elif cursor is not None:
                cursor.files = None
        return copies

    def _copy_all(
        self, rows: list[tuple[int, ...]], *, lowest: int, size_max: int
    ) -> list[list[int]]:
        """Return where the copies of each read begin, and how many bytes they have."""
        if not rows:
            return []
        reads = self._reads
        if len(reads) != len(rows):
            reads = self._reads = np.empty((len(rows), READ_COLUMN_COUNT), np.int64)
        reads[:, :READ_GIVEN_COUNT] = rows
        copy_records(reads, lowest, size_max, self._copied)
        places: list[list[int]] = reads[:, READ_AT : READ_SIZE + 1].tolist()
        return places

    def _address(self, file: MappedFile) -> int:
        """Return where a file is mapped that somebody holds: it stays there until it is closed."""
        address = self._addresses.get(file)
        if address is None:
            if len(self._addresses) >= KNOWN_ADDRESS_COUNT_MAX:
                self._addresses.clear()
            address = self._addresses[file] = address_of(file.view)
        return address
