"""Consume queues: for each (topic, queue id) the units that lead from a queue offset to the log.

Logical offset n lives at byte 20·n of the queue's address space, which is cut into files named
by their first byte.  Queues are derived from the commit log: a file of one that is damaged is
thrown away and dispatched again, never repaired.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.format.stored.consume_queue import PRE_BLANK, PRE_BLANK_SIZE, UNIT, UNIT_SIZE
from flintmq.store.errors import CorruptStoreError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flintmq.store.clock import Clock
    from flintmq.store.files.interface import Files
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.files.unsynced import Unsynced
    from flintmq.store.views.space_ahead import SpaceAhead

from flintmq.store.files.mapped_file_queue import MappedFileQueue

logger = logging.getLogger(__name__)

RESERVE_STEP: Final = 64 * 1024
"""Disk space is reserved in steps: a queue of a few units must not take six megabytes."""

AHEAD_SIZE: Final = 2 * RESERVE_STEP
"""What is made ready behind a step when a step has been used up."""

WRITTEN_SIZE_MIN: Final = 16 * 1024
"""So many bytes are written by a system call: the first write to a mapped page costs more."""


class ConsumeQueue:
    """The units of one queue.  The store's owner appends and cuts; any thread may read."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        *,
        file_size: int,
        files: Files,
        clock: Clock,
        ahead: SpaceAhead | None = None,
    ) -> None:
        assert file_size % UNIT_SIZE == 0
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(directory, file_size, files=files, clock=clock, reserve=False)
        self.max_physical_offset = -1
        self.min_logic_offset = 0
        self._tail: MappedFile | None = None
        self._reserved = 0
        self._ahead = ahead
        self._is_growing = False
        """Whether a step of the last file has been used up."""

    # -- appending ---------------------------------------------------------------------------

    def append(
        self, physical_offset: int, record_size: int, tags_code: int, queue_offset: int
    ) -> None:
        """Write unit ``queue_offset``; one that is already there is left alone.

        Offset 0 for a record behind all others means that the topic was deleted and made anew.
        Then the queue begins anew too: what it holds belongs to the deleted topic.

        Raises:
            CorruptStoreError: units before this one are missing.
            DiskFullError: no space could be reserved; nothing was written.
        """
        self._begin_anew_before(physical_offset, queue_offset)
        tail = self._tail
        if tail is None or tail.wrote == tail.size:
            if queue_offset < self.max_offset:
                return
            tail = self._open_tail(queue_offset)
        position = queue_offset * UNIT_SIZE - tail.first_offset
        if position != tail.wrote:
            if position < tail.wrote:
                return
            raise CorruptStoreError(
                tail.path,
                tail.first_offset + tail.wrote,
                f"queue {self.topic}/{self.queue_id} ends at {self.max_offset}, "
                f"unit {queue_offset} does not follow",
            )
        if position + UNIT_SIZE > self._reserved:
            self._reserve(tail, position)
        UNIT.pack_into(tail.view, position, physical_offset, record_size, tags_code)
        tail.wrote = position + UNIT_SIZE
        self.max_physical_offset = physical_offset + record_size

    def _begin_anew_before(self, physical_offset: int, queue_offset: int) -> None:
        """Drop all units if the record is the first one of a topic that was made anew."""
        if queue_offset != 0 or not 0 < self.max_physical_offset <= physical_offset:
            return
        logger.warning(
            "queue begins anew: topic=%s queue=%d dropped_units=%d",
            self.topic,
            self.queue_id,
            self.max_offset - self.min_offset,
        )
        self.destroy()

    def has_room(self, queue_offset: int, count: int) -> bool:
        """Whether ``count`` units from ``queue_offset`` on only have to be written down.

        That is so when they are the next ones and their space is reserved already.
        """
        tail = self._tail
        if tail is None:
            return False
        position = queue_offset * UNIT_SIZE - tail.first_offset
        return position == tail.wrote and position + count * UNIT_SIZE <= self._reserved

    def make_room(self, queue_offset: int, count: int) -> bool:
        """Do what `has_room` asks for, if it is only space that has to be reserved.

        Raises:
            DiskFullError: there is none; nothing was written.
        """
        tail = self._tail
        if tail is None or self.has_room(queue_offset, count):
            return tail is not None
        position = queue_offset * UNIT_SIZE - tail.first_offset
        if position == tail.wrote and position + count * UNIT_SIZE <= tail.size:
            self._reserve(tail, position, count * UNIT_SIZE)
        return self.has_room(queue_offset, count)

    def append_units(self, units: bytes | memoryview) -> None:
        """Write several units at once, for which `has_room` has said yes."""
        tail = self._tail
        assert tail is not None
        start = tail.wrote
        end = start + len(units)
        tail.view[start:end] = units
        tail.wrote = end
        physical_offset, size, _ = UNIT.unpack_from(units, len(units) - UNIT_SIZE)
        self.max_physical_offset = physical_offset + size

    def _write_units(self, tail: MappedFile, units: memoryview) -> None:
        """Do what `append_units` does by a system call; room is made, and no pages are needed."""
        start = tail.wrote
        end = start + len(units)
        if end > self._reserved:
            tail.region.reserve(start, end)
            self._reserved = end
            self._is_growing = True
        try:
            tail.region.write(start, units)
        except StoreError:
            tail.view[start:end] = bytes(len(units))
            raise
        tail.wrote = end
        physical_offset, size, _ = UNIT.unpack_from(units, len(units) - UNIT_SIZE)
        self.max_physical_offset = physical_offset + size

    def append_many(self, queue_offset: int, units: memoryview) -> int:
        """Write the next units, whose first is ``queue_offset``; return how many were written.

        That is at least one, and as many as the last file takes.  What `append` says of single
        units holds for these.
        """
        tail = self._tail
        if tail is not None and queue_offset:
            size = min(len(units), tail.size - tail.wrote)
            if size >= WRITTEN_SIZE_MIN and queue_offset == self.max_offset:
                self._write_units(tail, units[:size])
                return size // UNIT_SIZE
            if size and self.make_room(queue_offset, size // UNIT_SIZE):
                self.append_units(units[:size])
                return size // UNIT_SIZE
        physical_offset, record_size, tags_code = UNIT.unpack_from(units)
        self.append(physical_offset, record_size, tags_code, queue_offset)
        return 1

    def _open_tail(self, queue_offset: int) -> MappedFile:
        """Make the next file; a queue that begins in mid-file gets pre-blank units before it."""
        start = queue_offset * UNIT_SIZE
        tail = self.files.last_for_append(start)
        is_first = tail.wrote == 0 and tail is self.files.first
        if is_first and start > tail.first_offset:
            blank_count = (start - tail.first_offset) // UNIT_SIZE
            tail.region.reserve(0, start - tail.first_offset)
            tail.view[: blank_count * UNIT_SIZE] = PRE_BLANK * blank_count
            tail.wrote = start - tail.first_offset
        if is_first:
            self.min_logic_offset = start
        # A queue that has filled a file goes on growing.
        self._is_growing = not is_first
        self._tail = tail
        self._reserved = tail.wrote
        return tail

    def fill_blank(self, queue_offset: int) -> None:
        """Write pre-blank units up to ``queue_offset``, for records that are lost."""
        for offset in range(self.max_offset, queue_offset):
            self.append(0, PRE_BLANK_SIZE, 0, offset)

    def _reserve(self, tail: MappedFile, position: int, size: int = UNIT_SIZE) -> None:
        """Reserve a step of space, or as much as is needed at once if that is more."""
        end = min(tail.size, position + max(RESERVE_STEP, size))
        tail.region.reserve(position, end)
        self._reserved = end
        if self._is_growing and self._ahead is not None:
            self._ahead.ask(tail, end, end + AHEAD_SIZE)
        self._is_growing = True

    # -- bounds ------------------------------------------------------------------------------

    @property
    def max_offset(self) -> int:
        """The queue offset after the last unit."""
        return self.files.max_offset // UNIT_SIZE

    @property
    def min_offset(self) -> int:
        """The queue offset of the oldest unit whose record is kept."""
        return self.min_logic_offset // UNIT_SIZE

    @property
    def is_empty(self) -> bool:
        """Whether the queue has no file at all."""
        return self.files.last is None

    @property
    def has_units(self) -> bool:
        """Whether there was any unit; an offset above zero tells of one that is expired."""
        return self.files.max_offset > 0

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the first queue offset of the file after the one that holds ``queue_offset``."""
        units = self.files.file_size // UNIT_SIZE
        return queue_offset + units - queue_offset % units

    def correct_min_offset(self, log_min_offset: int) -> None:
        """Move the min offset to the first unit whose record is still kept.

        Units ascend by physical offset, so a binary search finds it; blank units lead nowhere
        and never count, so the last unit before them is asked instead.  RocketMQ looks into the
        first file only, which may be one whose every record is gone and that is not deleted yet.
        """
        files = self.files.snapshot()
        for file in files:
            low, high = 0, file.wrote // UNIT_SIZE
            while low < high:
                middle = (low + high) // 2
                at = _last_written(file.view, low, middle + 1)
                if at is None or UNIT.unpack_from(file.view, at * UNIT_SIZE)[0] < log_min_offset:
                    low = middle + 1
                else:
                    high = at
            if low * UNIT_SIZE < file.wrote:
                self.min_logic_offset = file.first_offset + low * UNIT_SIZE
                return
        if files:
            self.min_logic_offset = max(self.min_logic_offset, files[0].first_offset)

    # -- reading -----------------------------------------------------------------------------

    def unit_at(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, record size, tags code) of a unit, None where there is none."""
        start = queue_offset * UNIT_SIZE
        file = self.files.find(start)
        if file is None:
            return None
        position = start - file.first_offset
        if position + UNIT_SIZE > file.readable or not file.hold():
            return None
        try:
            unit: tuple[int, int, int] = UNIT.unpack_from(file.view, position)
        finally:
            file.release()
        return unit

    def units_from(self, queue_offset: int) -> tuple[MappedFile, int, int] | None:
        """Return (file, position, end) of the units from an offset to the end of its file.

        None when the offset is below the minimum or has no file.  The file is held for the
        caller, who releases it.
        """
        start = queue_offset * UNIT_SIZE
        if start < self.min_logic_offset:
            return None
        file = self._tail
        if file is None or start < file.first_offset:
            file = self.files.find(start)
            if file is None:
                return None
        position = start - file.first_offset
        end = file.readable
        if position >= end or not file.hold():
            return None
        return file, position, end

    def units(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (queue offset, physical offset, size, tags code) of every unit on disk."""
        for file in self.files.snapshot():
            base = file.first_offset // UNIT_SIZE
            for number in range(file.readable // UNIT_SIZE):
                yield (base + number, *UNIT.unpack_from(file.view, number * UNIT_SIZE))

    # -- cutting -----------------------------------------------------------------------------

    def find_end(self, physical_offset: int, is_true: Callable[[int, int, int], bool]) -> int:
        """Return how many units (as a queue offset) are proven to lie below ``physical_offset``.

        A crash may leave anything in pages that were not synced: zeros, torn units, units of
        records that were cut off.  So the end is found by search and then *proven*: the unit
        before it must lead to a record that names this queue and this offset
        (``is_true(queue offset, physical offset, size)``).  Blank units right behind it count:
        they keep the offsets of records that are lost.
        """
        blank_end: int | None = None
        for file in reversed(self.files.snapshot()):
            base = file.first_offset // UNIT_SIZE
            low, high = 0, file.size // UNIT_SIZE
            while low < high:
                middle = (low + high) // 2
                offset, size, _ = UNIT.unpack_from(file.view, middle * UNIT_SIZE)
                if 0 <= offset < physical_offset and size > 0:
                    low = middle + 1
                else:
                    high = middle
            while low > 0:
                offset, size, _ = UNIT.unpack_from(file.view, (low - 1) * UNIT_SIZE)
                if size == PRE_BLANK_SIZE and offset == 0:
                    if blank_end is None:
                        blank_end = base + low
                elif (
                    offset < physical_offset
                    and self._follows(base + low - 1, offset)
                    and is_true(base + low - 1, offset, size)
                ):
                    return base + low if blank_end is None else blank_end
                else:
                    blank_end = None
                low -= 1
        return 0

    def _follows(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether a unit leads behind the one before it: a torn unit leads to the log's start."""
        before = self.unit_at(queue_offset - 1) if queue_offset else None
        if before is None or before[1] == PRE_BLANK_SIZE:
            return physical_offset >= 0
        return before[0] < physical_offset

    def cut(self, queue_offset: int, unsynced: Unsynced | None = None) -> int:
        """Drop every unit from ``queue_offset`` on, and zero them; return how many were there.

        What is cut off is zeroed and synced, now or with all that is ``unsynced``: stale units
        would look valid to the next recovery.  Where that is everything, a recovery keeps the first
        file: mostly it gets the same units again, and to remove and make it takes many times as
        long.  A queue must not keep it for good (`has_units`).
        """
        end = queue_offset * UNIT_SIZE
        first = self.files.first
        if first is None:
            return 0
        if end < first.first_offset or (end == first.first_offset and unsynced is None):
            dropped = self._written_from(first.first_offset // UNIT_SIZE)
            self.empty(unsynced)
            return dropped
        dropped = self._written_from(queue_offset)
        self.files.truncate(end, zero=True, unsynced=unsynced)
        self.refresh()
        return dropped

    def _written_from(self, queue_offset: int) -> int:
        """Count the units from an offset on, up to the first one that was never written.

        A file that was just loaded counts as full, so its positions do not tell.
        """
        count = 0
        while (unit := self.unit_at(queue_offset + count)) is not None and unit[1] != 0:
            count += 1
        return count

    def refresh(self) -> None:
        """Derive the cached state from the files, after they were loaded or cut."""
        self._tail = tail = self.files.last
        self._is_growing = False
        # Whatever was reserved before is not known after a load: reserve again from here.
        self._reserved = tail.wrote if tail is not None else 0
        self.max_physical_offset = -1
        if tail is None:
            self.min_logic_offset = 0
            return
        last = self.unit_at(self.max_offset - 1)
        if last is not None and last[1] != PRE_BLANK_SIZE:
            self.max_physical_offset = last[0] + last[1]

    def delete_expired(self, log_min_offset: int) -> int:
        """Delete files whose every record is gone, and move the min offset; count the files."""
        deleted = self.files.delete_expired_by_offset(log_min_offset, unit_size=UNIT_SIZE)
        self.correct_min_offset(log_min_offset)
        return deleted

    def destroy(self) -> None:
        """Delete every file of this queue."""
        self.files.destroy()
        self.refresh()

    def empty(self, unsynced: Unsynced | None) -> None:
        """Delete every file of this queue, durably now or with all that is ``unsynced``."""
        if unsynced is None:
            self.destroy()
        else:
            unsynced.add_directories(self.remove_all())

    def remove_all(self) -> list[Path]:
        """Delete every file of this queue; return the directories to be synced."""
        unsynced = self.files.remove_all()
        self.refresh()
        return unsynced

    def close(self) -> None:
        """Unmap the files; units stay on disk."""
        self.files.close()
        self._tail = None


def _last_written(view: memoryview, first: int, end: int) -> int | None:
    """Return the last unit of a range that is not blank."""
    if UNIT.unpack_from(view, (end - 1) * UNIT_SIZE)[1] != PRE_BLANK_SIZE:
        return end - 1
    # Compared as a whole: a file may begin with hundreds of thousands of them.
    if bytes(view[first * UNIT_SIZE : end * UNIT_SIZE]) == PRE_BLANK * (end - first):
        return None
    while UNIT.unpack_from(view, (end - 1) * UNIT_SIZE)[1] == PRE_BLANK_SIZE:
        end -= 1
    return end - 1
