"""Cold reads: what a read needs of the disk, found out without waiting for it.

Reading a mapped page that is not in memory stops the whole process, since the interpreter's lock is
held meanwhile.  So whoever must not wait asks first.  What is cold is then loaded by another thread
with calls that leave the lock alone, and the read finds it in memory.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE
from flintmq.format.stored.consume_queue_ext import is_address
from flintmq.store.errors import StoreError
from flintmq.store.read_cursor import NOTHING_KNOWN, ResidentRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flintmq.store.config import StoreConfig
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.reading.message_filter import MessageFilter

logger = logging.getLogger(__name__)

RECENT_SIZE: Final = 64 << 20
"""Bytes at the end of the log that are taken to be in memory if this process has written them."""
RECENT_UNIT_COUNT: Final = 50_000
"""Units at the end of a queue that are taken to be in memory."""
SPAN_SIZE_MAX: Final = 2 << 20
"""Records that lie within so many bytes are asked about together."""
RECORD_SIZE_GUESS: Final = 16 << 10
"""Bytes that are loaded of a record whose size only the record tells."""
CHUNK_SIZE: Final = 1 << 20
"""Bytes of a file about which the kernel is asked together: who reads on wants the next ones."""
AHEAD_SIZE: Final = 1 << 20
"""Bytes that are loaded where a queue is read from end to end: its next pulls find them there.

A load by another thread costs more of the loop's time than a pull from memory.
"""
UNITS_AHEAD_SIZE: Final = 64 << 10
"""Bytes of a queue file that are loaded together."""
KNOWN_S: Final = 0.5
"""How long a chunk that was in memory is taken to be there still."""
KNOWN_COUNT_MAX: Final = 4096
"""Chunks that are remembered: each queue that is read from far behind has one, and the log more."""
TOGETHER_COUNT_MAX: Final = 4
"""Chunks side by side that are told of as one range."""


class ColdRange(NamedTuple):
    """A part of a file that is not in memory."""

    file: MappedFile
    start: int
    size: int


def load_ranges(ranges: Sequence[ColdRange]) -> None:
    """Read ranges from the disk; for a thread that may wait.

    A range that cannot be read is left to its reader, who may not need all of it.
    """
    for file, start, size in ranges:
        if not file.hold():
            continue
        try:
            file.region.load(start, size)
        except StoreError as error:
            logger.warning("cold pages could not be read: file=%s reason=%s", file.path, error)
        finally:
            file.release()


class ColdReads:
    """Knows which parts of log and queues are likely to be cold, and asks the kernel about them."""

    def __init__(self, config: StoreConfig, log: CommitLog) -> None:
        self._count_max = config.transfer_count_in_memory_max
        self._log = log
        self._written_from = log.readable_end
        """Where this process begins to write; what is below may be cold from the start."""
        self._known_until: dict[tuple[MappedFile, int], float] = {}
        """Chunks that were all in memory, by file and number, and until when that counts."""
        self.now = time.monotonic

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other limits from now on."""
        self._count_max = config.transfer_count_in_memory_max

    def of_pull(
        self,
        file: MappedFile,
        position: int,
        units_end: int,
        *,
        behind_count: int,
        count_max: int,
        message_filter: MessageFilter | None,
    ) -> list[ColdRange]:
        """Return what a pull of the units at a position of a queue file would wait for.

        ``behind_count`` is how many units the queue has from there on.  Where units are cold,
        nothing is known of their records yet: load them and ask again.
        """
        size = units_end - position
        if behind_count > RECENT_UNIT_COUNT and not self._is_resident(file, position, size):
            ahead_size = min(max(size, UNITS_AHEAD_SIZE), file.readable - position)
            return [ColdRange(file, position, ahead_size)]
        first, record_size, _ = UNIT.unpack_from(file.view, position)
        if first >= self.hot_from:
            return []
        count = min(count_max, self._count_max, size // UNIT_SIZE)
        if message_filter is None and count > 0:
            last, last_size, _ = UNIT.unpack_from(file.view, position + (count - 1) * UNIT_SIZE)
            if 0 <= last - first <= SPAN_SIZE_MAX:
                span = max(last - first + last_size, record_size)
                found = self._cold_range(first, span, load_size=AHEAD_SIZE)
                return [] if found is None else [found]
        with file.view[position:units_end] as units:
            return self._cold(self._wanted(units, count, message_filter))

    def are_ready(self, file: MappedFile, position: int, count: int, *, behind_count: int) -> bool:
        """Return whether a plain pull of ``count`` units need not wait; see `of_pull`."""
        size = count * UNIT_SIZE
        if behind_count > RECENT_UNIT_COUNT and not self._is_resident(file, position, size):
            return False
        view = file.view
        first, record_size, _ = UNIT.unpack_from(view, position)
        if first >= self.hot_from:
            return True
        last, last_size, _ = UNIT.unpack_from(view, position + size - UNIT_SIZE)
        if not 0 <= last - first <= SPAN_SIZE_MAX:
            return False  # Each record is asked about by itself.
        return self._cold_range(first, max(last - first + last_size, record_size)) is None

    @property
    def hot_from(self) -> int:
        """From where on the log is taken to be in memory."""
        return self.hot_below(self._log.readable_end)

    def hot_below(self, readable_end: int) -> int:
        """Return the same where the log can be read up to an offset."""
        recent = readable_end - RECENT_SIZE
        return recent if recent > self._written_from else self._written_from

    def ready_around(self, file: MappedFile, start: int, end: int) -> ResidentRange:
        """Return what is known to be in memory around a part of a file; nothing if the part is not.

        The chunks behind that of the start belong to it if they are known too: messages of a queue
        may lie in several of them.
        """
        if not 0 < end - start <= SPAN_SIZE_MAX or not self._is_resident(file, start, end - start):
            return NOTHING_KNOWN
        number, now = start // CHUNK_SIZE, self.now()
        until = self._known_until.get((file, number), 0.0)
        stop = number + 1
        while stop < number + TOGETHER_COUNT_MAX:
            behind = self._known_until.get((file, stop), 0.0)
            if now >= behind:
                break
            until, stop = min(until, behind), stop + 1
        return ResidentRange(number * CHUNK_SIZE, stop * CHUNK_SIZE, until)

    def of_records(self, physical_offsets: Iterable[int]) -> list[ColdRange]:
        """Return what a read of the records at some physical offsets would wait for."""
        return self._cold((offset, RECORD_SIZE_GUESS) for offset in physical_offsets)

    def _wanted(
        self, units: memoryview, count: int, message_filter: MessageFilter | None
    ) -> Iterator[tuple[int, int]]:
        """Yield where the first records are that a filter may want, and how large."""
        for physical_offset, size, tags_code in UNIT.iter_unpack(units):
            if count <= 0:
                return
            # What the queue's extension says is not looked at: the record counts as wanted.
            known_code = None if is_address(tags_code) else tags_code
            if message_filter is None or message_filter.matches_unit(known_code, None):
                count -= 1
                yield physical_offset, size

    def _cold(self, ranges: Iterable[tuple[int, int]]) -> list[ColdRange]:
        """Return those ranges of the log that are not in memory."""
        found = (self._cold_range(physical_offset, size) for physical_offset, size in ranges)
        return [one for one in found if one is not None]

    def _cold_range(
        self, physical_offset: int, size: int, *, load_size: int = 0
    ) -> ColdRange | None:
        """Return a range of the log, of ``load_size`` at least, if it is not in memory."""
        file = self._log.files.find(physical_offset)
        if file is None or size <= 0:
            return None
        start = physical_offset - file.first_offset
        size = min(size, file.readable - start)
        if size <= 0 or self._is_resident(file, start, size):
            return None
        return ColdRange(file, start, min(max(size, load_size), file.readable - start))

    def _is_resident(self, file: MappedFile, start: int, size: int) -> bool:
        now = self.now()
        for number in range(start // CHUNK_SIZE, (start + size - 1) // CHUNK_SIZE + 1):
            is_known = now < self._known_until.get((file, number), 0.0)
            if not is_known and not self._is_chunk_resident(file, number, now):
                return file.region.is_resident(start, size)
        return True

    def _is_chunk_resident(self, file: MappedFile, number: int, now: float) -> bool:
        """Ask whether all of a chunk is in memory, and remember it if it is."""
        start = number * CHUNK_SIZE
        if not file.region.is_resident(start, min(CHUNK_SIZE, file.readable - start)):
            return False
        if len(self._known_until) >= KNOWN_COUNT_MAX:
            self._known_until.clear()
        self._known_until[file, number] = now + KNOWN_S
        return True
