"""Restoring a store from an archive: the log, and from it everything else.

Tasks write records into log files that the driver has made (`restore_log`); a task that is run
again writes the same bytes at the same offsets.  Queues, index and checkpoint then
come from the rebuild of the log.  The store is built beside the output directory
and renamed when it is complete.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flintmq.format.delay_levels import DelayLevels
from flintmq.offline.errors import OutputError
from flintmq.offline.findings import Severity
from flintmq.offline.layout import SizeOptions
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_manifest import (
    ArchiveDirectory,
    Manifest,
    StoreRun,
    add_checksums,
    file_sha256,
)
from flintmq.spark.jobs.archive.restore_log import find_chunks, write_log
from flintmq.spark.jobs.archive.restore_plan import CHUNK_SIZE, ChunkGrid, LogPlan, plan_log
from flintmq.spark.jobs.damages import Damages, added
from flintmq.spark.jobs.rebuild.build_directory import RESTORE_SUFFIX, beside, open_run
from flintmq.spark.jobs.rebuild.parallel_rebuild import ParallelRebuildReport, rebuild
from flintmq.spark.jobs.rebuild.switch import sync_directory
from flintmq.spark.runtime.spark_session import TaskSession


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What was restored.

    ``is_exact`` says that the log has the bytes and offsets of the old one.  Otherwise the
    records have moved together: their physical offsets, and the message ids that are made of
    them, are new; everything else is equal.  ``problems`` are in words: holes in queues, where
    messages were gone before they were archived.  ``damages`` is what the archive has left out of
    the log that it was made of.
    """

    output: Path
    store: str
    is_exact: bool
    record_count: int
    record_bytes: int
    log_start: int
    log_end: int
    log_file_count: int
    queue_count: int
    index_file_count: int
    state_files: tuple[str, ...]
    problems: tuple[str, ...]
    damages: Damages


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """Which store of an archive is restored, and to where.

    ``out`` is new or empty.  ``store`` names one of several stores in the archive.  A task writes
    about ``chunk_size`` bytes of the log.
    """

    archive: Path
    out: Path
    store: str | None = None
    delay_levels: DelayLevels | None = None
    chunk_size: int = CHUNK_SIZE

    def __post_init__(self) -> None:
        if self.chunk_size < 1:
            raise ArchiveError(str(self.archive), f"a chunk of {self.chunk_size} bytes")


def restore(
    spark: TaskSession,
    archive: Path | str,
    out: Path | str,
    *,
    store: str | None = None,
    delay_levels: DelayLevels | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> RestoreReport:
    """Make a store directory of an archive; `RestoreRequest` explains the arguments."""
    request = RestoreRequest(
        archive=Path(archive),
        out=Path(out),
        store=store,
        delay_levels=delay_levels,
        chunk_size=chunk_size,
    )
    return restore_store(spark, request)


def restore_store(spark: TaskSession, request: RestoreRequest) -> RestoreReport:
    """Make a store directory of an archive.

    Raises:
        ArchiveError: there is no such store, or the records are not those that were archived.
        OutputError: ``out`` is not free.
        StoreInUseError: another run is restoring to ``out``.
    """
    target = ArchiveDirectory(request.archive.resolve())
    if not target.exists():
        raise ArchiveError(str(request.archive), "there is no archive")
    output = request.out.resolve()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise OutputError(output, "is not empty")
    runs = _runs_of(target, request.store)
    with open_run(beside(output, RESTORE_SUFFIX)) as build:
        job = _Restore(spark, target, runs, build, request.chunk_size)
        plan = job.write_log()
        state_files = job.restore_state()
        views = rebuild(
            spark, build, in_place=True, delay_levels=request.delay_levels, sizes=job.sizes
        )
        sync_directory(build)
        build.rename(output)
        sync_directory(output.parent)
    return job.report(output, plan, views, state_files)


def _runs_of(target: ArchiveDirectory, name: str | None) -> list[tuple[Manifest, int]]:
    """Return the runs that have a store, and its number in them."""
    manifests = target.manifests()
    names = list(dict.fromkeys(one.name for run in manifests for one in run.stores))
    if name is None and len(names) != 1:
        have = ", ".join(names) or "nothing"
        raise ArchiveError(str(target.root), f"name the store to restore; there is: {have}")
    wanted = names[0] if name is None else name
    # A store that got its name after its first run is known by its path.
    for run in manifests:
        for one in run.stores:
            if wanted not in names and one.broker_name == wanted:
                wanted = one.name
    found = [
        (run, number)
        for run in manifests
        for number, one in enumerate(run.stores)
        if one.name == wanted
    ]
    if not found:
        have = ", ".join(names) or "nothing"
        raise ArchiveError(str(target.root), f"there is no store {wanted!r}; there is: {have}")
    return found


class _Restore:
    """One restore, up to the log and the state files."""

    def __init__(
        self,
        spark: TaskSession,
        target: ArchiveDirectory,
        runs: Sequence[tuple[Manifest, int]],
        build: Path,
        chunk_size: int,
    ) -> None:
        self._spark = spark
        self._target = target
        self._runs = runs
        self._build = build
        self._stores: list[StoreRun] = [run.stores[number] for run, number in runs]
        self.last = self._stores[-1]
        self._grid = ChunkGrid(
            file_size=self.last.log_file_size,
            chunk_size=min(chunk_size, self.last.log_file_size),
        )

    @property
    def sizes(self) -> SizeOptions:
        """The sizes of files that the store had."""
        last = self.last
        return SizeOptions(
            log_file_size=last.log_file_size,
            queue_file_size=last.queue_file_size,
            hash_slots=last.hash_slots,
            index_entries=last.index_entries,
        )

    def write_log(self) -> LogPlan:
        """Write the log and compare it with what the manifests say."""
        context, archive = self._spark.sparkContext, self._target.root
        files = [
            file for run, _ in self._runs for file in run.files if file.store == self.last.name
        ]
        found = find_chunks(context, archive, files, self._grid)
        plan = plan_log(self._grid, [chunk for chunk, _ in found.values()], self._old_end())
        directory = self._build / "commitlog"
        directory.mkdir()
        holders = {number: holding for number, (_, holding) in found.items()}
        self._check(write_log(context, archive, directory, plan, holders))
        return plan

    def _old_end(self) -> int | None:
        """Return where the old log ended if every run has gone on where the one before ended."""
        if self.last.is_live:
            # Runs over queues overlap in the log; the records tell whether there is a hole.
            return max(store.end for store in self._stores)
        for before, after in zip(self._stores, self._stores[1:], strict=False):
            if after.start != before.end or after.log_file_size != before.log_file_size:
                return None
        return self.last.end

    def _check(self, written: tuple[int, int]) -> None:
        count = sum(store.record_count for store in self._stores)
        checksum = add_checksums(*(store.checksum for store in self._stores))
        if written != (count, checksum):
            reason = (
                f"gives {written[0]} records with the checksum {written[1]:#x}, while the "
                f"manifests have {count} with {checksum:#x}; the check of the archive tells more"
            )
            raise ArchiveError(str(self._target.root), reason)

    def restore_state(self) -> tuple[str, ...]:
        """Bring back the state files of the newest run."""
        manifest, number = self._runs[-1]
        source = self._target.state_directory(manifest.run, number)
        target = self._build / "config"
        target.mkdir()
        for name, digest in self.last.state_files.items():
            path = source / name
            if not path.is_file() or file_sha256(path) != digest:
                raise ArchiveError(str(path), "is not the state file that was archived")
            shutil.copyfile(path, target / name)
            with (target / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_directory(target)
        return tuple(self.last.state_files)

    def report(
        self,
        output: Path,
        plan: LogPlan,
        views: ParallelRebuildReport,
        state_files: tuple[str, ...],
    ) -> RestoreReport:
        return RestoreReport(
            output=output,
            store=self.last.name,
            is_exact=plan.is_exact,
            record_count=sum(store.record_count for store in self._stores),
            record_bytes=sum(store.record_bytes for store in self._stores),
            log_start=plan.file_starts[0] if plan.file_starts else 0,
            log_end=plan.end,
            log_file_count=len(plan.file_starts),
            queue_count=views.queue_count,
            index_file_count=views.index_file_count,
            state_files=state_files,
            problems=tuple(
                f"{finding.file}: {finding.reason}"
                for finding in views.findings.of(Severity.PROBLEM)
            ),
            damages=added(store.damages for store in self._stores),
        )
