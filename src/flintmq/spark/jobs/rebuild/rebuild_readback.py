"""Reading queues back after they were written: what stands in the files is what was meant."""

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from flintmq.format.stored.consume_queue import PRE_BLANK, UNIT_SIZE
from flintmq.format.stored.record import CheckedRecord
from flintmq.offline.derive import DerivedQueue
from flintmq.offline.rebuild import OFFSET_MAX, QueueWriter
from flintmq.spark.errors import RebuildError

_BLANKS: Final = 65_536
_REPLACEMENT: Final = "\ufffd"


class ProvenWriter:
    """Hands units on to a writer and keeps a checksum of what each queue must hold."""

    def __init__(self, writer: QueueWriter, file_size: int) -> None:
        self._writer = writer
        self._file_size = file_size
        self._sums: dict[int, tuple[int, int]] = {}
        """By queue: the queue offset from which on there are units, and their checksum."""

    def begin(self, queue: DerivedQueue) -> None:
        """Start a queue."""
        self._writer.begin(queue)
        self._sums[id(queue)] = (queue.first, 0)

    def take(self, queue: DerivedQueue) -> None:
        """Write the next units of a queue."""
        self._writer.take(queue)
        first, checksum = self._sums[id(queue)]
        self._sums[id(queue)] = (first, zlib.crc32(queue.units, checksum))

    def jump(self, queue: DerivedQueue, queue_offset: int, physical_offset: int) -> bool:
        """Judge a record that does not continue its queue, as the writer does."""
        if not self._writer.jump(queue, queue_offset, physical_offset):
            return False
        first, checksum = self._sums[id(queue)]
        if queue_offset == 0:
            first, checksum = 0, 0  # The topic was deleted and made anew.
        blanks = queue_offset - queue.next if queue_offset else 0
        while blanks > 0:
            count = min(blanks, _BLANKS)
            checksum = zlib.crc32(PRE_BLANK * count, checksum)
            blanks -= count
        self._sums[id(queue)] = (first, checksum)
        return True

    def bad_delay_level(self, record: CheckedRecord, reason: str) -> None:
        """Pass on what a derivation tells; ranges report it in their results."""
        self._writer.bad_delay_level(record, reason)

    def finish(self, queues: Iterable[DerivedQueue]) -> None:
        """Bring all files to stable storage and read them back; RebuildError if they differ."""
        self._writer.finish()
        for queue in queues:
            directory = self._writer.directory_of(queue)
            # The writer leaves out what has no place in the space of names or of offsets.  Names
            # that are not UTF-8 may be one name for several queues.
            if (
                directory is None
                or _REPLACEMENT in queue.topic
                or (queue.next + _BLANKS) * UNIT_SIZE > OFFSET_MAX
            ):
                continue
            first, checksum = self._sums[id(queue)]
            if self._read_back(directory, first, queue.next) != checksum:
                name = f"consumequeue/{queue.topic}/{queue.queue_id}"
                raise RebuildError(name, "the units read back are not those that were written")

    def directory_of(self, queue: DerivedQueue) -> Path | None:
        """Return where the files of a queue are, None when no directory can have its name."""
        return self._writer.directory_of(queue)

    def _read_back(self, directory: Path, first: int, following: int) -> int:
        """Return the checksum of the units that the files of a queue hold."""
        size = self._file_size
        checksum = 0
        at, end = first * UNIT_SIZE, following * UNIT_SIZE
        while at < end:
            file_start = at - at % size
            stop = min(end, file_start + size)
            with (directory / f"{file_start:020d}").open("rb") as file:
                file.seek(at - file_start)
                checksum = zlib.crc32(file.read(stop - at), checksum)
            at = stop
        return checksum
