"""The extension of consume queues made anew: store times, filter bits, and what leads there.

A broker with ``enableConsumeQueueExt`` notes beside each unit which SQL92 subscriptions its message
satisfies.  What it would note today follows from the log and from the subscriptions that the store
has kept, so a rebuild makes the same bytes as a broker that dispatches the log again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from flintmq.filter.filter_entries import FILE_NAME, FilterEntry, FilterNotes, read_entries
from flintmq.format.properties import decode_properties
from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE
from flintmq.format.stored.consume_queue_ext import (
    BYTE_OFFSET_MAX,
    END_MARK,
    ExtUnit,
    address,
    encode_ext_unit,
    has_room,
)
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions
from flintmq.store.errors import StoreError
from flintmq.store.files.interface import safe_child
from flintmq.store.files.mapped_file_queue import file_name
from flintmq.store.files.state_file import StateFile

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.offline.derive import DerivedQueue
    from flintmq.offline.layout import QueueKey, StoreLayout
    from flintmq.store.files.interface import Files

DIRECTORY_NAME: Final = "consumequeue_ext"
DEFAULT_FILE_SIZE: Final = 50_331_648


def has_extension(layout: StoreLayout) -> bool:
    """Return whether the broker of a store keeps an extension of its queues."""
    return bool(layout.extensions)


def kept_filters(layout: StoreLayout) -> tuple[FilterEntry, ...]:
    """Return the SQL92 subscriptions that a store has kept; a file that is none has none."""
    file = StateFile(layout.root / "config" / FILE_NAME, files=layout.files)
    try:
        return tuple(read_entries(file.load().value))
    except StoreError:
        return ()


class ExtensionWriter:
    """Writes new extension files, and leads the units of queues to them.

    ``regions`` are its own: records are looked up in the log by the units that lead to them.
    """

    def __init__(
        self,
        directory: Path,
        layout: StoreLayout,
        files: Files,
        *,
        filters: tuple[FilterEntry, ...],
        regions: Regions,
    ) -> None:
        self._directory = directory
        self._files = files
        self._log = LogFiles(layout, regions)
        self._notes = FilterNotes(filters)
        self._file_size = _file_size(layout)
        self._ends: dict[QueueKey, int] = {}
        """By queue: where in its extension the next unit goes."""
        self._made: dict[Path, None] = {}

    def lead(self, queue: DerivedQueue) -> None:
        """Write what belongs to the units at hand, and put its addresses into them."""
        key = queue.topic, queue.queue_id
        directory = self._directory_of(key)
        if directory is None:
            return
        at = start = self._ends.get(key, 0)
        written = bytearray()
        """What goes into the file at hand, from ``start`` on."""
        for position in range(0, len(queue.units), UNIT_SIZE):
            physical_offset, size, tags_code = UNIT.unpack_from(queue.units, position)
            unit = self._unit(key, physical_offset, tags_code)
            data = None if unit is None else encode_ext_unit(unit)
            if data is None or not has_room(0, len(data), self._file_size):
                continue
            if not has_room(at % self._file_size, len(data), self._file_size):
                self._write(directory, start, bytes(written) + END_MARK)
                at = start = at - at % self._file_size + self._file_size
                written.clear()
            if at > BYTE_OFFSET_MAX:
                break
            UNIT.pack_into(queue.units, position, physical_offset, size, address(at))
            written += data
            at += len(data)
        self._write(directory, start, bytes(written))
        self._ends[key] = at

    def _unit(self, key: QueueKey, physical_offset: int, tags_code: int) -> ExtUnit | None:
        """Return what is noted on a message; nothing where it entered a further queue."""
        record = self._log.record_at(physical_offset)
        if record is None:
            return None
        topic = record.topic.decode("utf-8", "replace")
        if (topic, record.queue_id) != key:
            return None
        bitmap = None
        if self._notes.concern(topic):
            bitmap = self._notes.bitmap(topic, decode_properties(record.properties))
        return ExtUnit(tags_code, record.store_timestamp, bitmap)

    def remove(self, queue: DerivedQueue) -> None:
        """Drop what was written for a topic that was deleted and made anew."""
        key = queue.topic, queue.queue_id
        directory = self._directory_of(key)
        self._ends.pop(key, None)
        for path in [path for path in self._made if path.parent == directory]:
            self._files.remove(path)
            del self._made[path]

    def finish(self) -> None:
        """Bring all files to stable storage."""
        for path in self._made:
            self._files.sync(path)
        for directory in dict.fromkeys(path.parent for path in self._made):
            self._files.sync_directory(directory)

    def _directory_of(self, key: QueueKey) -> Path | None:
        try:
            return safe_child(self._directory, key[0]) / str(key[1])
        except StoreError:
            return None  # No directory can have the name of such a topic.

    def _write(self, directory: Path, start: int, data: bytes) -> None:
        if not data:
            return
        file_start = start - start % self._file_size
        path = directory / file_name(file_start)
        if path in self._made:
            region = self._files.open(path)
        else:
            region = self._files.create(path, self._file_size, reserve=False)
            self._made[path] = None
        try:
            region.write(start - file_start, data)
        finally:
            region.close()


def _file_size(layout: StoreLayout) -> int:
    sizes = Counter(file.size for files in layout.extensions.values() for file in files)
    return sizes.most_common(1)[0][0] if sizes else DEFAULT_FILE_SIZE
