"""Rebuilds consume queues and key index of a store from its log, in parallel.

There are two stages of tasks, and only small answers go through the driver:

1. Each task walks a range of the log (`flintmq.spark.parallel_log.range_planning`) and leaves the
   units of its records, queue by queue, and the entries of their keys in a spool.
2. The driver knows how many keys each range has, so each index file is one task.  The queues are
   dealt out to the other tasks; each feeds the units of its queues in log order to the writer of
   the serial rebuild, which alone says what a gap or a repeated offset means.

The bytes are those of `flintmq.offline.rebuild`, and so those that the engine writes.  Memory
follows the size of a range and the slots of an index file, not the size of the store.

The views are built beside their place, synced and read back, and then switched.  Up to that
moment the old files are untouched.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.stored.checkpoint import CheckpointMarks
from flintmq.kernels.derived_views import MORE_LEVELS
from flintmq.offline.errors import OutputError, RequestError, UnknownIndexShapeError
from flintmq.offline.findings import Findings, Kind
from flintmq.offline.index_geometry import IndexGeometry, find_geometry
from flintmq.offline.layout import SizeOptions, StoreLayout, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_extension import DIRECTORY_NAME as EXTENSION_NAME
from flintmq.offline.queue_extension import has_extension, kept_filters
from flintmq.offline.rebuild import check_output
from flintmq.offline.regions import Regions
from flintmq.offline.scan import LogScan, Progress
from flintmq.offline.store_lock import hold_directory, refuse_running
from flintmq.spark.jobs.rebuild.build_directory import (
    beside,
    earlier_builds,
    open_build,
    views_directory,
    within,
)
from flintmq.spark.jobs.rebuild.checkpoint_marks import CheckpointPage
from flintmq.spark.jobs.rebuild.rebuild_index import IndexFile, index_names, plan_index
from flintmq.spark.jobs.rebuild.rebuild_stages import (
    DerivedRange,
    DeriveStage,
    QueuePartition,
    QueueTask,
    RebuildPlan,
    ViewTask,
    WriteStage,
)
from flintmq.spark.jobs.rebuild.switch import (
    finish_interrupted,
    refuse_elsewhere,
    switch_views,
    sync_directory,
)
from flintmq.spark.parallel_log.range_planning import (
    RANGE_SIZE,
    TASKS_PER_CORE,
    join_scans,
    plan_ranges,
    settle,
    task_count,
)
from flintmq.spark.parallel_log.range_walk import WalkRange
from flintmq.spark.runtime.spark_session import TaskSession
from flintmq.spark.runtime.stage_names import stage_name
from flintmq.store.files.unsynced import are_many

INDEX_ENTRIES_MIN: Final = 2
"""Entry zero of an index file is never used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelRebuildReport:
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
    """In how many ranges the log was read."""
    findings: Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRequest:
    """Which views of a store are made anew, and whether in the directory ``out`` or in place.

    ``log_directories`` and ``sizes`` are given where they cannot be detected.  A task walks ranges
    of ``split_size`` bytes of the log.
    """

    directory: Path
    out: Path | None = None
    in_place: bool = False
    queues: bool = True
    index: bool = True
    delay_levels: DelayLevels = field(
        default_factory=lambda: DelayLevels.parse(DEFAULT_DELAY_LEVELS)
    )
    log_directories: tuple[Path, ...] = ()
    sizes: SizeOptions | None = None
    extension: bool | None = None
    """Whether the queues get an extension with filter bits; None: if the store has one."""
    split_size: int = RANGE_SIZE

    def __post_init__(self) -> None:
        if (self.out is None) != self.in_place:
            raise RequestError("a rebuild needs either an output directory or to be in place")
        if not (self.queues or self.index):
            raise RequestError("neither queues nor index are to be rebuilt")


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
    extension: bool | None = None,
    split_size: int = RANGE_SIZE,
    progress: Progress | None = None,
) -> ParallelRebuildReport:
    """Make queues and index of a store anew; `RebuildRequest` explains the arguments."""
    request = RebuildRequest(
        directory=Path(directory),
        out=None if out is None else Path(out),
        in_place=in_place,
        queues=queues,
        index=index,
        delay_levels=delay_levels or DelayLevels.parse(DEFAULT_DELAY_LEVELS),
        log_directories=tuple(log_directories),
        sizes=sizes,
        extension=extension,
        split_size=split_size,
    )
    return rebuild_store(spark, request, progress=progress)


def rebuild_store(
    spark: TaskSession, request: RebuildRequest, *, progress: Progress | None = None
) -> ParallelRebuildReport:
    """Make queues and index of a store anew.

    Raises:
        StoreInUseError: a broker runs in the store.
        OutputError: ``out`` is not new or empty, or the shape of the index is unknown.
        RebuildError: what was written is not what was meant; nothing was switched.
    """
    root = request.directory
    find = partial(find_store, root, log_directories=request.log_directories, sizes=request.sizes)
    with ExitStack() as stack:
        # Before anything is written into it, it must be a store.
        layout = find()
        if request.out is None:
            layout = _claim(stack, root, find)
            output, build_path = root, within(root)
        else:
            refuse_running(root)
            output, build_path = request.out, beside(request.out)
            check_output(layout, output, files=layout.files)
        geometry = _geometry(layout, output) if request.index else None
        extension = has_extension(layout) if request.extension is None else request.extension
        ranges = plan_ranges([layout], request.split_size)
        plan = RebuildPlan(
            layout=layout,
            build=stack.enter_context(open_build(build_path)),
            queues=request.queues,
            index=request.index,
            delay_levels=request.delay_levels,
            partition_count=_partition_count(ranges, spark.sparkContext.defaultParallelism),
            geometry=geometry,
            filters=kept_filters(layout) if extension and request.queues else None,
        )
        job = _Rebuild(spark.sparkContext, plan, progress)
        job.run(ranges)
        if request.in_place:
            _switch_in_place(job, root, plan.build)
        else:
            _publish(plan.build, output)
        return job.report(root, output, in_place=request.in_place)


def _claim(stack: ExitStack, root: Path, find: Callable[[], StoreLayout]) -> StoreLayout:
    """Hold a store that is changed in place; return how it looks once nobody else changes it."""
    refuse_elsewhere(root)
    stack.enter_context(hold_directory(root))
    finish_interrupted(root, earlier_builds(within(root)))
    return find()


def _partition_count(ranges: Sequence[WalkRange], core_count: int) -> int:
    """Return into how many tasks the queues are dealt out, so that no core waits long."""
    return min(task_count(ranges, core_count), TASKS_PER_CORE * core_count)


def _geometry(layout: StoreLayout, output: Path) -> IndexGeometry:
    with Regions(layout.files) as regions:
        geometry = find_geometry(layout, regions)
    if geometry is not None and geometry.entries < INDEX_ENTRIES_MIN:
        raise OutputError(output, f"an index file of {geometry.entries} entries has room for none")
    if geometry is None:
        raise UnknownIndexShapeError(output)
    return geometry


class _Rebuild:
    """The stages of one rebuild, and what the driver learns from them."""

    def __init__(self, context: SparkContext, plan: RebuildPlan, progress: Progress | None) -> None:
        self._context = context
        self._plan = plan
        self._progress = progress
        self._shared = context.broadcast(plan)
        self.derived: list[DerivedRange] = []
        self.partitions: list[QueuePartition] = []
        self.index_files: list[IndexFile] = []
        self.index_names: list[str] = []

    def run(self, ranges: list[WalkRange]) -> None:
        """Read the log and leave the finished views in the build directory."""
        self.derived = settle(ranges, self._derive)
        spools = [derived.spool for derived in self.derived]
        tasks: list[ViewTask] = []
        if self._plan.geometry is not None:
            tasks += plan_index(spools, self._plan.geometry)
        if self._plan.queues:
            tasks += [QueueTask(number) for number in range(self._plan.partition_count)]
        if tasks:
            stage = WriteStage(self._shared, self._context.broadcast(spools))
            core_count = self._context.defaultParallelism
            count = max(task_count(ranges, core_count), TASKS_PER_CORE * core_count)
            shares = self._context.parallelize(tasks, min(len(tasks), count))
            with stage_name(self._context, "writing queues and index"):
                written = shares.map(stage).collect()
            for files in written:
                if isinstance(files, IndexFile):
                    self.index_files.append(files)
                else:
                    self.partitions.append(files)
        self._collect()

    def _derive(self, ranges: list[WalkRange]) -> list[DerivedRange]:
        if self._progress is not None:
            self._progress(0, sum(log_range.bound - log_range.start for log_range in ranges))
        stage = DeriveStage(self._shared)
        count = task_count(ranges, self._context.defaultParallelism)
        with stage_name(self._context, "reading the log"):
            found: list[DerivedRange] = (
                self._context.parallelize(ranges, count).map(stage).collect()
            )
        if self._progress is not None:
            size = sum(log_range.bound - log_range.start for log_range in ranges)
            self._progress(size, size)
        return found

    def _collect(self) -> None:
        """Move what the tasks have written together, under its final names."""
        views = views_directory(self._plan.build)
        for wanted, name in ((self._plan.queues, "consumequeue"), (self._plan.index, "index")):
            if wanted:
                (views / name).mkdir()
        topics: dict[Path, None] = {}
        for partition in self.partitions:
            topics |= _move_queues(partition.directory, views / "consumequeue")
            topics |= _move_queues(partition.extension, views / EXTENSION_NAME)
        self.index_files.sort(key=lambda file: file.number)
        self.index_names = index_names([file.first_time for file in self.index_files])
        for file, name in zip(self.index_files, self.index_names, strict=True):
            file.path.rename(views / "index" / name)
        # The tasks have synced the directories of the queues.
        if are_many(len(topics)):
            self._plan.layout.files.sync_below(views)
            return
        for topic in topics:
            sync_directory(topic)
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
            return join_scans(layout, log, [derived.scan for derived in self.derived])

    def report(self, root: Path, output: Path, *, in_place: bool) -> ParallelRebuildReport:
        """Return the report, with the findings of the serial rebuild."""
        scan = self.scan()
        findings = Findings()
        for derived in self.derived if self._plan.queues else ():
            for level in derived.bad_levels:
                findings.problem(Kind.DELAY_LEVEL, "", level.physical_offset, level.reason)
            if derived.bad_level_count > len(derived.bad_levels):
                uncounted = derived.bad_level_count - len(derived.bad_levels)
                findings.problem(Kind.DELAY_LEVEL, "", None, MORE_LEVELS, count=uncounted)
        for partition in self.partitions:
            findings.merge(partition.findings)
        for damage in scan.damages:
            findings.problem(damage.kind, damage.file, damage.start, damage.reason)
        return ParallelRebuildReport(
            root=root,
            output=output,
            in_place=in_place,
            record_count=scan.record_count,
            queue_count=sum(partition.queue_count for partition in self.partitions),
            unit_count=sum(partition.unit_count for partition in self.partitions),
            index_file_count=len(self.index_files),
            index_entry_count=sum(file.entry_count for file in self.index_files),
            part_count=len(self.derived),
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


def _move_queues(written: Path, view: Path) -> dict[Path, None]:
    """Move the queues that a task has written into a view; return the topics they belong to."""
    topics: dict[Path, None] = {}
    for topic in sorted(written.iterdir()) if written.exists() else ():
        target = view / topic.name
        topics[target] = None
        if not target.exists():
            view.mkdir(parents=True, exist_ok=True)
            topic.rename(target)
            continue
        for queue in sorted(topic.iterdir()):
            queue.rename(target / queue.name)
    return topics


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
        page.write(marks, max((derived.scan.last_time or 0 for derived in job.derived), default=0))
