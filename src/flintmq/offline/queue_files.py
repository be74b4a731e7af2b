"""Consume queues for readers that jump: units by topic, queue id and queue offset."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from flintmq.format.errors import CorruptUnitError
from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE, UNIT, UNIT_SIZE
from flintmq.format.stored.consume_queue_ext import ExtUnit, byte_offset, decode_ext_unit
from flintmq.offline.layout import DataFile, QueueKey, StoreLayout
from flintmq.offline.regions import Regions

_CHUNK_SIZE: Final = UNIT_SIZE * 65_536


class QueueFiles:
    """The files of all queues and of their extensions, mapped when they are read."""

    def __init__(self, layout: StoreLayout, regions: Regions) -> None:
        self._layout = layout
        self._queues = dict(layout.queues)
        self._extensions = layout.extensions
        self._regions = regions

    def __contains__(self, key: QueueKey) -> bool:
        return bool(self._queues.get(key))

    @property
    def keys(self) -> list[QueueKey]:
        """All queues that have a directory."""
        return sorted(self._queues)

    def name_of(self, key: QueueKey) -> str:
        """Return how reports name a queue."""
        return f"consumequeue/{key[0]}/{key[1]}"

    def refresh(self, key: QueueKey) -> None:
        """Look again which files a queue has: a running broker may have made more."""
        found = self._layout.list_queue(key)
        if found or key in self._queues:
            self._queues[key] = found

    def first_offset(self, key: QueueKey) -> int:
        """Return the queue offset at which the first file of a queue starts; 0 without files."""
        found = self._queues.get(key)
        return found[0].first_offset // UNIT_SIZE if found else 0

    def read(self, key: QueueKey, queue_offset: int, count: int) -> bytes:
        """Return the bytes of ``count`` units; those that are in no file are zero."""
        start = queue_offset * UNIT_SIZE
        end = start + count * UNIT_SIZE
        pieces = bytearray()
        for file in self._from(key, start):
            at = start + len(pieces)
            if at >= end:
                break
            view = self._regions.view(file.path)
            if view is None:
                continue
            if file.first_offset > at:
                pieces += bytes(min(file.first_offset, end) - at)
                at = start + len(pieces)
            pieces += view[at - file.first_offset : end - file.first_offset]
        return bytes(pieces).ljust(end - start, b"\0")

    def _from(self, key: QueueKey, start: int) -> list[DataFile]:
        """Return the files of a queue that reach beyond byte ``start``."""
        found = self._queues.get(key) or []
        number = bisect_right(found, start, key=lambda file: file.first_offset)
        return found[max(number - 1, 0) :]

    def unit_at(self, key: QueueKey, queue_offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, record size, tags code), None where no unit was written."""
        unit: tuple[int, int, int] = UNIT.unpack(self.read(key, queue_offset, 1))
        return unit if unit[1] else None

    def units(
        self, key: QueueKey, start: int, end: int | None = None
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield (queue offset, physical offset, size, tags code) of the units that are not zero."""
        for file in self._from(key, start * UNIT_SIZE):
            begin = max(start * UNIT_SIZE, file.first_offset)
            stop = file.first_offset + file.size // UNIT_SIZE * UNIT_SIZE
            if end is not None:
                stop = min(stop, end * UNIT_SIZE)
            for at in range(begin, stop, _CHUNK_SIZE):
                view = self._regions.view(file.path)
                if view is None:
                    break
                size = min(_CHUNK_SIZE, stop - at)
                chunk = bytes(view[at - file.first_offset : at - file.first_offset + size])
                # Most of the last file of a queue is zero.
                written = len(chunk.rstrip(b"\0"))
                written += -written % UNIT_SIZE
                units = UNIT.iter_unpack(chunk[:written])
                for number, fields in enumerate(units, at // UNIT_SIZE):
                    if fields[1]:
                        yield (number, *fields)

    def end(self, key: QueueKey) -> int:
        """Return the queue offset after the last written unit, found by bisection."""
        for file in reversed(self._queues.get(key) or []):
            view = self._regions.view(file.path)
            if view is None:
                continue
            low, high = 0, len(view) // UNIT_SIZE
            while low < high:
                middle = (low + high) // 2
                if UNIT.unpack_from(view, middle * UNIT_SIZE)[1]:
                    low = middle + 1
                else:
                    high = middle
            if low:
                return file.first_offset // UNIT_SIZE + low
        return self.first_offset(key)

    def last_physical(self, key: QueueKey) -> int:
        """Return where the record of the last unit of a queue starts, -1 without one."""
        at = self.end(key) - 1
        first = self.first_offset(key)
        while at >= first:
            unit = self.unit_at(key, at)
            if unit is None:
                break
            if unit[1] != PRE_BLANK_SIZE:
                return unit[0]
            at -= 1
        return -1

    def has_extension(self, key: QueueKey) -> bool:
        """Whether a queue has an extension."""
        return bool(self._extensions.get(key))

    def extension_unit(self, key: QueueKey, address: int) -> tuple[int, ExtUnit | None]:
        """Return the byte offset an address names, and the unit there if it is whole."""
        at = byte_offset(address)
        for file in self._extensions.get(key) or []:
            if file.first_offset <= at < file.first_offset + file.size:
                view = self._regions.view(file.path)
                if view is None:
                    break
                try:
                    return at, decode_ext_unit(view, at - file.first_offset)
                except CorruptUnitError:
                    break
        return at, None
