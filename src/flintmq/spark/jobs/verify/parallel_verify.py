"""Verifying stores in parallel, many at once, with the findings of the serial verification.

The plain case costs one pass over the log and moves no data: each task compares its range
with the queues and the index in place (`verify_stages`).  Only queues, or an index, that do not
match go through the serial checks, which report them in the same words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pyspark import SparkContext

from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.stored.checkpoint import Checkpoint
from flintmq.kernels.derived_views import MORE_LEVELS, partition_of
from flintmq.kernels.queue_numbers import QueueName
from flintmq.offline.errors import RequestError
from flintmq.offline.findings import DETAILS_MAX, Findings, Kind, Severity
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import SizeOptions, StoreLayout, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions
from flintmq.offline.scan import Progress, Tail
from flintmq.offline.verify.store_verify import (
    VerifyReport,
    count_log,
    dispatched_end,
    report_log,
    report_tail,
)
from flintmq.offline.verify.verify_state import check_checkpoint, check_state_files, read_checkpoint
from flintmq.spark.jobs.verify.verify_stages import (
    CheckResult,
    CheckStage,
    CheckTask,
    ComparedRange,
    CompareStage,
    IndexFileStage,
    QueueSpan,
    RecheckStage,
    StoreVerifyPlan,
    VerifyPlan,
    index_tasks,
)
from flintmq.spark.parallel_log.index_probe import EntryPosition, IndexProbe, spans_join, used_files
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


class FileSection(NamedTuple):
    """What was found in one file of the log."""

    name: str
    start: int
    record_count: int
    record_bytes: int
    damage_count: int
    damage_bytes: int


class TopicSection(NamedTuple):
    """What was found of one topic."""

    topic: str
    record_count: int
    record_bytes: int
    problem_count: int
    """How many of the problems that were kept concern its queues."""


@dataclass(slots=True, kw_only=True)
class StoreReport(VerifyReport):
    """The report of the serial verification, and sections by file and by topic."""

    files: tuple[FileSection, ...] = ()
    topics: tuple[TopicSection, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """Which stores are verified, and how much is told about each.

    ``sizes`` are those of the files of all stores, where they cannot be detected.  A task walks
    ranges of ``split_size`` bytes of the log.
    """

    directories: tuple[Path, ...]
    delay_levels: DelayLevels = field(
        default_factory=lambda: DelayLevels.parse(DEFAULT_DELAY_LEVELS)
    )
    check_index: bool = True
    details_max: int = DETAILS_MAX
    sizes: SizeOptions | None = None
    split_size: int = RANGE_SIZE

    def __post_init__(self) -> None:
        if self.details_max < 0:
            raise RequestError(f"details_max is 0 or more, not {self.details_max}")


def verify_stores(
    spark: TaskSession,
    directories: Sequence[Path | str],
    *,
    delay_levels: DelayLevels | None = None,
    check_index: bool = True,
    details_max: int = DETAILS_MAX,
    sizes: SizeOptions | None = None,
    split_size: int = RANGE_SIZE,
    progress: Progress | None = None,
) -> list[StoreReport]:
    """Read whole stores and report what is wrong with each; brokers may run in them.

    `VerifyRequest` explains the arguments.
    """
    request = VerifyRequest(
        directories=tuple(map(Path, directories)),
        delay_levels=delay_levels or DelayLevels.parse(DEFAULT_DELAY_LEVELS),
        check_index=check_index,
        details_max=details_max,
        sizes=sizes,
        split_size=split_size,
    )
    return verify(spark, request, progress=progress)


def verify(
    spark: TaskSession, request: VerifyRequest, *, progress: Progress | None = None
) -> list[StoreReport]:
    """Verify the stores that a request names."""
    layouts = [find_store(directory, sizes=request.sizes) for directory in request.directories]
    # A running broker goes on: what it says was flushed must be read before the log is.
    checkpoints = [read_checkpoint(layout) for layout in layouts]
    plan = VerifyPlan(
        stores=[
            _plan_store(layout, checkpoint, check_index=request.check_index)
            for layout, checkpoint in zip(layouts, checkpoints, strict=True)
        ],
        delay_levels=request.delay_levels,
        details_max=request.details_max,
    )
    job = _Verification(spark.sparkContext, plan, check_index=request.check_index)
    job.run(plan_ranges(layouts, request.split_size), progress)
    return [job.report(store, checkpoint) for store, checkpoint in enumerate(checkpoints)]


def _plan_store(
    layout: StoreLayout, checkpoint: Checkpoint | str, *, check_index: bool
) -> StoreVerifyPlan:
    geometry = files = None
    if check_index:
        with Regions(layout.files) as regions:
            geometry = find_geometry(layout, regions)
        files = None if geometry is None else used_files(layout, geometry)
    return StoreVerifyPlan(
        layout=layout,
        geometry=geometry,
        index_files=files,
        dispatched=dispatched_end(checkpoint),
    )


class _Verification:
    """The stages of one verification, and what the driver learns from them."""

    def __init__(self, context: SparkContext, plan: VerifyPlan, *, check_index: bool) -> None:
        self._context = context
        self._plan = plan
        self._check_index = check_index
        self._shared = context.broadcast(plan)
        self._compared: list[list[ComparedRange]] = [[] for _ in plan.stores]
        self._checked: list[CheckResult] = []

    def run(self, ranges: list[WalkRange], progress: Progress | None) -> None:
        """Compare all ranges, then run the serial checks that are needed."""
        size = sum(log_range.bound - log_range.start for log_range in ranges)
        if progress is not None:
            progress(0, size)
        for compared in settle(ranges, self._compare):
            self._compared[compared.scan.log_range.store].append(compared)
        if progress is not None:
            progress(size, size)
        tasks = self._check_tasks()
        with stage_name(self._context, "checking queues one by one"):
            self._checked = self._run_checks(tasks)

    def _compare(self, ranges: list[WalkRange]) -> list[ComparedRange]:
        count = task_count(ranges, self._context.defaultParallelism)
        stage = CompareStage(self._shared)
        with stage_name(self._context, "comparing the log with queues and index"):
            found: list[ComparedRange] = (
                self._context.parallelize(ranges, count).map(stage).collect()
            )
        return found

    # -- which serial checks are needed ------------------------------------------------------

    def _check_tasks(self) -> list[CheckTask]:
        tasks: list[CheckTask] = []
        unsound = self._unsound_indexes()
        core_count = self._context.defaultParallelism
        for store in range(len(self._plan.stores)):
            ranges = [compared.scan.log_range for compared in self._compared[store]]
            partition_count = min(task_count(ranges, core_count), TASKS_PER_CORE * core_count)
            spans = join_spans(compared.queues for compared in self._compared[store])
            for partition in range(partition_count):
                mine = [
                    span for span in spans if partition_of(span.name, partition_count) == partition
                ]
                tasks.append(
                    CheckTask(
                        store=store,
                        partition=partition,
                        partition_count=partition_count,
                        right=tuple(span for span in mine if span.is_right),
                        suspect=frozenset(span.name for span in mine if not span.is_right),
                    )
                )
            if self._check_index and (store in unsound or not self._index_is_right(store)):
                tasks.append(CheckTask(store=store, partition=None))
        return tasks

    def _unsound_indexes(self) -> set[int]:
        """Return the stores with an index file that is not right in itself."""
        tasks = index_tasks(self._plan)
        if not tasks:
            return set()
        stage = IndexFileStage(self._shared)
        count = min(len(tasks), TASKS_PER_CORE * self._context.defaultParallelism)
        with stage_name(self._context, "checking index files"):
            results = self._context.parallelize(tasks, count).map(stage).collect()
        return {store for store, is_sound in results if not is_sound}

    def _index_is_right(self, number: int) -> bool:
        """Whether all entries of a store are those of the log, and no key is without one."""
        store = self._plan.stores[number]
        if store.geometry is None or store.index_files is None:
            return False
        probe = IndexProbe(store.layout, store.geometry, store.index_files)
        log_start = store.layout.log_files[0].first_offset if store.layout.log_files else 0
        spans = [compared.index for compared in self._compared[number] if compared.key_count]
        end = EntryPosition(len(store.index_files), 1)
        return spans_join(spans, probe.position_of(log_start), end)

    def _run_checks(self, tasks: list[CheckTask]) -> list[CheckResult]:
        if not tasks:
            return []
        context = self._context
        shared_tasks = context.broadcast(tasks)
        scans = [[compared.scan for compared in ranges] for ranges in self._compared]
        slots = min(len(tasks), TASKS_PER_CORE * context.defaultParallelism)
        stage = CheckStage(self._shared, shared_tasks, context.broadcast(scans), slots)
        again = self._ranges_for(tasks)
        if not again:
            # The checks look at nothing but files.
            return list(context.parallelize([], slots).mapPartitionsWithIndex(stage).collect())
        wanted = context.parallelize(again, task_count(again, context.defaultParallelism)).flatMap(
            RecheckStage(self._shared, shared_tasks)
        )
        by_check = wanted.repartitionAndSortWithinPartitions(slots, stage.slot_of)
        return list(by_check.mapPartitionsWithIndex(stage).collect())

    def _ranges_for(self, tasks: list[CheckTask]) -> list[WalkRange]:
        """Return the ranges that the serial checks have to see, with their known bounds."""
        suspect: dict[int, set[QueueName]] = {}
        for task in tasks:
            suspect.setdefault(task.store, set()).update(task.suspect)
        for_index = {task.store for task in tasks if task.partition is None}
        again = []
        for store, ranges in enumerate(self._compared):
            for compared in ranges:
                scan = compared.scan
                is_wanted = store in for_index or any(
                    span.name in suspect[store] for span in compared.queues
                )
                if is_wanted and scan.record_count:
                    assert scan.start is not None
                    # A broker may have written more since; it is not looked at.
                    known = replace(
                        scan.log_range,
                        start=scan.start,
                        bound=min(scan.log_range.bound, scan.last_record_end),
                        is_known=True,
                    )
                    again.append(known)
        return again

    # -- the report --------------------------------------------------------------------------

    def report(self, store: int, checkpoint: Checkpoint | str) -> StoreReport:
        """Return the report of one store, as the serial verification makes it."""
        layout, ranges = self._plan.stores[store].layout, self._compared[store]
        findings = Findings(details_max=self._plan.details_max)
        findings.merge(layout.findings)
        report = StoreReport(root=layout.root, unclean=layout.has_abort, findings=findings)
        checked = [result for result in self._checked if result.store == store]
        with Regions(layout.files) as regions:
            log = LogFiles(layout, regions)
            scan = join_scans(layout, log, [compared.scan for compared in ranges])
            self._report_levels(layout, ranges, findings)
            if scan.tail is not Tail.BLANK or not log.has_grown():
                report_tail(layout, scan, findings)
            report_log(layout, scan, findings)
        for result in sorted(checked, key=lambda result: result.task):
            findings.merge(result.findings)
        check_checkpoint(layout, checkpoint, scan.flushed_end, findings)
        report.state_file_count = check_state_files(layout, findings)
        report.queue_count = sum(result.queue_count for result in checked)
        report.unit_count = sum(result.unit_count for result in checked)
        self._count_index(store, checked, report)
        count_log(layout, scan, report)
        report.files = _file_sections(layout, ranges)
        report.topics = _topic_sections(ranges, findings)
        return report

    def _count_index(self, number: int, checked: list[CheckResult], report: StoreReport) -> None:
        store = self._plan.stores[number]
        counts = [result.entry_count for result in checked if result.entry_count is not None]
        if counts:
            report.index_entry_count = sum(counts)
        elif store.index_files is not None:
            report.index_entry_count = sum(
                used.header.index_count - 1 for used in store.index_files
            )
        report.index_checked = store.geometry is not None
        report.index_file_count = len(store.layout.index_files)

    def _report_levels(
        self, layout: StoreLayout, ranges: list[ComparedRange], findings: Findings
    ) -> None:
        for compared in ranges:
            name = layout.name_of(compared.scan.log_range.file.path)
            for level in compared.bad_levels:
                findings.problem(Kind.DELAY_LEVEL, name, level.physical_offset, level.reason)
            if compared.bad_level_count > len(compared.bad_levels):
                uncounted = compared.bad_level_count - len(compared.bad_levels)
                findings.problem(Kind.DELAY_LEVEL, name, None, MORE_LEVELS, count=uncounted)


def join_spans(ranges: Iterable[Sequence[QueueSpan]]) -> list[QueueSpan]:
    """Return each queue over all ranges, in the order in which the log first names them.

    A queue is right if it is right in every range, and each range goes on where the last one ended.
    """
    joined: dict[QueueName, QueueSpan] = {}
    for spans in ranges:
        for span in spans:
            known = joined.get(span.name)
            if known is None:
                joined[span.name] = span
                continue
            joined[span.name] = known._replace(
                following=span.following,
                is_right=known.is_right and span.is_right and known.following == span.first,
            )
    return list(joined.values())


def _file_sections(layout: StoreLayout, ranges: list[ComparedRange]) -> tuple[FileSection, ...]:
    sections = []
    for file, of_file in groupby(ranges, key=lambda compared: compared.scan.log_range.file):
        name = layout.name_of(file.path)
        scans = [compared.scan for compared in of_file]
        sections.append(
            FileSection(
                name=name,
                start=file.first_offset,
                record_count=sum(scan.record_count for scan in scans),
                record_bytes=sum(scan.record_bytes for scan in scans),
                damage_count=sum(scan.damage_count for scan in scans),
                damage_bytes=sum(scan.damage_bytes for scan in scans),
            )
        )
    return tuple(sections)


def _topic_sections(ranges: list[ComparedRange], findings: Findings) -> tuple[TopicSection, ...]:
    totals: dict[str, tuple[int, int]] = {}
    for compared in ranges:
        for topic, (count, size) in compared.topics.items():
            name = topic.decode("utf-8", "replace")
            known = totals.get(name, (0, 0))
            totals[name] = (known[0] + count, known[1] + size)
    problems: dict[str, int] = {}
    for finding in findings.of(Severity.PROBLEM):
        path = Path(finding.file).parts
        if len(path) > 1 and path[0] == "consumequeue":
            problems[path[1]] = problems.get(path[1], 0) + 1
    for name in problems:
        totals.setdefault(name, (0, 0))
    return tuple(
        TopicSection(name, *totals[name], problems.get(name, 0)) for name in sorted(totals)
    )
