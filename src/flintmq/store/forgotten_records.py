"""Records that wait to be dispatched although their queue was removed meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.store.append_group.sends import Queue


class ForgottenRecords:
    """Knows up to where the records of removed queues belong to what was removed.

    The next message of such a queue gets offset 0.  A record before it that came into the queue
    after all would bring its old offset along, with nothing where the removed units were.
    """

    def __init__(self) -> None:
        self._ends: dict[Queue, int] = {}
        """Where the log ended when a queue was removed, the oldest removal first."""

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, queue: Queue, end_offset: int) -> None:
        """Forget the records of a queue below an offset, which no earlier one is above."""
        self._ends.pop(queue, None)
        self._ends[queue] = end_offset

    def has(self, queue: Queue, physical_offset: int) -> bool:
        """Whether the record at an offset belongs to what was removed."""
        return bool(self._ends) and physical_offset < self._ends.get(queue, 0)

    def drop_below(self, offset: int) -> None:
        """Drop what was dispatched up to an offset, so that nobody asks for it again."""
        while self._ends:
            queue, end_offset = next(iter(self._ends.items()))
            if end_offset > offset:
                return
            del self._ends[queue]

    def clear(self) -> None:
        """Drop everything."""
        self._ends.clear()
