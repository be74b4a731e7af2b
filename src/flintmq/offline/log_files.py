"""The commit log for readers that jump: records by their physical offset."""

from bisect import bisect_right
from collections.abc import Sequence

from flintmq.format.errors import CorruptRecordError
from flintmq.format.stored.record import Blank, CheckedRecord, Record, check_record, decode_record
from flintmq.offline.layout import DataFile, StoreLayout
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.queue_proof import QueueProof
from flintmq.offline.regions import Regions
from flintmq.store.files.mapped_file_queue import file_name


class LogFiles:
    """The files of a log, found by offset and mapped when they are read."""

    def __init__(self, layout: StoreLayout, regions: Regions) -> None:
        self.files: Sequence[DataFile] = layout.log_files
        self.file_size = layout.log_file_size
        self.name_of = layout.name_of
        self.layer = layout.files
        self._directories = layout.log_directories
        self._starts = [file.first_offset for file in self.files]
        self._layout = layout
        self._regions = regions

    def proof(self) -> QueueProof:
        """Return the proof of records by the consume queues of the same store."""
        return QueueProof(lambda: QueueFiles(self._layout, self._regions))

    @property
    def start(self) -> int:
        """Where the oldest file starts; 0 for an empty log."""
        return self._starts[0] if self._starts else 0

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def end(self) -> int:
        """Where the newest file ends that there was when the store was looked at."""
        return self._starts[-1] + self.file_size if self._starts else 0

    def has_grown(self) -> bool:
        """Whether a broker has made another file since."""
        name = file_name(self.end)
        return any(self.layer.exists(directory / name) for directory in self._directories)

    def find(self, physical_offset: int) -> DataFile | None:
        """Return the file that holds an offset."""
        number = bisect_right(self._starts, physical_offset) - 1
        if number < 0:
            return None
        file = self.files[number]
        return file if physical_offset < file.first_offset + file.size else None

    def is_deleted(self, physical_offset: int) -> bool:
        """Whether the file that held an offset is gone by now."""
        file = self.find(physical_offset)
        return file is not None and not self.layer.exists(file.path)

    def record_at(self, physical_offset: int) -> CheckedRecord | None:
        """Return the record at an offset if a whole one is there; its checksum is not looked at."""
        file = self.find(physical_offset)
        view = None if file is None else self._regions.view(file.path)
        if file is None or view is None:
            return None
        limit = min(len(view), self.file_size)
        try:
            record = check_record(
                view,
                physical_offset - file.first_offset,
                limit,
                check_crc=False,
                expected_offset=physical_offset,
            )
        except CorruptRecordError:
            return None
        return None if isinstance(record, Blank) else record

    def decode(self, physical_offset: int) -> Record | None:
        """Return the record at an offset with all its fields, None where none is."""
        file = self.find(physical_offset)
        view = None if file is None else self._regions.view(file.path)
        if file is None or view is None:
            return None
        try:
            return decode_record(view, physical_offset - file.first_offset)
        except CorruptRecordError:
            return None

    def raw(self, record: CheckedRecord) -> bytes | None:
        """Return the bytes of a record that was found here, None when its file is gone."""
        file = self.find(record.physical_offset)
        view = None if file is None else self._regions.view(file.path)
        if file is None or view is None:
            return None
        position = record.physical_offset - file.first_offset
        return bytes(view[position : position + record.size])

    def first_store_time(self, file: DataFile) -> int | None:
        """Return when the first record of a file was stored, None when it has none."""
        record = self.record_at(file.first_offset)
        return None if record is None else record.store_timestamp
