"""One run of an archive, whatever it is made of: tasks write rows, then all of them count at once.

Stores (`store_archive`) and live topics (`live_archive`) differ in what is new and in how it is
read; the files that a run leaves behind are of one kind.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, TypeVar

from flintmq.offline.store_lock import hold_directory
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_manifest import (
    SHARED_VERSION,
    VERSION,
    ArchivedFile,
    ArchiveDirectory,
    Manifest,
    StoreRun,
    add_checksums,
)
from flintmq.spark.jobs.archive.archive_writer import WrittenFiles
from flintmq.spark.jobs.damages import Damages, added
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.runtime.spark_session import TaskSession
from flintmq.spark.runtime.stage_names import stage_name

_Result = TypeVar("_Result", covariant=True)
_NO_DAMAGES: Final = Damages()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """What a run has added, and left out; ``run`` is None when there was nothing new."""

    archive: Path
    run: int | None
    stores: tuple[StoreRun, ...]
    record_count: int
    record_bytes: int
    file_count: int
    file_bytes: int
    damages: Damages


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRules:
    """Which archive a run adds to, and what it puts up with.

    ``to`` must be a directory that driver and executors see under the same path.  Damage ends the
    run, or is left out with ``OnCorrupt.SKIP``.  ``allow_gap`` lets a run go on without what was
    deleted before it was archived.
    """

    to: Path
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    allow_gap: bool = False

    def __post_init__(self) -> None:
        if self.on_corrupt is OnCorrupt.ROW:
            reason = "damage has no row in an archive: it fails or is left out"
            raise ArchiveError(str(self.to), reason)


class RowTask(Protocol[_Result]):
    """Writes rows on an executor."""

    def run(self) -> _Result:
        """Write the rows; return what was written."""
        ...


class ArchiveRun:
    """A run that is being written; `begin_run` gives one."""

    def __init__(
        self, spark: TaskSession, target: ArchiveDirectory, known: Sequence[Manifest]
    ) -> None:
        self._spark = spark
        self._target = target
        self.root = target.root
        self.known = known
        """The runs before, oldest first."""
        self._number = target.next_run()

    @property
    def task_root(self) -> str:
        """Where tasks make their directories."""
        return str(self._target.pending / "tasks")

    @property
    def slots(self) -> int:
        """How many tasks can be at work together."""
        return self._spark.sparkContext.defaultParallelism

    def known_as(self, name: str) -> list[StoreRun]:
        """Return what earlier runs have archived of a store, oldest first."""
        return [one for manifest in self.known for one in manifest.stores if one.name == name]

    def done_by(self, tasks: Sequence[RowTask[_Result]]) -> list[_Result]:
        """Run tasks on the executors."""
        slices = self._spark.sparkContext.parallelize(tasks, max(len(tasks), 1))
        with stage_name(self._spark.sparkContext, "writing Parquet files"):
            return slices.map(_run).collect()

    def collect(self, written: Sequence[WrittenFiles]) -> tuple[ArchivedFile, ...]:
        """Take over the files of tasks that have succeeded."""
        return tuple(
            self._target.collect(Path(directory), file, self._number)
            for directory, files in written
            for file in files
        )

    def keep_state(self, number: int, contents: Mapping[str, bytes]) -> dict[str, str]:
        """Keep the state files of the store that has this number in the run; return digests."""
        self._target.keep_state(number, contents)
        return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}

    def publish(
        self,
        *,
        topics: tuple[str, ...] | None,
        on_corrupt: str,
        stores: Sequence[StoreRun],
        files: tuple[ArchivedFile, ...],
        damages_behind: Damages = _NO_DAMAGES,
    ) -> ArchiveReport:
        """Publish the run: from now on readers see it."""
        manifest = Manifest(
            run=self._number,
            created_ms=time.time_ns() // 1_000_000,
            topics=topics,
            on_corrupt=on_corrupt,
            stores=tuple(stores),
            files=files,
            version=SHARED_VERSION if any(file.topic is None for file in files) else VERSION,
        )
        self._target.publish(manifest)
        return self._report(self._number, manifest.stores, files, damages_behind)

    def nothing_new(
        self, stores: Sequence[StoreRun], damages_behind: Damages = _NO_DAMAGES
    ) -> ArchiveReport:
        """Return the report of a run that has found nothing new."""
        self._target.finish_without_run()
        return self._report(None, stores, (), damages_behind)

    def abandon(self) -> None:
        """Remove what was written, unless it is published."""
        self._target.abandon(self._number)

    def _report(
        self,
        run: int | None,
        stores: Sequence[StoreRun],
        files: Sequence[ArchivedFile],
        damages_behind: Damages,
    ) -> ArchiveReport:
        return ArchiveReport(
            archive=self.root,
            run=run,
            stores=tuple(stores),
            record_count=sum(store.record_count for store in stores),
            record_bytes=sum(store.record_bytes for store in stores),
            file_count=len(files),
            file_bytes=sum(file.size for file in files),
            damages=added([*(store.damages for store in stores), damages_behind]),
        )


@contextmanager
def begin_run(spark: TaskSession, to: Path, *, is_live: bool) -> Iterator[ArchiveRun]:
    """Yield a run to write; what is not published is removed, at the latest by the next run.

    Raises:
        ArchiveError: the archive is of the other kind.
        StoreInUseError: another run is adding to the archive.
    """
    target = ArchiveDirectory(to.resolve())
    target.own.mkdir(parents=True, exist_ok=True)
    with hold_directory(target.own):
        run = ArchiveRun(spark, target, target.prepare())
        # A store is followed by its log and a broker by its queues: of both, records would be
        # there twice.
        if any(one.is_live != is_live for manifest in run.known for one in manifest.stores):
            had, given = ("stores", "live topics") if is_live else ("live topics", "stores")
            raise ArchiveError(str(to), f"was made of {had}; {given} need another archive")
        try:
            yield run
        except BaseException:
            run.abandon()
            raise


def counted(store: StoreRun, files: Sequence[ArchivedFile]) -> StoreRun:
    """Return a store with the counts of what was written of it."""
    mine = [file for file in files if file.store == store.name]
    return replace(
        store,
        record_count=sum(file.rows for file in mine),
        record_bytes=sum(file.record_bytes for file in mine),
        checksum=add_checksums(*(file.checksum for file in mine)),
    )


def _run(task: RowTask[_Result]) -> _Result:
    return task.run()
