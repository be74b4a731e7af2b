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
from flintmq.store.reading.contiguous_read import CONTIGUOUS_COUNT_MAX
from flintmq.store.results import CopiedMessages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.store.config import StoreConfig
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.reading.cold_reads import ColdReads
    from flintmq.store.results import WantedMessages
    from flintmq.store.views.queue_table import QueueTable

COPIED_SIZE_MAX: Final = 256 << 10
"""Bytes of the messages of one read that are copied: what RocketMQ's settings allow by default."""
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
        readable_end, count_most = log.readable_end, config.transfer_count_in_memory_max
        rows: list[tuple[int, ...]] = []
        found: list[_Found] = []
        held: list[MappedFile] = []
        log_file: MappedFile | None = None
        log_part = (0, 0, 0)
        try:
            for number, (topic, queue_id, offset, count_max) in enumerate(wanted):
                queue = queues.get(topic, queue_id)
                count = count_max if count_max < count_most else count_most
                if queue is None or not 0 < count <= CONTIGUOUS_COUNT_MAX:
                    continue
                units = queue.units_from(offset)
                if units is None:
                    continue
                file, position, units_end = units
                held.append(file)
                # The unit behind the last message is where a read record by record stops.
                seen_count = min(count + 1, (units_end - position) // UNIT_SIZE)
                count, end = min(count, seen_count), queue.max_offset
                if not cold_reads.are_ready(file, position, count, behind_count=end - offset):
                    continue
                (first, _, _) = UNIT.unpack_from(file.view, position)
                if log_file is None or not log_file.first_offset <= first < log_file.end_offset:
                    log_file = log.files.find(first)
                    if log_file is None or not log_file.hold():
                        log_file = None
                        continue
                    held.append(log_file)
                    log_part = self._log_part(log_file, readable_end)
                rows.append((self._address(file) + position, count, seen_count, *log_part))
                # NamedTuple's own constructor takes twice the time of the tuple's.
                found.append(tuple.__new__(_Found, (number, count, offset, queue.min_offset, end)))
            places = self._copy_all(
                rows,
                lowest=max(0, readable_end - hot_size),
                size_max=min(config.transfer_bytes_in_memory_max, COPIED_SIZE_MAX),
            )
        finally:
            for file in held:
                file.release()
        view = self._copied_view
        for (number, count, offset, least, end), (at, size) in zip(found, places, strict=True):
            if size >= 0:
                pieces = (view[at : at + size],)
                copies[number] = tuple.__new__(
                    CopiedMessages, (count, size, pieces, offset + count, least, end)
                )
        return copies

    def _log_part(self, file: MappedFile, readable_end: int) -> tuple[int, int, int]:
        """Return where a log file is in memory, how much of it can be read, and its offset."""
        start = file.first_offset
        return self._address(file), max(min(file.readable, readable_end - start), 0), start

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
