"""Reading queues back after they were written: what stands in the files is what was meant."""

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from flintmq.format.consume_queue import PRE_BLANK, UNIT_SIZE
from flintmq.format.record import CheckedRecord
from flintmq.offline.derive import UnitRun
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
        """By run: the queue offset from which on there are units, and their checksum."""

    def begin(self, run: UnitRun) -> None:
        """Start a queue."""
        self._writer.begin(run)
        self._sums[id(run)] = (run.first, 0)

    def take(self, run: UnitRun) -> None:
        """Write a run."""
        self._writer.take(run)
        first, checksum = self._sums[id(run)]
        self._sums[id(run)] = (first, zlib.crc32(run.units, checksum))

    def jump(self, run: UnitRun, queue_offset: int, physical_offset: int) -> bool:
        """Judge a record that does not continue its queue, as the writer does."""
        if not self._writer.jump(run, queue_offset, physical_offset):
            return False
        first, checksum = self._sums[id(run)]
        if queue_offset == 0:
            first, checksum = 0, 0  # The topic was deleted and made anew.
        blanks = queue_offset - run.next if queue_offset else 0
        while blanks > 0:
            count = min(blanks, _BLANKS)
            checksum = zlib.crc32(PRE_BLANK * count, checksum)
            blanks -= count
        self._sums[id(run)] = (first, checksum)
        return True

    def bad_delay_level(self, record: CheckedRecord, reason: str) -> None:
        """Pass on what a derivation tells; parts tell it by their results."""
        self._writer.bad_delay_level(record, reason)

    def finish(self, runs: Iterable[UnitRun]) -> None:
        """Bring all files to stable storage and read them back; RebuildError if they differ."""
        self._writer.finish()
        for run in runs:
            directory = self._writer.directory_of(run)
            # The writer leaves out what has no place in the space of names or of offsets.  Names
            # that are not UTF-8 may be one name for several queues.
            if (
                directory is None
                or _REPLACEMENT in run.topic
                or (run.next + _BLANKS) * UNIT_SIZE > OFFSET_MAX
            ):
                continue
            first, checksum = self._sums[id(run)]
            if self._read_back(directory, first, run.next) != checksum:
                name = f"consumequeue/{run.topic}/{run.queue_id}"
                raise RebuildError(name, "the units read back are not those that were written")

    def directory_of(self, run: UnitRun) -> Path | None:
        """Return where the files of a queue are, None when no directory can have its name."""
        return self._writer.directory_of(run)

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
