"""What a replay reads: the messages of store directories or of an archive, range by range.

The ranges of one store follow each other in the order of its log, so the messages of each queue
come in their order.  A range gives the same messages whenever it is read, or an error: an offset is
no identity, so each log comes with a proof of what it was when the replay was planned.
"""

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from flintmq.offline.layout import find_log
from flintmq.spark.errors import ArchiveError, CorruptLogError, PathError
from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.archive.store_archive import archived_messages
from flintmq.spark.jobs.damages import Damages, DamageTally, added
from flintmq.spark.jobs.log_damages import damages_behind
from flintmq.spark.jobs.query.query_views import is_archive
from flintmq.spark.options.store_options import AccessPath, OnCorrupt, ReadOptions
from flintmq.spark.rows.columns import MESSAGE
from flintmq.spark.runtime.failures import JobError
from flintmq.spark.stored.log_follower import Allowance, LogFollower
from flintmq.spark.stored.log_identity import RecordIdentity, is_same_log, record_before
from flintmq.spark.stored.log_read import LogRead
from flintmq.spark.stored.log_split import LogSplit
from flintmq.spark.stored.split_plan import StoreSplits, store_directories
from flintmq.spark.stored.split_scan import SplitDamage

COLUMNS: Final = tuple(MESSAGE.kinds)


class ReplayLossError(PathError):
    """What a replay was to send is not in its source any more."""


class ReplayRange(NamedTuple):
    """A range of one store's log; the offsets are physical.

    ``proof`` shows that the log is the one that was planned with.  It is empty for a log without
    records, and in plans of earlier versions.
    """

    store: str
    start: int
    end: int
    proof: str = ""


class ReplaySource(Protocol):
    """Where messages come from."""

    def logs(self) -> list[ReplayRange]:
        """Return all that there is of each store."""
        ...

    def range_end(self, log: ReplayRange, start: int, size: int) -> int:
        """Return where a range ends that starts at ``start`` and has about ``size`` bytes."""
        ...

    def check(self, log_range: ReplayRange) -> None:
        """Raise ReplayLossError if the source is not the one that its proof was made of."""
        ...

    def messages(self, log_range: ReplayRange) -> DataFrame:
        """Return the messages of a range, with the columns COLUMNS."""
        ...

    def damages(self, logs: Sequence[ReplayRange]) -> Damages:
        """Return what these logs lack because it is damaged."""
        ...


def open_source(
    spark: SparkSession, sources: Sequence[str], *, on_corrupt: OnCorrupt = OnCorrupt.FAIL
) -> ReplaySource:
    """Return store directories, or one archive."""
    archives = [source for source in sources if is_archive(source)]
    if not archives:
        return StoreSource(spark, sources, on_corrupt)
    if len(sources) > 1:
        raise JobError(f"{archives[0]} is an archive; it can only be replayed alone")
    return ArchiveSource(spark, archives[0])


class ArchiveSource:
    """The messages of an archive."""

    def __init__(self, spark: SparkSession, archive: str) -> None:
        self._spark = spark
        self._directory = ArchiveDirectory(Path(archive).resolve())
        if not self._directory.exists():
            raise ArchiveError(archive, "there is no archive")

    def logs(self) -> list[ReplayRange]:
        """Return what all runs together have archived of each store."""
        found: dict[str, ReplayRange] = {}
        manifests = self._directory.manifests()
        proof = self._proof(manifests[-1].run) if manifests else ""
        for manifest in manifests:
            for run in manifest.stores:
                if run.start == run.end:
                    continue  # Nothing was archived; for a broker the offsets are not even known.
                # Runs of live topics may overlap: a queue that is new to one begins far before.
                before = found.get(run.name, ReplayRange(run.name, run.start, run.end))
                start, end = min(before.start, run.start), max(before.end, run.end)
                found[run.name] = ReplayRange(run.name, start, end, proof)
        return list(found.values())

    def _proof(self, run: int) -> str:
        """Return what an archive is known by: its last run, and the digest of that's manifest."""
        return f"{run}:{self._directory.manifest_sha256(run)}"

    def check(self, log_range: ReplayRange) -> None:
        """Raise ReplayLossError if the archive is another one than that of the plan."""
        run = _run_of(log_range)
        if run is None:
            return
        known = [manifest.run for manifest in self._directory.manifests()]
        if run not in known or self._proof(run) != log_range.proof:
            reason = f"is another archive than the one that the replay began with, to run {run}"
            raise ReplayLossError(str(self._directory.root), reason)

    def range_end(self, log: ReplayRange, start: int, size: int) -> int:
        """Return an offset that may be anywhere: rows are compared with it."""
        return min(log.end, start + size)

    def messages(self, log_range: ReplayRange) -> DataFrame:
        """Return the rows of a range as the plan knew it; files without any are not read."""
        # A later run may have rows in the range, of queues that were new to it.
        rows = archived_messages(self._spark, self._directory.root, last_run=_run_of(log_range))
        rows = rows.where(F.col("store") == log_range.store)
        return rows.where(
            F.col("physicalOffset").between(log_range.start, log_range.end - 1)
        ).select(*COLUMNS)

    def damages(self, logs: Sequence[ReplayRange]) -> Damages:
        """Return what the runs of the archive have left out."""
        return added(self._directory.damages(log.store) for log in logs)


def _run_of(log_range: ReplayRange) -> int | None:
    """Return the last run of an archive that a plan knows of, None if it does not say."""
    return int(log_range.proof.partition(":")[0]) if log_range.proof else None


class StoreSource:
    """The messages of store directories; those that come later are not looked at."""

    def __init__(
        self, spark: SparkSession, directories: Sequence[str], on_corrupt: OnCorrupt
    ) -> None:
        self._spark = spark
        # Executors may run elsewhere, so paths are whole ones.
        self._paths = [
            str(directory.absolute()) for directory in store_directories(tuple(directories))
        ]
        self._options = ReadOptions(
            paths=tuple(self._paths),
            on_corrupt=on_corrupt,
            access_path=AccessPath.LOG,
            broker_names={},
        )
        self._behind: list[Damages] = []

    def logs(self) -> list[ReplayRange]:
        """Return each log as far as there are whole records."""
        found = []
        for path in self._paths:
            log = LogFollower(Path(path), self._options)
            start, end = log.look()
            last = record_before(StoreSplits(Path(path), self._options, log_only=True), end)
            proof = "" if last is None else json.dumps(last)
            found.append(ReplayRange(path, start, end, proof))
            self._behind.append(damages_behind(log, self._options))
        return found

    def check(self, log_range: ReplayRange) -> None:
        """Raise ReplayLossError if the log has another record at the end of what was planned."""
        if not log_range.proof:
            return
        last = RecordIdentity.from_members(json.loads(log_range.proof))
        layout = find_log(Path(log_range.store))
        if last is None or not layout.log_files or not is_same_log(layout, last):
            reason = (
                "is not the log that the replay began with: it was cut back and written anew, or "
                "it is another store"
            )
            raise ReplayLossError(log_range.store, reason)

    def range_end(self, log: ReplayRange, start: int, size: int) -> int:
        """Return where a record stands, or the end."""
        found = LogFollower(Path(log.store), self._options).advance(start, Allowance(size=size))
        # Where a walk cannot pass, whoever reads the rest meets what is wrong with it.
        return min(log.end, found) if found > start else log.end

    def messages(self, log_range: ReplayRange) -> DataFrame:
        """Return the messages of a range."""
        return self._splits([log_range]).mapInArrow(
            _SplitRows(self._options).read, MESSAGE.struct()
        )

    def damages(self, logs: Sequence[ReplayRange]) -> Damages:
        """Return what is passed over, for which the logs are read once more."""
        if self._options.on_corrupt is OnCorrupt.FAIL:
            return added(self._behind)
        table = self._splits(logs).mapInArrow(_SplitDamages(self._options).read, "damages binary")
        found = [pickle.loads(row["damages"]) for row in table.collect()]
        return added([*found, *self._behind])

    def _splits(self, ranges: Sequence[ReplayRange]) -> DataFrame:
        """Return a table with one row, and one partition, for each split of some ranges."""
        rows = [(pickle.dumps(split),) for one in ranges for split in self._splits_of(one)]
        table = self._spark.createDataFrame(rows, "split binary")
        return table.repartition(max(1, len(rows)))

    def _splits_of(self, log_range: ReplayRange) -> list[LogSplit]:
        """Return the splits of a range; ReplayLossError if files of it were deleted meanwhile."""
        plan = StoreSplits(Path(log_range.store), self._options)
        splits = list(plan.between(log_range.start, log_range.end))
        begin = plan.layout.log_files[0].first_offset if plan.layout.log_files else None
        end = splits[-1].end if splits else log_range.start
        if log_range.start < log_range.end and (
            begin is None or begin > log_range.start or end < log_range.end
        ):
            reason = (
                f"what the replay was to send from {log_range.start} to {log_range.end} is not in "
                "the log any more"
            )
            raise ReplayLossError(log_range.store, reason)
        return splits


@dataclass(frozen=True, slots=True)
class _SplitRows:
    """Reads splits on executors."""

    options: ReadOptions

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the splits that rows hold."""
        log = LogRead.from_options(self.options, MESSAGE.arrow())
        for batch in batches:
            for split in _unpickled(batch):
                yield from log.batches(split, partial(_check_deleted, split))


@dataclass(frozen=True, slots=True)
class _SplitDamages:
    """Looks on executors for what splits lack."""

    options: ReadOptions

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row for each split that rows hold."""
        log = LogRead.from_options(self.options, pa.schema([MESSAGE.arrow().field("body")]))
        for batch in batches:
            found = []
            for split in _unpickled(batch):
                tally = DamageTally(split.store)
                for _ in log.batches(split, tally.add):
                    pass
                found.append(pickle.dumps(tally.damages()))
            yield pa.RecordBatch.from_pydict({"damages": pa.array(found, pa.binary())})


def _unpickled(batch: pa.RecordBatch) -> Iterator[LogSplit]:
    for pickled in batch.column("split").to_pylist():
        # The driver has made it, a moment ago and for this job.
        yield pickle.loads(pickled)


def _check_deleted(split: LogSplit, damage: SplitDamage) -> None:
    """Raise an error for messages that were counted and are gone now: nothing tells how many."""
    if damage.is_deleted:
        raise CorruptLogError(split.path, damage.start, damage.end, damage.reason)
