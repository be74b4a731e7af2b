"""Where somebody reads a queue: what one read has looked up, and the next one needs again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.views.queue_table import StoredQueue


class ResidentRange(NamedTuple):
    """A part of a file that was in memory, and until when that counts."""

    start: int
    end: int
    until: float


NOTHING_KNOWN: Final = ResidentRange(0, 0, 0.0)
"""Stands for a range where none is in memory, or nobody has asked."""


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
        log: MappedFile,
        log_address: int,
    ) -> None:
        self.queue = queue
        self.units = units
        self.units_address = units_address
        self.units_ready = NOTHING_KNOWN
        """What of the queue's file was in memory, by positions in it."""
        self.log = log
        self.log_address = log_address
        self.log_ready = NOTHING_KNOWN
        """What of the log file was in memory, by positions in it."""


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
