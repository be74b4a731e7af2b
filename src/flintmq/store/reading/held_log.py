"""The log as one read goes through it: what it holds meanwhile, and how much it may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from flintmq.format.stored.record_layout import RECORD_SIZE_MIN
from flintmq.store.reading.contiguous_read import read_claim

if TYPE_CHECKING:
    from flintmq.store.config import StoreConfig
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.results import GetResult


class TransferLimits(NamedTuple):
    """How much one read may bring: more of what is in memory, less of what is on the disk."""

    cold_below: int
    count_in_memory: int
    size_in_memory: int
    count_on_disk: int
    size_on_disk: int

    @classmethod
    def of(cls, config: StoreConfig, count_max: int, cold_below: int) -> Self:
        """Return the limits of a read of at most ``count_max`` messages."""
        return cls(
            cold_below,
            min(count_max, config.transfer_count_in_memory_max),
            config.transfer_bytes_in_memory_max,
            min(count_max, config.transfer_count_on_disk_max),
            config.transfer_bytes_on_disk_max,
        )

    def are_reached(self, physical_offset: int, count: int, size: int) -> bool:
        """Return whether a message there would be one too many, or make ``size`` too large."""
        if physical_offset < self.cold_below:
            return count >= self.count_on_disk or size > self.size_on_disk
        return count >= self.count_in_memory or size > self.size_in_memory


class HeldLog:
    """The log files that one read goes through; its result holds them."""

    def __init__(self, log: CommitLog, result: GetResult) -> None:
        self._files = log.files
        self._readable_end = log.readable_end
        self._result = result
        self._file: MappedFile | None = None
        self._start = self._end = 0
        self._view = memoryview(b"")
        self._read_end = 0
        """Where the last record ends that was asked for."""

    def covers(self, physical_offset: int, size: int) -> bool:
        """Return whether such a range can be read, and hold the file that has it."""
        end = physical_offset + size
        if self._start <= physical_offset and end <= self._end:
            return True
        file = self._files.find(physical_offset)
        if file is None or end > min(self._readable_end, file.first_offset + file.readable):
            return False
        if not file.hold():
            return False
        self._result.hold(file)
        self._file = file
        self._start = file.first_offset
        self._end = min(self._start + file.readable, self._readable_end)
        self._view = file.view
        return True

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Return the record of a range that is covered, None if it claims to be another."""
        at = physical_offset - self._start
        if size < RECORD_SIZE_MIN or read_claim(self._view, at) != (size, physical_offset):
            return None
        self._read_end = at + size
        return self._view[at : at + size]

    def read_ahead(self, size: int) -> None:
        """Ask the kernel to fetch what follows: the next pull goes on there."""
        if self._file is not None:
            self._file.region.advise_will_need(self._read_end, size)
