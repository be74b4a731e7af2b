"""One queue of the waiting topic: which of its messages wait, and which of them is due next.

The units of the queue are the index: each has the time at which its message is due.  Only the
nearest ones are in memory, the *window*.  Messages due at or past its *horizon* are left in the
queue, and when the window is used up the units are read once more.  So memory stays bounded
however many wait, and nothing is kept beside the queue that could be lost or be wrong.

A message's *key* is its due time and, behind that, its queue offset.  Messages are delivered in
the order of their keys, so the key of the last one, the *mark*, says of each whether it is done.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from flintmq.format.delivery_time import is_delivery_time
from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE, UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.store.views.queue_table import StoredQueue

    FindDue = Callable[[StoredQueue, int, int, int], int | None]
    """Finds the due time of a unit that does not say it, by its record."""

NOTHING_DONE: Final = -1
"""The mark of a queue of which nothing was delivered."""

_OFFSET_BITS: Final = 40
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1


def key_of(due_ms: int, queue_offset: int) -> int:
    """Return the key of a message."""
    return due_ms << _OFFSET_BITS | queue_offset


def due_ms_of(key: int) -> int:
    """Return the due time in a key; -1 in that of nothing."""
    return key >> _OFFSET_BITS


def offset_of(key: int) -> int:
    """Return the queue offset in a key."""
    return key & _OFFSET_MASK


def due_of_unit(queue: StoredQueue, unit: tuple[int, int, int], find_due: FindDue) -> int | None:
    """Return when the message of a unit is due, None if the unit leads to none."""
    physical_offset, size, code = unit
    if is_delivery_time(code):
        return code
    return None if size == PRE_BLANK_SIZE else find_due(queue, physical_offset, size, code)


class WaitingQueue:
    """What waits in one queue.  `look` reads its units; until `is_ready` its head is not known."""

    def __init__(
        self,
        queue_id: int,
        find_due: FindDue,
        *,
        window_count: int,
    ) -> None:
        """Describe a queue; ``find_due`` tells the time where a unit itself does not.

        Of ``window_count`` messages the keys are in memory, and of as many more until the window
        is thinned out.
        """
        self.queue_id = queue_id
        self._find_due = find_due
        self._window_count = window_count
        self.first = 0
        """Everything before this queue offset is done."""
        self.mark = NOTHING_DONE
        self.waiting_count = 0
        self._window: list[int] = []
        self._horizon: int | None = None
        self._seen = 0
        self._least: int | None = None
        """The first offset that waits, as the reading under way has found."""
        self.is_ready = False

    def begin(self, first: int, mark: int) -> None:
        """Go on where an earlier run has been."""
        self.first, self.mark = first, mark
        self._read_anew()

    def _read_anew(self) -> None:
        self.is_ready = False
        self._window, self._horizon, self._least = [], None, None
        self._seen, self.waiting_count = self.first, 0

    def look(self, queue: StoredQueue, unit_count: int) -> int:
        """Read units that are new, or again all that may wait; return how many were read."""
        if self.is_ready and not self._window and self._horizon is not None:
            self._read_anew()
        read_count = 0
        while read_count < unit_count:
            count = self._read(queue, unit_count - read_count)
            if not count:
                self._finish_reading()
                break
            read_count += count
        return read_count

    def _read(self, queue: StoredQueue, unit_count: int) -> int:
        self._seen = start = max(self._seen, queue.min_offset)
        found = queue.units_from(start)
        if found is None:
            return 0
        file, position, end = found
        try:
            end = min(end, position + unit_count * UNIT_SIZE)
            with file.view[position:end] as view:
                units = list(UNIT.iter_unpack(view))
        finally:
            file.release()
        mark = self.mark
        for offset, unit in enumerate(units, start):
            due_ms = due_of_unit(queue, unit, self._find_due)
            if due_ms is not None:
                key = due_ms << _OFFSET_BITS | offset
                if key > mark:
                    self._add(key)
        self._seen = start + len(units)
        return len(units)

    def _add(self, key: int) -> None:
        self.waiting_count += 1
        if self._least is None:
            self._least = offset_of(key)
        if self._horizon is not None and key >= self._horizon:
            return
        window = self._window
        if self.is_ready:
            heapq.heappush(window, key)
        else:
            window.append(key)
        if len(window) >= 2 * self._window_count:
            window.sort()  # What is sorted is a heap, too.
            self._horizon = window[self._window_count]
            del window[self._window_count :]

    def _finish_reading(self) -> None:
        if self.is_ready:
            return
        heapq.heapify(self._window)
        self.first = max(self.first, self._seen if self._least is None else self._least)
        self.is_ready = True

    def head(self) -> int | None:
        """Return the key of the message that is due next, None if no message is known."""
        window = self._window
        while window and offset_of(window[0]) < self.first:
            heapq.heappop(window)  # It was put again at the end of a queue.
        return window[0] if window else None

    def finish_head(self) -> None:
        """Count the head as done."""
        self.mark = heapq.heappop(self._window)
        self.waiting_count -= 1

    def finish_first(self, *, waits: bool) -> None:
        """Count the message at ``first`` as done; if it still ``waits``, it was put again."""
        self.first += 1
        self.waiting_count -= waits

    def advance(self) -> None:
        """Bring ``first`` to where the first waiting message is, if that is known."""
        if self.is_ready and self._horizon is None:
            offsets = map(offset_of, self._window)
            least = min((one for one in offsets if one >= self.first), default=self._seen)
            self.first = max(self.first, least)
