"""Rebuilding consume queues and key index of a store from its log, in parallel.

Two stages of tasks, and nothing but small answers goes through the driver:

1. Each task walks a part of the log (`flintmq.spark.log_parts`) and leaves the units of its
   records, queue by queue, and the entries of their keys in a spool.
2. The driver knows how many keys each part has, so each index file is one task.  The queues are
   dealt out to the other tasks; each feeds the runs of its queues in log order to the writer of
   the serial rebuild, which alone says what a gap or a repeated offset means.

The bytes are those of `flintmq.offline.rebuild`, and so those that the engine writes.  Memory
follows the size of a part and the slots of an index file, not the size of the store.

The views are built beside their place, synced and read back, and then switched.  Up to that
moment the old files are untouched.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from flintmq.format.checkpoint import CheckpointMarks
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.offline.errors import OutputError, RequestError
from flintmq.offline.findings import Findings, Kind
from flintmq.offline.index_geometry import IndexGeometry, find_geometry
from flintmq.offline.layout import SizeOptions, StoreLayout, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.rebuild import check_output
from flintmq.offline.regions import Regions
from flintmq.offline.scan import LogScan, Progress
from flintmq.offline.store_lock import hold_directory, refuse_running
from flintmq.spark.derived import MORE_LEVELS
from flintmq.spark.jobs.build_directory import (
    beside,
    earlier_builds,
    open_build,
    views_directory,
    within,
)
from flintmq.spark.jobs.checkpoint_marks import CheckpointPage
from flintmq.spark.jobs.rebuild_index import IndexFile, index_names, plan_index
from flintmq.spark.jobs.rebuild_stages import (
    DerivedPart,
    DeriveStage,
    QueuePartition,
    QueueTask,
    RebuildPlan,
    ViewTask,
    WriteStage,
)
from flintmq.spark.jobs.switch import (
    finish_interrupted,
    refuse_elsewhere,
    switch_views,
    sync_directory,
)
from flintmq.spark.log_parts import (
    PART_SIZE,
    TASKS_PER_CORE,
    join_scans,
    plan_parts,
    settle,
    task_count,
)
from flintmq.spark.log_walk import LogPart
from flintmq.spark.session import TaskSession

INDEX_ENTRIES_MIN: Final = 2
"""Entry zero of an index file is never used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild made, and what of the log it could not use."""

    root: Path
    output: Path
    """Where ``consumequeue`` and ``index`` are now: the store itself after ``in_place``."""
    in_place: bool
    record_count: int
    queue_count: int
    unit_count: int
    index_file_count: int
    index_entry_count: int
    part_count: int
    """In how many parts the log was read."""
    findings: Findings


def rebuild(
    spark: TaskSession,
    directory: Path | str,
    *,
    out: Path | str | None = None,
    in_place: bool = False,
    queues: bool = True,
    index: bool = True,
    delay_levels: DelayLevels | None = None,
    log_directories: Sequence[Path] = (),
    sizes: SizeOptions | None = None,
    split_size: int = PART_SIZE,
    progress: Progress | None = None,
) -> RebuildReport:
    """Make queues and index of a store anew, in the new directory ``out`` or in place.

    Raises:
        StoreInUseError: a broker runs in the store.
        OutputError: ``out`` is not new or empty, or the shape of the index is unknown.
        RebuildError: what was written is not what was meant; nothing was switched.
    """
    if (out is None) != in_place:
        raise RequestError("a rebuild needs either an output directory or to be in place")
    if not (queues or index):
        raise RequestError("neither queues nor index are to be rebuilt")
    root = Path(directory)
    find = partial(find_store, root, log_directories=log_directories, sizes=sizes)
    with ExitStack() as stack:
        # Before anything is written into it, it must be a store.
        layout = find()
        if out is None:
            layout = _claim(stack, root, find)
            output, build_path = root, within(root)
        else:
            refuse_running(root)
            output, build_path = Path(out), beside(Path(out))
            check_output(layout, output, files=layout.files)
        geometry = _geometry(layout, output) if index else None
        parts = plan_parts([layout], split_size)
        plan = RebuildPlan(
            layout=layout,
            build=stack.enter_context(open_build(build_path)),
            queues=queues,
            index=index,
            delay_levels=delay_levels or DelayLevels.parse(DEFAULT_DELAY_LEVELS),
            partition_count=_partition_count(parts, spark.sparkContext.defaultParallelism),
            geometry=geometry,
        )
        job = _Rebuild(spark.sparkContext, plan, progress)
        job.run(parts)
        if in_place:
            _switch_in_place(job, root, plan.build)
        else:
            _publish(plan.build, output)
        return job.report(root, output, in_place=in_place)


def _claim(stack: ExitStack, root: Path, find: Callable[[], StoreLayout]) -> StoreLayout:
    """Hold a store that is changed in place; return how it looks once nobody else changes it."""
    refuse_elsewhere(root)
    stack.enter_context(hold_directory(root))
    finish_interrupted(root, earlier_builds(within(root)))
    return find()


def _partition_count(parts: Sequence[LogPart], core_count: int) -> int:
    """Return into how many tasks the queues are dealt out, so that no core waits long."""
    return min(task_count(parts, core_count), TASKS_PER_CORE * core_count)


def _geometry(layout: StoreLayout, output: Path) -> IndexGeometry:
    with Regions(layout.files) as regions:
        geometry = find_geometry(layout, regions)
    if geometry is not None and geometry.entries < INDEX_ENTRIES_MIN:
        raise OutputError(output, f"an index file of {geometry.entries} entries has room for none")
    if geometry is None:
        reason = "the shape of the index files is unknown; give --hash-slots and --index-entries"
        raise OutputError(output, reason)
    return geometry


class _Rebuild:
    """The stages of one rebuild, and what the driver learns from them."""

    def __init__(self, context: SparkContext, plan: RebuildPlan, progress: Progress | None) -> None:
        self._context = context
        self._plan = plan
        self._progress = progress
        self._shared = context.broadcast(plan)
        self.parts: list[DerivedPart] = []
        self.partitions: list[QueuePartition] = []
        self.index_files: list[IndexFile] = []
        self.index_names: list[str] = []

    def run(self, parts: list[LogPart]) -> None:
        """Read the log and leave the finished views in the build directory."""
        self.parts = settle(parts, self._derive)
        spools = [part.spool for part in self.parts]
        tasks: list[ViewTask] = []
        if self._plan.geometry is not None:
            tasks += plan_index(spools, self._plan.geometry)
        if self._plan.queues:
            tasks += [QueueTask(number) for number in range(self._plan.partition_count)]
        if tasks:
            stage = WriteStage(self._shared, self._context.broadcast(spools))
            core_count = self._context.defaultParallelism
            count = max(task_count(parts, core_count), TASKS_PER_CORE * core_count)
            shares = self._context.parallelize(tasks, min(len(tasks), count))
            for files in shares.map(stage).collect():
                if isinstance(files, IndexFile):
                    self.index_files.append(files)
                else:
                    self.partitions.append(files)
        self._collect()

    def _derive(self, parts: list[LogPart]) -> list[DerivedPart]:
        if self._progress is not None:
            self._progress(0, sum(part.bound - part.start for part in parts))
        stage = DeriveStage(self._shared)
        count = task_count(parts, self._context.defaultParallelism)
        found: list[DerivedPart] = self._context.parallelize(parts, count).map(stage).collect()
        if self._progress is not None:
            size = sum(part.bound - part.start for part in parts)
            self._progress(size, size)
        return found

    def _collect(self) -> None:
        """Move what the tasks have written together, under its final names."""
        views = views_directory(self._plan.build)
        for wanted, name in ((self._plan.queues, "consumequeue"), (self._plan.index, "index")):
            if wanted:
                (views / name).mkdir()
        topics: dict[str, None] = {}
        for partition in self.partitions:
            if not partition.directory.exists():
                continue
            for topic in sorted(partition.directory.iterdir()):
                (views / "consumequeue" / topic.name).mkdir(exist_ok=True)
                topics[topic.name] = None
                for queue in sorted(topic.iterdir()):
                    queue.rename(views / "consumequeue" / topic.name / queue.name)
        self.index_files.sort(key=lambda file: file.number)
        self.index_names = index_names([file.first_time for file in self.index_files])
        for file, name in zip(self.index_files, self.index_names, strict=True):
            file.path.rename(views / "index" / name)
        # The tasks have synced the directories of the queues.
        for topic_name in topics:
            sync_directory(views / "consumequeue" / topic_name)
        for directory in (*views.iterdir(), views):
            sync_directory(directory)

    @property
    def layout(self) -> StoreLayout:
        """The store that is rebuilt."""
        return self._plan.layout

    def scan(self) -> LogScan:
        """Return what the scan of the whole log has met."""
        layout = self._plan.layout
        with Regions(layout.files) as regions:
            log = LogFiles(layout, regions)
            return join_scans(layout, log, [part.scan for part in self.parts])

    def report(self, root: Path, output: Path, *, in_place: bool) -> RebuildReport:
        """Return the report, with the findings of the serial rebuild."""
        scan = self.scan()
        findings = Findings()
        for part in self.parts if self._plan.queues else ():
            for level in part.bad_levels:
                findings.problem(Kind.DELAY_LEVEL, "", level.physical_offset, level.reason)
            if part.bad_level_count > len(part.bad_levels):
                uncounted = part.bad_level_count - len(part.bad_levels)
                findings.problem(Kind.DELAY_LEVEL, "", None, MORE_LEVELS, count=uncounted)
        for partition in self.partitions:
            findings.merge(partition.findings)
        for damage in scan.damages:
            findings.problem(damage.kind, damage.file, damage.start, damage.reason)
        return RebuildReport(
            root=root,
            output=output,
            in_place=in_place,
            record_count=scan.record_count,
            queue_count=sum(partition.queue_count for partition in self.partitions),
            unit_count=sum(partition.unit_count for partition in self.partitions),
            index_file_count=len(self.index_files),
            index_entry_count=sum(file.entry_count for file in self.index_files),
            part_count=len(self.parts),
            findings=findings,
        )

    def marks(self, old: CheckpointMarks | None) -> CheckpointMarks | None:
        """Return what FlintMQ's checkpoint may say of the views now; None if that is not known.

        Of a view that was not rebuilt, the old marks tell, if they reached to the log's end.
        """
        end = self.scan().end
        has_all = self._plan.queues and self._plan.index
        if has_all:
            old = CheckpointMarks(end, end, 0, 0, 0, 0, 0)
        if old is None or not old.dispatched == old.log_flushed == end:
            return None
        marks = old
        if self._plan.queues:
            marks = marks._replace(
                queue_count=sum(partition.written_count for partition in self.partitions),
                unit_total=sum(partition.written_end for partition in self.partitions),
            )
        if self._plan.index and self.index_files:
            last = self.index_files[-1]
            marks = marks._replace(
                index_file=int(self.index_names[-1]),
                index_count=last.entry_count + 1,
                index_slot_count=last.slot_count,
            )
        elif self._plan.index:
            marks = marks._replace(index_file=0, index_count=0, index_slot_count=0)
        return marks


def _publish(build: Path, output: Path) -> None:
    """Give the finished views their name."""
    target = output.resolve()
    views = views_directory(build)
    for view in views.iterdir():
        if not any(view.iterdir()):
            view.rmdir()  # A serial rebuild makes no empty directories.
    views.rename(target)
    sync_directory(target.parent)


def _switch_in_place(job: _Rebuild, root: Path, build: Path) -> None:
    """Switch the views of a store.

    Between the two states of the views the checkpoint has no marks, so that a broker which is
    started after a crash looks for itself.
    """
    layout = job.layout
    page = CheckpointPage(layout)
    page.void()
    switch_views(root, build)
    marks = job.marks(page.old_marks)
    if marks is not None:
        for file in layout.log_files:
            layout.files.sync(file.path)
        page.write(marks, max((part.scan.last_time or 0 for part in job.parts), default=0))
