"""Which queue offsets records get in a new log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.format.sys_flag import TRANSACTION_PREPARED

if TYPE_CHECKING:
    from flintmq.format.stored.record import CheckedRecord
    from flintmq.offline.layout import QueueKey


class QueueNumbering:
    """Which queue offset each record gets: its own, or the next one where a queue has a gap."""

    def __init__(self) -> None:
        self._next: dict[QueueKey, int] = {}
        self._shifts: dict[QueueKey, list[tuple[int, int]]] = {}
        """For each queue, from which old offset on how much is taken off."""

    def number(self, record: CheckedRecord) -> int:
        """Return the queue offset for the next record of the log."""
        if record.sys_flag & TRANSACTION_PREPARED:
            return record.queue_offset  # Prepared and rolled-back records are in no queue.
        key = (record.topic.decode("utf-8", "replace"), record.queue_id)
        following = self._next.get(key)
        old = record.queue_offset
        if following is None:
            new = max(old, 0)
        elif old == 0:
            new = 0  # The topic was deleted and made anew.
            self._shifts.pop(key, None)
        else:
            new = following
        if old - new != self._shift(key) and old >= 0:
            self._shifts.setdefault(key, []).append((old, old - new))
        self._next[key] = new + 1
        return new

    def _shift(self, key: QueueKey) -> int:
        shifts = self._shifts.get(key)
        return shifts[-1][1] if shifts else 0

    def shift_of(self, key: QueueKey, first: int) -> int | None:
        """Return what is taken off the offsets of records that follow each other in a queue.

        None says that they do not go on where the queue is, so that each has to be numbered.
        """
        following = self._next.get(key)
        if following is None:
            return 0 if first >= 0 else None
        shift = self._shift(key)
        return shift if first > 0 and first - following == shift else None

    def went_on(self, key: QueueKey, following: int) -> None:
        """Learn which queue offset the next record of a queue gets."""
        self._next[key] = following

    def moved(self, key: QueueKey, offset: int) -> int:
        """Return where a consumer that was to read ``offset`` next goes on."""
        shift = 0
        for start, taken in self._shifts.get(key, ()):
            if start > offset:
                # What lies between is gone: the next record there is goes first.
                return min(offset - shift, start - taken)
            shift = taken
        following = self._next.get(key)
        moved = max(offset - shift, 0)
        return moved if following is None else min(moved, max(following, 0))

    def renumbered(self) -> dict[QueueKey, int]:
        """Return the queues with other offsets, and from which old offset on they are."""
        return {key: shifts[0][0] for key, shifts in self._shifts.items()}
