"""Writing a new log from the records of another one."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from flintmq.format.stored.record_encoding import encode_blank
from flintmq.format.stored.record_layout import (
    BLANK_SIZE,
    IPV4_PREPARED_OFFSET_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)
from flintmq.format.sys_flag import host_sizes
from flintmq.store.files.mapped_file_queue import file_name

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.format.stored.record import CheckedRecord
    from flintmq.offline.salvaging.queue_numbering import QueueNumbering
    from flintmq.store.files.interface import Files, MappedRegion
    from flintmq.store.recovery.bulk_records import SoundRecords

BUFFER_SIZE: Final = 1 << 20
IPV4_HOSTS: Final = 0
"""The sys flag of a record whose hosts are both IPv4."""


class NewLog:
    """Appends records to new files, with a blank at the end of each that is full."""

    def __init__(
        self, directory: Path, file_size: int, numbers: QueueNumbering, *, files: Files
    ) -> None:
        self._directory = directory
        self._file_size = file_size
        self._numbers = numbers
        self._files = files
        self._region: MappedRegion | None = None
        self._first_offset = 0
        self._written = 0
        self._buffer = bytearray()
        self._old_starts: list[int] = []
        self._new_starts: list[int] = []
        self.record_count = 0

    @property
    def _position(self) -> int:
        return self._written + len(self._buffer)

    def append(self, record: CheckedRecord, raw: bytes) -> None:
        """Append a record of another log with the offsets it has here."""
        if self._region is None:
            self._open(0)
        elif self._position + len(raw) + BLANK_SIZE > self._file_size:
            self._roll()
        offset = self._first_offset + self._position
        moved = bytearray(raw)
        queue_offset = self._numbers.number(record)
        moved[QUEUE_OFFSET_AT:PHYSICAL_OFFSET_AT] = queue_offset.to_bytes(8, "big", signed=True)
        moved[PHYSICAL_OFFSET_AT:SYS_FLAG_AT] = offset.to_bytes(8, "big")
        if record.prepared_transaction_offset > 0:
            self._lead_to_half(moved, 0, record)
        self._note(record.physical_offset, offset)
        self._add(moved, 1)

    def append_sound(self, sound: SoundRecords) -> bool:
        """Append records of another log that follow each other there.

        False says that nothing was done, since each of them has to be looked at.
        """
        # It is needed with machine code only, and brings NumPy.
        from flintmq.offline.salvaging.moved_records import renumbered

        records = renumbered(sound, self._numbers)
        if records is None:
            return False
        done = 0
        while done < len(records):
            if self._region is None:
                self._open(0)
            count = records.fitting(done, self._file_size - BLANK_SIZE - self._position)
            if not count and self._position:
                self._roll()
                continue
            count = count or 1
            rows = range(done, done + count)
            offset = self._first_offset + self._position
            self._note(records.old_offset(done), offset)
            moved = records.moved(rows, offset)
            for position, record in records.ends_of_transactions(rows):
                self._lead_to_half(moved, position, record)
            self._add(moved, count)
            done += count
        return True

    def _lead_to_half(self, moved: bytearray, position: int, record: CheckedRecord) -> None:
        """Let the end of a transaction name the place where its half message is now."""
        at = position + IPV4_PREPARED_OFFSET_AT
        at += sum(host_sizes(record.sys_flag)) - sum(host_sizes(IPV4_HOSTS))
        named = record.prepared_transaction_offset
        # A half message stands before the record that ends its transaction, or nowhere.
        prepared = self._new_offset(named) if named < record.physical_offset else -1
        moved[at : at + 8] = prepared.to_bytes(8, "big", signed=True)

    def _add(self, moved: bytearray, count: int) -> None:
        self._buffer += moved
        self.record_count += count
        if len(self._buffer) >= BUFFER_SIZE:
            self._flush()

    def _roll(self) -> None:
        """End the file with a blank and begin the next one."""
        self._buffer += encode_blank(self._file_size - self._position)
        self._finish_file()
        self._open(self._first_offset + self._file_size)

    def _note(self, old: int, new: int) -> None:
        """Remember by how much records have moved, where that changes."""
        if not self._old_starts or old - new != self._old_starts[-1] - self._new_starts[-1]:
            self._old_starts.append(old)
            self._new_starts.append(new)

    def _new_offset(self, old: int) -> int:
        """Return where the record that stood at ``old`` is now; -1 if that is not known."""
        at = bisect_right(self._old_starts, old) - 1
        if at < 0 or any(
            later < earlier
            for earlier, later in zip(
                self._old_starts[at:], self._old_starts[at + 1 :], strict=False
            )
        ):
            return -1
        return self._new_starts[at] + old - self._old_starts[at]

    def _open(self, first_offset: int) -> None:
        self._first_offset = first_offset
        self._written = 0
        path = self._directory / file_name(first_offset)
        self._region = self._files.create(path, self._file_size, reserve=False)

    def _flush(self) -> None:
        assert self._region is not None
        self._region.write(self._written, bytes(self._buffer))
        self._written += len(self._buffer)
        self._buffer.clear()

    def _finish_file(self) -> None:
        assert self._region is not None
        self._flush()
        self._region.sync()
        self._region.close()
        self._region = None

    def close(self) -> None:
        """Bring everything to stable storage."""
        if self._region is not None:
            self._finish_file()
        self._files.sync_directory(self._directory)
