"""Where somebody reads a queue: what one read has looked up, and the next one needs again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.views.queue_table import StoredQueue


_unit_at: Final = UNIT.unpack_from


class ResidentRange(NamedTuple):
    """A part of a file that was in memory, and until when that counts."""

    start: int
    end: int
    until: float


class CursorFiles:
    """The files that a read has found, where they are mapped, and what of them is in memory."""

    __slots__ = (
        "log",
        "log_address",
        "log_ready",
        "queue",
        "units",
        "units_address",
        "units_ready",
    )

    def __init__(
        self,
        queue: StoredQueue,
        units: MappedFile,
        units_address: int,
        units_ready: ResidentRange,
        log: MappedFile,
        log_address: int,
        log_ready: ResidentRange,
    ) -> None:
        self.queue = queue
        self.units = units
        self.units_address = units_address
        self.units_ready = units_ready
        self.log = log
        self.log_address = log_address
        self.log_ready = log_ready

    def has_units_ready(self, position: int, count: int, now: float) -> bool:
        """Return whether units at a position are known to be in memory."""
        start, end, until = self.units_ready
        return start <= position and position + count * UNIT_SIZE <= end and now < until

    def has_log_ready(self, position: int, count: int, now: float) -> bool:
        """Return whether the records of units at a position, which are held, are known to be."""
        start, end, until = self.log_ready
        view, log_start = self.units.view, self.log.first_offset
        first, _, _ = _unit_at(view, position)
        last, last_size, _ = _unit_at(view, position + (count - 1) * UNIT_SIZE)
        return start <= first - log_start <= last - log_start <= end - last_size and now < until


class ReadCursor:
    """What a reader keeps between two reads of a queue.

    It keeps no file mapped: each read holds the files that it remembers, and looks anew where one
    of them is being deleted.
    """

    __slots__ = ("files", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files: CursorFiles | None = None
        """What the last read has found; None if the next one has to look anew."""
