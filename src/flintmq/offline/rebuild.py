"""Making consume queues and key index anew from the log, in a directory of their own.

The bytes are those the engine writes when it dispatches the same log, with the subscriptions that
the store has kept where its queues have an extension (`flintmq.offline.queue_extension`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.format.delay_levels import DelayLevels
from flintmq.format.stored.consume_queue import PRE_BLANK, UNIT_SIZE
from flintmq.format.stored.dispatch_fields import index_keys
from flintmq.format.stored.record import CheckedRecord
from flintmq.format.sys_flag import TRANSACTION_ROLLBACK, transaction_type
from flintmq.offline.bulk_loading import bulk_loader
from flintmq.offline.derive import Derivation, DerivedQueue
from flintmq.offline.errors import OutputError, UnknownIndexShapeError
from flintmq.offline.findings import Findings, Kind
from flintmq.offline.index_geometry import IndexGeometry, find_geometry
from flintmq.offline.layout import StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_extension import (
    DIRECTORY_NAME,
    ExtensionWriter,
    has_extension,
    kept_filters,
)
from flintmq.offline.regions import Regions
from flintmq.offline.scan import LogScan, Progress
from flintmq.store.errors import StoreError, StoreIOError
from flintmq.store.files.interface import Files, safe_child
from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.mapped_file_queue import file_name
from flintmq.store.files.unsynced import are_many
from flintmq.store.views.key_index import IndexedMessage, KeyIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flintmq.store.recovery.bulk_records import SortedKeys

GAP_MAX: Final = 1_000_000
"""The most lost records a queue is filled over with blank units; recovery has the same limit."""

OFFSET_MAX: Final = (1 << 63) - 1
"""Where the offsets of a queue end; a record that claims more is damaged."""

WAITING_SIZE_MAX: Final = 16 << 20
"""So many bytes of units wait in memory, with what keeping them costs."""

_PIECE_SIZE: Final = 120
"""What Python needs to keep a piece of units, besides its bytes."""


@dataclass(slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild made, and what of the log it could not use."""

    output: Path
    record_count: int = 0
    queue_count: int = 0
    unit_count: int = 0
    index_file_count: int = 0
    index_entry_count: int = 0
    findings: Findings = field(default_factory=Findings)


def rebuild(
    layout: StoreLayout,
    output: Path,
    *,
    queues: bool,
    index: bool,
    delay_levels: DelayLevels,
    files: Files | None = None,
    extension: bool | None = None,
    progress: Progress | None = None,
) -> RebuildReport:
    """Write ``output/consumequeue`` and ``output/index``; OutputError when it is not free.

    With ``extension`` the queues get one in ``output/consumequeue_ext``; None: if the store has.
    """
    files = files or LocalFiles()
    check_output(layout, output, files=files)
    return derive_views(
        layout,
        output,
        queues=queues,
        index=index,
        delay_levels=delay_levels,
        files=files,
        extension=has_extension(layout) if extension is None else extension,
        progress=progress,
    )


def derive_views(
    layout: StoreLayout,
    output: Path,
    *,
    queues: bool,
    index: bool,
    delay_levels: DelayLevels,
    files: Files,
    extension: bool = False,
    progress: Progress | None = None,
) -> RebuildReport:
    """Do the work of `rebuild` in a directory that has neither queues nor index yet."""
    report = RebuildReport(output=output)
    with Regions(layout.files) as regions, Regions(layout.files) as looked_up:
        log = LogFiles(layout, regions)
        load_bulk = bulk_loader(log, delay_levels, lmq=layout.lmq)
        scan = LogScan(log, check_crc=True, progress=progress, load_bulk=load_bulk)
        notes = _extension(layout, output, files, looked_up) if extension else None
        writer = (
            QueueWriter(output / "consumequeue", layout, files, report, notes) if queues else None
        )
        entries = _make_index(layout, regions, output, files) if index else None
        derivation = Derivation(delay_levels=delay_levels, lmq=layout.lmq, units=writer)
        for piece in scan.pieces():
            keys = None
            if not isinstance(piece, list):
                keys = derivation.feed_many(piece)
            elif writer is not None:
                derivation.feed(piece)
            if entries is not None and keys is not None:
                entries.add_many(keys)
            elif entries is not None:
                entries.add(list(piece))
        derivation.finish()
    files.make_directory(output)
    if writer is not None:
        writer.finish()
        report.queue_count = len(derivation.queues)
    if entries is not None:
        report.index_file_count, report.index_entry_count = entries.finish()
    files.sync_directory(output)
    report.record_count = scan.record_count
    for damage in scan.damages:
        report.findings.problem(damage.kind, damage.file, damage.start, damage.reason)
    return report


def check_output(layout: StoreLayout, output: Path, *, files: Files) -> None:
    """Raise OutputError unless ``output`` is new or empty and lies outside the store."""
    target = output.resolve()
    for inspected in (layout.root, *layout.log_directories):
        source = inspected.resolve()
        if target == source or target.is_relative_to(source):
            raise OutputError(output, f"lies in the store that is read, {inspected}")
    try:
        entries = files.list(output)
    except StoreIOError as error:
        raise OutputError(output, error.cause.strerror or str(error.cause)) from error
    if entries:
        raise OutputError(output, "is not empty")


@dataclass(slots=True)
class _QueueFile:
    """A consume-queue file: whether it was made yet, and the units that wait to be written."""

    is_made: bool = False
    waiting: list[tuple[int, bytes]] = field(default_factory=list)
    """Positions in the file, and what comes there."""

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield what waits, and joins what stands together."""
        start, joined = 0, bytearray()
        for position, units in self.waiting:
            if joined and position != start + len(joined):
                yield start, bytes(joined)
                joined.clear()
            if not joined:
                start = position
            joined += units
        if joined:
            yield start, bytes(joined)


class QueueWriter:
    """Writes units into new consume-queue files.

    Units wait in memory, within a bound: of thousands of small queues a part of the log has but a
    few units each, and a file is opened once for many parts.
    """

    def __init__(
        self,
        directory: Path,
        layout: StoreLayout,
        files: Files,
        report: RebuildReport,
        extension: ExtensionWriter | None = None,
        *,
        waiting_size_max: int = WAITING_SIZE_MAX,
    ) -> None:
        self._directory = directory
        self._file_size = layout.queue_file_size
        self._files = files
        self._report = report
        self._extension = extension
        self._made: dict[Path, dict[Path, _QueueFile]] = {}
        """The files of each directory."""
        self._waiting_size = 0
        self._waiting_size_max = waiting_size_max
        self._refused: set[tuple[str, int]] = set()

    def begin(self, queue: DerivedQueue) -> None:
        """Start a queue; what precedes its first record in the same file becomes blank."""
        self._write_blanks(queue, queue.first - queue.first % self._units_per_file, queue.first)

    def take(self, queue: DerivedQueue) -> None:
        """Write the next units of a queue; with an extension they lead there afterwards."""
        if self._extension is not None:
            self._extension.lead(queue)
        self._report.unit_count += len(queue.units) // UNIT_SIZE
        self._write(queue, queue.first, bytes(queue.units))

    def jump(self, queue: DerivedQueue, queue_offset: int, physical_offset: int) -> bool:
        """Do as recovery does: blanks for lost records, a deleted topic anew, or the first."""
        if queue_offset == 0:
            self._remove(queue)
            return True
        name = f"consumequeue/{queue.topic}/{queue.queue_id}"
        if queue.next < queue_offset <= queue.next + GAP_MAX:
            self._write_blanks(queue, queue.next, queue_offset)
            reason = f"the log has no records for {queue_offset - queue.next} units; they are blank"
            self._report.findings.problem(Kind.OFFSET_GAP, name, queue.next, reason)
            return True
        reason = f"the record at {physical_offset} has the queue offset {queue_offset}, left out"
        self._report.findings.problem(Kind.OFFSET_REPEATED, name, queue.next, reason)
        return False

    def bad_delay_level(self, record: CheckedRecord, reason: str) -> None:
        """Report a delayed record that is due at once for want of a level."""
        self._report.findings.problem(Kind.DELAY_LEVEL, "", record.physical_offset, reason)

    def finish(self) -> None:
        """Bring all files to stable storage."""
        if self._extension is not None:
            self._extension.finish()
        self._write_waiting()
        made = [path for files in self._made.values() for path in files]
        if are_many(len(made)):
            self._files.sync_below(self._directory)
            return
        for path in made:
            self._files.sync(path)
        for directory, files in self._made.items():
            if files:
                self._files.sync_directory(directory)

    @property
    def _units_per_file(self) -> int:
        return self._file_size // UNIT_SIZE

    def directory_of(self, queue: DerivedQueue) -> Path | None:
        """Return where the files of a queue are, None when no directory can have its name."""
        try:
            return safe_child(self._directory, queue.topic) / str(queue.queue_id)
        except StoreError:
            key = (queue.topic, queue.queue_id)
            if key not in self._refused:
                self._refused.add(key)
                reason = "no directory can have the name of this topic"
                self._report.findings.problem(Kind.QUEUE_MISSING, repr(queue.topic), None, reason)
            return None

    def _write_blanks(self, queue: DerivedQueue, first: int, end: int) -> None:
        if first < end:
            self._write(queue, first, PRE_BLANK * (end - first))

    def _write(self, queue: DerivedQueue, first: int, units: bytes) -> None:
        directory = self.directory_of(queue)
        if directory is None or (first + 1) * UNIT_SIZE + len(units) > OFFSET_MAX:
            return
        at, end = first * UNIT_SIZE, first * UNIT_SIZE + len(units)
        while at < end:
            file_start = at - at % self._file_size
            stop = min(end, file_start + self._file_size)
            path = directory / file_name(file_start)
            file = self._made.setdefault(directory, {}).setdefault(path, _QueueFile())
            piece = units[at - first * UNIT_SIZE : stop - first * UNIT_SIZE]
            file.waiting.append((at - file_start, piece))
            self._waiting_size += len(piece) + _PIECE_SIZE
            at = stop
        if self._waiting_size > self._waiting_size_max:
            self._write_waiting()

    def _write_waiting(self) -> None:
        """Write all units that wait."""
        for files in self._made.values():
            for path, file in files.items():
                if not file.waiting:
                    continue
                if file.is_made:
                    region = self._files.open(path)
                else:
                    region = self._files.create(path, self._file_size, reserve=False)
                    file.is_made = True
                try:
                    for position, units in file.pieces():
                        region.write(position, units)
                finally:
                    region.close()
                file.waiting.clear()
        self._waiting_size = 0

    def _remove(self, queue: DerivedQueue) -> None:
        """Drop the units of a topic that was deleted and made anew."""
        directory = self.directory_of(queue)
        if self._extension is not None:
            self._extension.remove(queue)
        if directory is None:
            return
        for path, file in self._made.pop(directory, {}).items():
            if file.is_made:
                self._files.remove(path)


class _StoreTimeClock:
    """Tells the store time of the record at hand, from which index files get their names."""

    def __init__(self) -> None:
        self.time_ms = 0

    def now_ms(self) -> int:
        """Return the store time of the record at hand."""
        return self.time_ms

    def monotonic(self) -> float:
        """Return the store time of the record at hand, in seconds."""
        return self.time_ms / 1000


class IndexWriter:
    """Feeds the engine's own key index."""

    def __init__(self, directory: Path, geometry: IndexGeometry, files: Files) -> None:
        self._directory = directory
        self._clock = _StoreTimeClock()
        self._files = files
        self._index = KeyIndex(
            directory,
            slots=geometry.slots,
            entries=geometry.entries,
            files=files,
            clock=self._clock,
        )
        self._entry_count = 0

    def add(self, records: Sequence[CheckedRecord]) -> None:
        """Enter the keys of the next records."""
        messages = [
            IndexedMessage(
                record.topic.decode("utf-8", "replace"),
                keys,
                record.physical_offset,
                record.store_timestamp,
            )
            for record in records
            if transaction_type(record.sys_flag) != TRANSACTION_ROLLBACK
            and (keys := index_keys(record.properties))
        ]
        count = sum(len(message.keys) for message in messages)
        self._entry_count += count
        files = self._index.files
        if files and count <= files[-1].entries - files[-1].count:
            self._index.insert(messages)
            return
        # A file is about to be made, and gets its name from the message it begins with.
        for message in messages:
            self._clock.time_ms = message.store_timestamp
            self._index.insert([message])

    def add_many(self, keys: SortedKeys) -> None:
        """Enter the keys of the next records as machine code has them."""
        self._entry_count += keys.count
        done = 0
        while done < keys.count:
            files = self._index.files
            if not files or files[-1].is_full:
                self._clock.time_ms = keys.entry(done)[2]
                count = 1
            else:
                count = files[-1].entries - files[-1].count
            self._index.insert_logged(keys.between(done, done + count))
            done += count

    def finish(self) -> tuple[int, int]:
        """Bring the files to stable storage; return how many files and entries there are."""
        file_count = len(self._index.files)
        self._index.write_headers()
        self._index.sync()
        self._index.close()
        if file_count:
            self._files.sync_directory(self._directory)
        return file_count, self._entry_count


def _extension(
    layout: StoreLayout, output: Path, files: Files, regions: Regions
) -> ExtensionWriter:
    return ExtensionWriter(
        output / DIRECTORY_NAME, layout, files, filters=kept_filters(layout), regions=regions
    )


def _make_index(layout: StoreLayout, regions: Regions, output: Path, files: Files) -> IndexWriter:
    geometry = find_geometry(layout, regions)
    if geometry is None:
        raise UnknownIndexShapeError(output)
    return IndexWriter(output / "index", geometry, files)
