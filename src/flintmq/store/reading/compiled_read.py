"""Contiguous reads by machine code, where numba is installed: the second engine of its rules.

All that a pull needs is done here in one go.  What is not plain is left to the way in Python: a
read that has to wait for the disk, goes over the end of a file, or meets a record that denies its
unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE
from flintmq.kernels.queue_reads import find_pieces
from flintmq.store.reading.compiled_copies import CompiledCopies
from flintmq.store.reading.contiguous_read import CONTIGUOUS_COUNT_MAX, fitting_count
from flintmq.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.reading.cold_reads import ColdReads
    from flintmq.store.views.queue_table import StoredQueue

_BYTE: Final = np.dtype(np.uint8)


class CompiledRead:
    """Reads queues by machine code; loaded and ready."""

    def __init__(self) -> None:
        self._pieces = np.empty(1 + 2 * CONTIGUOUS_COUNT_MAX, np.int64)
        nothing = np.frombuffer(b"\0", _BYTE)
        find_pieces(nothing, 0, 0, nothing, 0, 0, 0, self._pieces)
        self.copies = CompiledCopies()

    def read(
        self,
        queue: StoredQueue,
        offset: int,
        count_max: int,
        *,
        config: StoreConfig,
        log: CommitLog,
        hot_size: int,
        cold_reads: ColdReads | None,
    ) -> GetResult | None:
        """Return messages of a queue from an offset on that it has; None: they are not plain.

        With ``cold_reads`` it is None too if the disk would have to be waited for.
        """
        count = min(count_max, config.transfer_count_in_memory_max)
        found = queue.units_from(offset) if 0 < count <= CONTIGUOUS_COUNT_MAX else None
        if found is None:
            return None
        file, position, units_end = found
        try:
            unit_count = (units_end - position) // UNIT_SIZE
            with file.view[position:units_end] as units:
                size_max = config.transfer_bytes_in_memory_max
                count = fitting_count(units, min(count, unit_count), size_max)
            # The unit behind the last message is where a read record by record stops.
            seen_count = min(count + 1, unit_count)
            least, end = queue.min_offset, queue.max_offset
            if cold_reads is not None and not cold_reads.are_ready(
                file, position, count, behind_count=end - offset
            ):
                return None
            result = GetResult(
                GetStatus.FOUND, next_begin_offset=offset, min_offset=least, max_offset=end
            )
            readable_end = log.readable_end
            # What lies below is on the disk by all appearance, so no slave is suggested here.
            limits = max(0, readable_end - hot_size), size_max
            (first, _, _) = UNIT.unpack_from(file.view, position)
            held = log.files.find(first)
            if held is None or not held.hold():
                return None
            result.hold(held)
            log_size = max(min(held.readable, readable_end - held.first_offset), 0)
            ranges = self._find(file, position, count, seen_count, held, log_size, limits)
            if ranges is None:
                result.release()
                return None
            view = held.view
            pieces = [view[ranges[at] : ranges[at + 1]] for at in range(1, len(ranges), 2)]
            result.take_pieces(pieces, count, ranges[0])
            return result
        finally:
            file.release()

    def _find(
        self,
        units: MappedFile,
        position: int,
        count: int,
        seen_count: int,
        log: MappedFile,
        log_size: int,
        limits: tuple[int, int],
    ) -> list[int] | None:
        """Return the size of all records, then where each piece of them begins and ends.

        None if they have to be read one by one.
        """
        pieces = self._pieces
        piece_count = find_pieces(
            # A kernel is compiled for each kind of array: one kind for all maps.
            np.frombuffer(units.view.toreadonly(), _BYTE, seen_count * UNIT_SIZE, position),
            count,
            seen_count,
            np.frombuffer(log.view.toreadonly(), _BYTE, log_size),
            log.first_offset,
            *limits,
            pieces,
        )
        if piece_count < 0:
            return None
        ranges: list[int] = pieces[: 1 + 2 * piece_count].tolist()
        return ranges
