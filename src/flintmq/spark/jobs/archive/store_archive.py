"""Archiving messages: Parquet by topic and day, from which the store can be restored exactly.

Each run reads, of every store, the log from where the run before has ended to the last whole
record.  A task reads one split, completes its rows (`archive_columns`) and proves there and then
that the record's own bytes come out again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from flintmq.kernels.compiled import as_bytes
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import find_log
from flintmq.offline.regions import Regions, open_for_reading
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_columns import (
    DAY,
    ROW_DAY,
    ROW_TOPIC,
    SEVERAL,
    ExactRows,
    archive_schema,
    shared_schema,
)
from flintmq.spark.jobs.archive.archive_manifest import (
    ArchivedFile,
    ArchiveDirectory,
    LastRecord,
    StoreRun,
)
from flintmq.spark.jobs.archive.archive_run import (
    ArchiveReport,
    ArchiveRules,
    ArchiveRun,
    begin_run,
    counted,
)
from flintmq.spark.jobs.archive.archive_writer import WrittenFiles, write_rows
from flintmq.spark.jobs.damages import DamagedRange, Damages, DamageTally, added
from flintmq.spark.jobs.log_damages import damages_behind
from flintmq.spark.options.store_options import AccessPath, OnCorrupt, ReadOptions
from flintmq.spark.rows.columns import MESSAGE
from flintmq.spark.runtime.spark_session import TaskSession
from flintmq.spark.stored.log_follower import LogFollower, LogRange
from flintmq.spark.stored.log_identity import record_at, record_before
from flintmq.spark.stored.log_read import LogRead
from flintmq.spark.stored.log_split import LogSplit
from flintmq.spark.stored.split_plan import StoreSplits, broker_name, store_directories

SPLIT_SIZE: Final = 256 << 20
"""Larger than for a scan: a task writes a file for each large topic and day that it meets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreArchiveRequest:
    """Which stores are archived, all topics of them or some, and by which rules.

    ``broker_names`` gives the name of a store by its directory, by the last component of that, or
    for all stores under "".
    """

    directories: tuple[str, ...]
    rules: ArchiveRules
    topics: tuple[str, ...] | None = None
    broker_names: Mapping[str, str] = field(default_factory=dict)
    split_size: int = SPLIT_SIZE

    def __post_init__(self) -> None:
        if not self.directories:
            raise ArchiveError(str(self.rules.to), "a run needs at least one directory")
        if self.split_size < 1:
            raise ArchiveError(str(self.rules.to), f"a split of {self.split_size} bytes")


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

    `ArchiveRules` and `StoreArchiveRequest` explain the arguments, `archive_stores` the errors.
    """
    request = StoreArchiveRequest(
        directories=tuple(directories),
        rules=ArchiveRules(to=Path(to), on_corrupt=on_corrupt, allow_gap=allow_gap),
        topics=None if topics is None else tuple(topics),
        broker_names=broker_names or {},
        split_size=split_size,
    )
    return archive_stores(spark, request)


def archive_stores(spark: TaskSession, request: StoreArchiveRequest) -> ArchiveReport:
    """Add to an archive what is new in some stores since its last run.

    Raises:
        ArchiveError: the archive holds another store of that name, was made of other topics or
            of live ones, or a range of the log is gone.
        StoreInUseError: another run is adding to the archive.
    """
    # Executors may run elsewhere, so paths are whole ones.
    names = {
        str(directory.absolute()): broker_name(directory, request.broker_names)
        for directory in store_directories(request.directories)
    }
    options = ReadOptions(
        paths=tuple(names),
        topics=None if request.topics is None else frozenset(request.topics),
        on_corrupt=request.rules.on_corrupt,
        # At the end of a log, queues may be behind it, or lead to what was cut off.
        access_path=AccessPath.LOG,
        split_size=request.split_size,
        broker_names={path: name for path, name in names.items() if name is not None},
    )
    with begin_run(spark, request.rules.to, is_live=False) as run:
        return _Stores(run, options, allow_gap=request.rules.allow_gap).add()


def archived_messages(
    spark: SparkSession, archive: Path | str, *, last_run: int | None = None
) -> DataFrame:
    """Return the rows of an archive, of the runs that count, or of those up to ``last_run``.

    Raises:
        ArchiveError: there is no archive, or its files are not those that the manifests name.
    """
    target = ArchiveDirectory(Path(archive).resolve())
    if not target.exists():
        raise ArchiveError(str(archive), "there is no archive")
    manifests = [
        manifest for manifest in target.manifests() if last_run is None or manifest.run <= last_run
    ]
    target.require_files(manifests)
    paths = [str(target.run_directory(manifest.run)) for manifest in manifests]
    if not paths:
        return spark.createDataFrame([], archive_schema())

    def rows(schema: StructType) -> DataFrame:
        # A schema of our own: Spark would take a topic for a number if all of them look like one.
        reader = spark.read.schema(schema).option("basePath", str(target.messages))
        return reader.parquet(*paths)

    if not any(file.topic is None for manifest in manifests for file in manifest.files):
        return rows(archive_schema())
    # Two scans, so that Spark passes over directories of other topics in one, and over row groups
    # in the other.
    own = rows(archive_schema()).where(F.col(DAY) != SEVERAL)
    shared = rows(shared_schema()).where(F.col(DAY) == SEVERAL)
    renamed = shared.drop("topic", DAY).withColumnsRenamed({ROW_TOPIC: "topic", ROW_DAY: DAY})
    return own.unionByName(renamed).select(*archive_schema().names)


class _Stores:
    """One run over stores."""

    def __init__(self, run: ArchiveRun, options: ReadOptions, *, allow_gap: bool) -> None:
        self._run = run
        self._options = options
        self._allow_gap = allow_gap

    def add(self) -> ArchiveReport:
        self._check_topics()
        begun = [self._begin(Path(path)) for path in self._options.paths]
        stores = [store for store, _ in begun]
        behind = added(damages for _, damages in begun)
        names = [store.name for store in stores]
        for name in names:
            if names.count(name) > 1:
                raise ArchiveError(name, "two directories have this name; give them brokerNames")
        if all(store.start == store.end for store in stores):
            return self._run.nothing_new(stores, behind)
        files, damages = self._write(stores)
        return self._run.publish(
            topics=self._topics,
            on_corrupt=self._options.on_corrupt.value,
            stores=[
                replace(
                    self._finished(number, store, files),
                    damages=added([store.damages, damages[store.name]]),
                )
                for number, store in enumerate(stores)
            ],
            files=files,
            damages_behind=behind,
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

    def _begin(self, directory: Path) -> tuple[StoreRun, Damages]:
        """Return what is new in a store, without its counts, and what is damaged behind it.

        The damages of the store are what is gone before that.
        """
        plan = StoreSplits(directory, self._options)
        log = LogFollower(directory, self._options)
        found = log.look()
        name, before = self._known(directory, plan.broker_name)
        start, gap = found.start, Damages()
        if before:
            start, gap = self._go_on(directory, before, found)
        with Regions(plan.layout.files) as regions:
            geometry = find_geometry(plan.layout, regions)
        run = StoreRun(
            name=name,
            path=str(directory),
            broker_name=plan.broker_name,
            start=start,
            end=found.end,
            record_count=0,
            record_bytes=0,
            checksum=0,
            last=_last_record(plan, start, found.end),
            log_file_size=plan.layout.log_file_size,
            queue_file_size=plan.layout.queue_file_size,
            hash_slots=None if geometry is None else geometry.slots,
            index_entries=None if geometry is None else geometry.entries,
            damages=gap,
        )
        return run, damages_behind(log, self._options)

    def _known(self, directory: Path, broker_name: str | None) -> tuple[str, list[StoreRun]]:
        """Return under which name the archive knows a store, and what it has of it.

        A store whose name was not given at first goes on under its path, which rows have already.
        """
        path = str(directory.resolve())
        for name in (broker_name, path):
            if name is not None and (before := self._run.known_as(name)):
                return name, before
        return broker_name or path, []

    def _go_on(
        self, directory: Path, before: Sequence[StoreRun], found: LogRange
    ) -> tuple[int, Damages]:
        """Return where to go on, and what is gone between there and the end of the run before.

        ArchiveError if this is not the same store, or something is gone and that is not allowed.
        """
        end = before[-1].end
        last = next((one.last for one in reversed(before) if one.last is not None), None)
        if last is not None and found.start <= last.physical_offset:
            self._require_record(directory, last, "archived")
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
            size = found.start - end
            gap = DamagedRange(str(directory), end, size, "was deleted before it was archived")
            return found.start, Damages(1, size, (gap,))
        return end, Damages()

    def _require_record(self, directory: Path, last: LastRecord, done: str) -> None:
        """Raise ArchiveError if a log has another record than the one that was read."""
        now = record_at(find_log(directory), last.physical_offset)
        if now is None or (now.size, now.sha256) != (last.size, last.sha256):
            reason = (
                f"the record at {last.physical_offset} is not the one that was {done}: the log was "
                "cut back and written anew, or it is another store of this name; it needs another "
                "archive"
            )
            raise ArchiveError(str(directory), reason)

    def _write(
        self, stores: Sequence[StoreRun]
    ) -> tuple[tuple[ArchivedFile, ...], dict[str, Damages]]:
        """Write the new rows of all stores; return the files, and what each store lacks."""
        splits = [
            (store.name, split)
            for store in stores
            for split in StoreSplits(Path(store.path), self._options).between(
                store.start, store.end
            )
        ]
        tasks = [
            ArchiveTask(number, name, split, self._options, self._run.task_root)
            for number, (name, split) in enumerate(splits)
        ]
        done = self._run.done_by(tasks)
        for store in stores:
            # Had the log been cut back meanwhile, nobody would know which of its states was read.
            if store.last is not None and store.start < store.end:
                self._require_record(Path(store.path), store.last, "read")
        damages = {
            store.name: added(
                one.damages
                for one, (name, _) in zip(done, splits, strict=True)
                if name == store.name
            )
            for store in stores
        }
        return self._run.collect([one.written for one in done]), damages

    def _finished(self, number: int, store: StoreRun, files: Sequence[ArchivedFile]) -> StoreRun:
        """Return a store with what was written of it, its state files copied."""
        return replace(
            counted(store, files),
            state_files=self._run.keep_state(number, _state_of(Path(store.path))),
        )


class ArchivedSplit(NamedTuple):
    """What a task has written of a split, and what it has passed over."""

    written: WrittenFiles
    damages: Damages


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """Archives one split, on an executor."""

    number: int
    store: str
    split: LogSplit
    options: ReadOptions
    root: str

    def run(self) -> ArchivedSplit:
        """Write the rows; return where, which files, and what was passed over."""
        tally = DamageTally(self.split.store)
        written = write_rows(self.root, self.store, self.number, self._rows(tally))
        return ArchivedSplit(written, tally.damages())

    def _rows(self, tally: DamageTally) -> Iterator[pa.RecordBatch]:
        split = self.split
        region = None if split.gap else open_for_reading(split.files, Path(split.path))
        read = LogRead.from_options(self.options, MESSAGE.arrow())
        rows = read.batches(split, tally.add)
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
    for path in find_log(directory).state_files:
        try:
            found[path.name] = path.read_bytes()
        except FileNotFoundError:
            continue  # Java deletes a file before it renames the new one; a backup is there.
    return found


def _last_record(plan: StoreSplits, start: int, end: int) -> LastRecord | None:
    """Return what a store is known by: the record before the place where its log ends."""
    found = record_before(plan, end, start=start)
    if found is None:
        return None
    return LastRecord(physical_offset=found.physical_offset, size=found.size, sha256=found.sha256)
