"""The consume-queue extension: what a queue unit's eight bytes of tags code cannot hold.

A unit here keeps the real tags code, the store time and a filter bitmap; the queue unit holds
its address instead of a tags code.  Units are of variable size and hop by their own length; a
file that has no room for the next one ends with a mark.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flintmq.format.errors import CorruptUnitError
from flintmq.format.stored.consume_queue_ext import (
    BYTE_OFFSET_MAX,
    END_MARK,
    ExtUnit,
    address,
    byte_offset,
    decode_ext_unit,
    encode_ext_unit,
    has_room,
)
from flintmq.store.errors import StoreError
from flintmq.store.files.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.store.clock import Clock
    from flintmq.store.files.interface import Files
    from flintmq.store.files.mapped_file import MappedFile
    from flintmq.store.files.unsynced import Unsynced

logger = logging.getLogger(__name__)

RESERVE_STEP: Final = 64 * 1024
"""Disk space is reserved in steps; a unit takes at most half of one."""


class ConsumeQueueExt:
    """The extension of one queue."""

    def __init__(self, directory: Path, *, file_size: int, files: Files, clock: Clock) -> None:
        self.files = MappedFileQueue(directory, file_size, files=files, clock=clock, reserve=False)

    def load(self, *, read_only: bool = False) -> None:
        """Map the files and find the end of the units."""
        self.files.load(read_only=read_only)
        self._recover(zero=False)

    def put(self, unit: ExtUnit) -> int | None:
        """Append a unit and return its address, None when it cannot be stored.

        Raises:
            DiskFullError: there is no space for another file.
        """
        data = encode_ext_unit(unit)
        if not has_room(0, len(data), self.files.file_size):
            return None
        file = self.files.last_for_append(0)
        if not has_room(file.wrote, len(data), file.size):
            following = self.files.make_next()
            try:
                self._reserve(following)
            except StoreError:
                self.files.delete_last()  # The file before it has no end mark yet.
                raise
            file.view[file.wrote : file.wrote + len(END_MARK)] = END_MARK
            file.wrote = file.size
            file = following
        at = file.first_offset + file.wrote
        if at > BYTE_OFFSET_MAX:
            return None
        self._reserve(file)
        file.append(data)
        return address(at)

    @staticmethod
    def _reserve(file: MappedFile) -> None:
        """Have disk space for the next units; a range that is reserved already costs nothing."""
        step = file.wrote // RESERVE_STEP * RESERVE_STEP
        file.region.reserve(step, min(step + 2 * RESERVE_STEP, file.size))

    def get(self, unit_address: int) -> ExtUnit | None:
        """Return the unit at an address, None when it is not there or damaged."""
        at = byte_offset(unit_address)
        file = self.files.find(at)
        if file is None or at - file.first_offset >= file.readable or not file.hold():
            return None
        try:
            return decode_ext_unit(file.view, at - file.first_offset)
        except CorruptUnitError:
            return None
        finally:
            file.release()

    def cut_after(self, last_address: int | None, unsynced: Unsynced | None = None) -> None:
        """Drop everything behind the unit at ``last_address``; None drops all."""
        if last_address is None:
            if unsynced is None:
                self.destroy()
            else:
                unsynced.add_directories(self.files.remove_all())
            return
        at = byte_offset(last_address)
        unit = self.get(last_address)
        if unit is not None:
            self.files.truncate(at + unit.size, zero=True, unsynced=unsynced)

    def cut_before(self, first_address: int) -> None:
        """Delete files that end before the unit at ``first_address``."""
        at = byte_offset(first_address)
        while len(self.files) > 1:
            first = self.files.first
            if first is None or first.end_offset > at:
                return
            if not self.files.delete_first():
                return

    def _recover(self, *, zero: bool) -> None:
        """Hop from unit to unit to find where they end."""
        end = 0
        for file in self.files.snapshot():
            position = 0
            while True:
                try:
                    unit = decode_ext_unit(file.view, position)
                except CorruptUnitError:
                    break
                if unit is None:
                    break
                position += unit.size
            end = file.first_offset + position
            if file.view[position : position + len(END_MARK)] != END_MARK:
                break
        if self.files.last is not None:
            self.files.truncate(end, zero=zero)

    def destroy(self) -> None:
        """Delete every file."""
        self.files.destroy()

    def close(self) -> None:
        """Unmap the files."""
        self.files.close()
