"""The tasks of a rebuild: from ranges of the log to spools, from spools to files of the views.

Every attempt of a task writes under a name of its own, so two attempts of one task never meet,
whether one follows the loss of a worker or both run side by side.  The driver takes over only
what was written by the attempt whose answer it got.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pyspark import Broadcast

from flintmq.filter.filter_entries import FilterEntry
from flintmq.format.delay_levels import DelayLevels
from flintmq.kernels.derived_views import BadLevel, SplitViews
from flintmq.offline.findings import Findings
from flintmq.offline.index_geometry import IndexGeometry
from flintmq.offline.layout import StoreLayout
from flintmq.offline.queue_extension import ExtensionWriter
from flintmq.offline.rebuild import QueueWriter
from flintmq.offline.rebuild import RebuildReport as SerialReport
from flintmq.offline.regions import Regions
from flintmq.spark.jobs.rebuild.rebuild_index import IndexFile, IndexTask, write_index_file
from flintmq.spark.jobs.rebuild.rebuild_readback import ProvenWriter
from flintmq.spark.parallel_log.range_walk import RangeScan, WalkRange, walk_range
from flintmq.spark.parallel_log.spool import Spool, read_section, write_spool
from flintmq.spark.parallel_log.unit_replay import UnitReplay


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """What every task of a rebuild has to know."""

    layout: StoreLayout
    build: Path
    queues: bool
    index: bool
    delay_levels: DelayLevels
    partition_count: int
    geometry: IndexGeometry | None
    filters: tuple[FilterEntry, ...] | None = None
    """The subscriptions whose bits the extension of the queues gets; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedRange:
    """What a task has made of a range of the log."""

    scan: RangeScan
    spool: Spool
    bad_level_count: int
    bad_levels: tuple[BadLevel, ...]


@dataclass(frozen=True, slots=True)
class DeriveStage:
    """Turns a range of the log into a spool."""

    plan: "Broadcast[RebuildPlan]"

    def __call__(self, log_range: WalkRange) -> DerivedRange:
        """Walk ``log_range`` and write down what the views must hold for it."""
        plan = self.plan.value
        views = SplitViews(
            delay_levels=plan.delay_levels,
            lmq=plan.layout.lmq,
            wants_units=plan.queues,
            wants_keys=plan.index,
        )
        scan = walk_range(plan.layout, log_range, views.take)
        spool = write_spool(
            spool_directory(plan.build),
            views.slices(plan.partition_count),
            views.entries(),
            partition_count=plan.partition_count,
        )
        return DerivedRange(
            scan=scan,
            spool=spool,
            bad_level_count=views.bad_level_count,
            bad_levels=tuple(views.bad_levels),
        )


@dataclass(frozen=True, slots=True)
class QueueTask:
    """The files of all queues of one partition are to be written."""

    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePartition:
    """The queues that a task has written, each in ``directory/topic/id``."""

    directory: Path
    extension: Path
    """Where the extensions of the queues are, likewise."""
    queue_count: int
    unit_count: int
    written_count: int
    """How many queues have files."""
    written_end: int
    """The sum of the offsets at which those queues end."""
    findings: Findings


ViewTask: TypeAlias = QueueTask | IndexTask
ViewFiles: TypeAlias = QueuePartition | IndexFile


@dataclass(frozen=True, slots=True)
class WriteStage:
    """Turns the spools of all ranges, in log order, into files of queues and index."""

    plan: "Broadcast[RebuildPlan]"
    spools: "Broadcast[Sequence[Spool]]"

    def __call__(self, task: ViewTask) -> ViewFiles:
        """Write the files of one task."""
        plan, spools = self.plan.value, self.spools.value
        directory = task_directory(plan.build) / uuid.uuid4().hex
        if isinstance(task, IndexTask):
            assert plan.geometry is not None
            return write_index_file(plan.layout, plan.geometry, directory, task, spools)
        return _write_queues(plan, directory, task.partition, spools)


def _write_queues(
    plan: RebuildPlan, directory: Path, partition: int, spools: Sequence[Spool]
) -> QueuePartition:
    layout = plan.layout
    report = SerialReport(output=directory)
    extension = directory.with_name(f"{directory.name}-extension")
    with Regions(layout.files) as regions:
        notes = None
        if plan.filters is not None:
            notes = ExtensionWriter(
                extension, layout, layout.files, filters=plan.filters, regions=regions
            )
        writer = ProvenWriter(
            QueueWriter(directory, layout, layout.files, report, notes), layout.queue_file_size
        )
        replay = UnitReplay(writer)
        for spool in spools:
            replay.take(read_section(spool, partition))
    writer.finish(replay.queues.values())
    ends = [
        queue.next
        for queue in replay.queues.values()
        if (path := writer.directory_of(queue)) is not None and layout.files.exists(path)
    ]
    return QueuePartition(
        directory=directory,
        extension=extension,
        queue_count=len(replay.queues),
        unit_count=report.unit_count,
        written_count=len(ends),
        written_end=sum(ends),
        findings=report.findings,
    )


def spool_directory(build: Path) -> Path:
    """Return where spools are written."""
    return build / "spool"


def task_directory(build: Path) -> Path:
    """Return where each task makes a directory of its own."""
    return build / "tasks"
