"""Archiving messages: Parquet by topic and day, from which the store can be restored exactly.

Each run reads, of every store, the log from where the run before has ended to the last whole
record.  A task reads one split, completes its rows (`archive_columns`) and proves there and then
that the record's own bytes come out again.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from flintmq.kernels.compiled import as_bytes
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions, open_for_reading
from flintmq.spark.columns import MESSAGE
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive_columns import ExactRows, archive_schema
from flintmq.spark.jobs.archive_manifest import (
    ArchivedFile,
    ArchiveDirectory,
    LastRecord,
    StoreRun,
)
from flintmq.spark.jobs.archive_run import ArchiveReport, ArchiveRun, begin_run, counted
from flintmq.spark.jobs.archive_writer import Written, write_rows
from flintmq.spark.log_end import LogEnd, LogRange
from flintmq.spark.log_read import LogRead
from flintmq.spark.options import AccessPath, OnCorrupt, ReadOptions
from flintmq.spark.plan import StorePlan, broker_name, store_directories
from flintmq.spark.session import TaskSession
from flintmq.spark.split_scan import LogSplit

SPLIT_SIZE: Final = 256 << 20
"""Larger than for a scan: a task writes a file for each topic and day that it meets."""


def archive(
    spark: TaskSession,
    directories: Sequence[str],
    to: Path | str,
    *,
    topics: Sequence[str] | None = None,
    broker_names: Mapping[str, str] | None = None,
    on_corrupt: OnCorrupt = OnCorrupt.FAIL,
    split_size: int = SPLIT_SIZE,
    allow_gap: bool = False,
) -> ArchiveReport:
    """Add to the archive ``to`` what is new in some stores since its last run.

    ``to`` must be a directory that driver and executors see under the same path.  Damage ends
    the run, or is left out with ``OnCorrupt.SKIP``.  ``allow_gap`` lets a run begin behind what a
    broker has deleted meanwhile.

    Raises:
        ArchiveError: the archive holds another store of that name, was made of other topics or
            of live ones, or a part of the log is gone.
        StoreInUseError: another run is adding to the archive.
    """
    if on_corrupt is OnCorrupt.ROW:
        raise ArchiveError(str(to), "damage has no row in an archive: it fails or is left out")
    # Executors may run elsewhere, so paths are whole ones.
    names = {
        str(directory.absolute()): broker_name(directory, broker_names or {})
        for directory in store_directories(tuple(directories))
    }
    options = ReadOptions(
        paths=tuple(names),
        topics=None if topics is None else frozenset(topics),
        on_corrupt=on_corrupt,
        # At the end of a log, queues may be behind it, or lead to what was cut off.
        access_path=AccessPath.LOG,
        split_size=split_size,
        broker_names={path: name for path, name in names.items() if name is not None},
    )
    with begin_run(spark, to, is_live=False) as run:
        return _Stores(run, options, allow_gap=allow_gap).add()


def archived_messages(spark: SparkSession, archive: Path | str) -> DataFrame:
    """Return the rows of an archive, of the runs that count."""
    target = ArchiveDirectory(Path(archive).resolve())
    if not target.exists():
        raise ArchiveError(str(archive), "there is no archive")
    paths = [str(target.run_directory(manifest.run)) for manifest in target.manifests()]
    if not paths:
        return spark.createDataFrame([], archive_schema())
    # A schema of our own: Spark would take a topic for a number if all of them look like one.
    reader = spark.read.schema(archive_schema()).option("basePath", str(target.messages))
    return reader.parquet(*paths)


class _Stores:
    """One run over stores."""

    def __init__(self, run: ArchiveRun, options: ReadOptions, *, allow_gap: bool) -> None:
        self._run = run
        self._options = options
        self._allow_gap = allow_gap

    def add(self) -> ArchiveReport:
        self._check_topics()
        stores = [self._begin(Path(path)) for path in self._options.paths]
        names = [store.name for store in stores]
        for name in names:
            if names.count(name) > 1:
                raise ArchiveError(name, "two directories have this name; give them brokerNames")
        if all(store.start == store.end for store in stores):
            return self._run.nothing_new(stores)
        files = self._write(stores)
        return self._run.publish(
            topics=self._topics,
            on_corrupt=self._options.on_corrupt.value,
            stores=[self._finished(number, store, files) for number, store in enumerate(stores)],
            files=files,
        )

    @property
    def _topics(self) -> tuple[str, ...] | None:
        topics = self._options.topics
        return None if topics is None else tuple(sorted(topics))

    def _check_topics(self) -> None:
        for manifest in self._run.known[:1]:
            if manifest.topics != self._topics:
                had, given = (
                    "all topics" if topics is None else ", ".join(topics)
                    for topics in (manifest.topics, self._topics)
                )
                reason = f"was made of {had}, and this run is of {given}"
                raise ArchiveError(str(self._run.root), reason)

    def _begin(self, directory: Path) -> StoreRun:
        """Return what is new in a store, without its counts."""
        plan = StorePlan(directory, self._options)
        found = LogEnd(directory, self._options).look()
        name = plan.broker_name or str(directory.resolve())
        before = self._run.known_as(name)
        start = found.start
        if before:
            start = self._go_on(directory, before, found)
        with Regions(plan.layout.files) as regions:
            geometry = find_geometry(plan.layout, regions)
        return StoreRun(
            name=name,
            path=str(directory),
            broker_name=plan.broker_name,
            start=start,
            end=found.end,
            record_count=0,
            record_bytes=0,
            checksum=0,
            last=None,
            log_file_size=plan.layout.log_file_size,
            queue_file_size=plan.layout.queue_file_size,
            hash_slots=None if geometry is None else geometry.slots,
            index_entries=None if geometry is None else geometry.entries,
        )

    def _go_on(self, directory: Path, before: Sequence[StoreRun], found: LogRange) -> int:
        """Return where the run before has ended; ArchiveError if this is not the same store."""
        end = before[-1].end
        last = next((one.last for one in reversed(before) if one.last is not None), None)
        if last is not None and found.start <= last.physical_offset:
            now = _record_digest(directory, last.physical_offset)
            if now != (last.size, last.sha256):
                reason = (
                    f"the archive holds another store of this name: its record at "
                    f"{last.physical_offset} is not the one that was archived"
                )
                raise ArchiveError(str(directory), reason)
        if found.end < end:
            reason = f"the log ends at {found.end}, before what was archived, {end}"
            raise ArchiveError(str(directory), reason)
        if found.start > end:
            if not self._allow_gap:
                reason = (
                    f"the log starts at {found.start}; from {end} on it was deleted before it was "
                    "archived (allow_gap goes on without it)"
                )
                raise ArchiveError(str(directory), reason)
            return found.start
        return end

    def _write(self, stores: Sequence[StoreRun]) -> tuple[ArchivedFile, ...]:
        """Write the new rows of all stores; return the files."""
        places = [
            (store.name, split)
            for store in stores
            for split in StorePlan(Path(store.path), self._options).between(store.start, store.end)
        ]
        tasks = [
            ArchiveTask(number, name, split, self._options, self._run.task_root)
            for number, (name, split) in enumerate(places)
        ]
        return self._run.collect(self._run.done_by(tasks))

    def _finished(self, number: int, store: StoreRun, files: Sequence[ArchivedFile]) -> StoreRun:
        """Return a store with what was written of it, its state files copied."""
        last = max((file.last for file in files if file.store == store.name), default=None)
        return replace(
            counted(store, files),
            last=last_record(store.path, last),
            state_files=self._run.keep_state(number, _state_of(Path(store.path))),
        )


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """Archives one split, on an executor."""

    number: int
    store: str
    split: LogSplit
    options: ReadOptions
    root: str

    def run(self) -> Written:
        """Write the rows; return where, and which files."""
        return write_rows(self.root, self.store, self.number, self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        split = self.split
        region = None if split.gap else open_for_reading(split.files, Path(split.path))
        rows = LogRead.from_options(self.options, MESSAGE.arrow()).batches(split)
        if region is None:
            # The reader fails over the missing file, or leaves it out.
            assert not list(rows)
            return
        exact = ExactRows(self.store)
        with closing(region):
            for batch in rows:
                positions = batch.column("physicalOffset").to_numpy() - split.file_start
                yield exact.complete(batch, as_bytes(region.view), positions)


def _state_of(directory: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in find_store(directory).state_files:
        try:
            found[path.name] = path.read_bytes()
        except FileNotFoundError:
            continue  # Java deletes a file before it renames the new one; a backup is there.
    return found


def _record_digest(directory: Path, physical_offset: int) -> tuple[int, str] | None:
    layout = find_store(directory)
    with Regions(layout.files) as regions:
        log = LogFiles(layout, regions)
        record, file = log.record_at(physical_offset), log.find(physical_offset)
        view = None if file is None else regions.view(file.path)
        if record is None or file is None or view is None:
            return None
        at = physical_offset - file.first_offset
        return record.size, hashlib.sha256(bytes(view[at : at + record.size])).hexdigest()


def last_record(directory: str, physical_offset: int | None) -> LastRecord | None:
    """Return what a store is known by: its record at an offset."""
    if physical_offset is None:
        return None
    found = _record_digest(Path(directory), physical_offset)
    if found is None:
        return None
    return LastRecord(physical_offset=physical_offset, size=found[0], sha256=found[1])
