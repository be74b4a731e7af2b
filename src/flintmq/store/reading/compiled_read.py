"""Contiguous reads by machine code, where numba is installed."""

from __future__ import annotations

import numpy as np

from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.kernels.queue_reads import find_pieces
from flintmq.store.reading.contiguous_read import CONTIGUOUS_COUNT_MAX


class CompiledRead:
    """Finds what the units of a queue lead to by machine code; loaded and ready."""

    def __init__(self) -> None:
        self._pieces = np.empty(1 + 2 * CONTIGUOUS_COUNT_MAX, np.int64)
        self.find(memoryview(b"\0"), 0, 0, memoryview(b"\0"), 1, log_start=0, lowest=0, size_max=0)

    def find(
        self,
        units: memoryview,
        count: int,
        seen_count: int,
        log: memoryview,
        log_size: int,
        *,
        log_start: int,
        lowest: int,
        size_max: int,
    ) -> list[int] | None:
        """Return the size of all records, then where each piece of them begins and ends.

        None if they have to be read one by one; see `find_pieces`.  ``log_size`` bytes of the log
        can be read.
        """
        assert count <= seen_count <= len(units) // UNIT_SIZE
        assert count <= CONTIGUOUS_COUNT_MAX
        assert log_size <= len(log)
        pieces = self._pieces
        piece_count = find_pieces(
            # A kernel is compiled for each kind of array, hence one kind for all maps.
            np.frombuffer(units.toreadonly(), np.uint8),
            count,
            seen_count,
            np.frombuffer(log.toreadonly(), np.uint8, log_size),
            log_start,
            lowest,
            size_max,
            pieces,
        )
        found: list[int] | None = None
        if piece_count >= 0:
            found = pieces[: 1 + 2 * piece_count].tolist()
        return found
