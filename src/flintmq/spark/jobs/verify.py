"""Verifying stores in parallel, many at once, with the findings of the serial verification.

The plain case costs one pass over the log and moves no data: each task compares its part with
the queues and the index where they are (`verify_stages`).  Where something is odd, just those
queues, or that index, go through the serial checks, which say what is wrong in the same words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pyspark import SparkContext

from flintmq.format.checkpoint import Checkpoint
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.offline.findings import DETAILS_MAX, Findings, Kind, Severity
from flintmq.offline.index_geometry import find_geometry
from flintmq.offline.layout import SizeOptions, StoreLayout, find_store
from flintmq.offline.log_files import LogFiles
from flintmq.offline.regions import Regions
from flintmq.offline.scan import Progress, Tail
from flintmq.offline.verify import VerifyReport, count_log, report_log, report_tail
from flintmq.offline.verify_state import check_checkpoint, check_state_files, read_checkpoint
from flintmq.spark.derived import MORE_LEVELS, partition_of
from flintmq.spark.index_probe import IndexProbe, Place, spans_join, used_files
from flintmq.spark.jobs.verify_stages import (
    Checked,
    CheckStage,
    CheckTask,
    ComparedPart,
    CompareStage,
    IndexFileStage,
    OddStage,
    QueueSpan,
    StorePlan,
    VerifyPlan,
    index_tasks,
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
from flintmq.spark.queue_numbers import QueueName
from flintmq.spark.session import TaskSession


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


def verify_stores(
    spark: TaskSession,
    directories: Sequence[Path | str],
    *,
    delay_levels: DelayLevels | None = None,
    check_index: bool = True,
    details_max: int = DETAILS_MAX,
    sizes: SizeOptions | None = None,
    split_size: int = PART_SIZE,
    progress: Progress | None = None,
) -> list[StoreReport]:
    """Read whole stores and report what is wrong with each; brokers may run in them.

    ``sizes`` are those of the files of all of them, where they cannot be detected.
    """
    layouts = [find_store(Path(directory), sizes=sizes) for directory in directories]
    return verify_layouts(
        spark,
        layouts,
        delay_levels=delay_levels or DelayLevels.parse(DEFAULT_DELAY_LEVELS),
        check_index=check_index,
        details_max=details_max,
        split_size=split_size,
        progress=progress,
    )


def verify_layouts(
    spark: TaskSession,
    layouts: Sequence[StoreLayout],
    *,
    delay_levels: DelayLevels,
    check_index: bool = True,
    details_max: int = DETAILS_MAX,
    split_size: int = PART_SIZE,
    progress: Progress | None = None,
) -> list[StoreReport]:
    """Verify stores that were looked through already, with whatever sizes their user knows."""
    # A running broker goes on: what it says was flushed must be read before the log is.
    checkpoints = [read_checkpoint(layout) for layout in layouts]
    plan = VerifyPlan(
        stores=[_plan_store(layout, check_index=check_index) for layout in layouts],
        delay_levels=delay_levels,
        details_max=details_max,
    )
    job = _Verification(spark.sparkContext, plan, check_index=check_index)
    job.run(plan_parts(layouts, split_size), progress)
    return [job.report(store, checkpoint) for store, checkpoint in enumerate(checkpoints)]


def _plan_store(layout: StoreLayout, *, check_index: bool) -> StorePlan:
    if not check_index:
        return StorePlan(layout=layout, geometry=None, index_files=None)
    with Regions(layout.files) as regions:
        geometry = find_geometry(layout, regions)
    files = None if geometry is None else used_files(layout, geometry)
    return StorePlan(layout=layout, geometry=geometry, index_files=files)


class _Verification:
    """The stages of one verification, and what the driver learns from them."""

    def __init__(self, context: SparkContext, plan: VerifyPlan, *, check_index: bool) -> None:
        self._context = context
        self._plan = plan
        self._check_index = check_index
        self._shared = context.broadcast(plan)
        self._parts: list[list[ComparedPart]] = [[] for _ in plan.stores]
        self._checked: list[Checked] = []

    def run(self, parts: list[LogPart], progress: Progress | None) -> None:
        """Run all stages."""
        size = sum(part.bound - part.start for part in parts)
        if progress is not None:
            progress(0, size)
        for part in settle(parts, self._compare):
            self._parts[part.scan.part.store].append(part)
        if progress is not None:
            progress(size, size)
        self._checked = self._run_checks(self._check_tasks())

    def _compare(self, parts: list[LogPart]) -> list[ComparedPart]:
        count = task_count(parts, self._context.defaultParallelism)
        stage = CompareStage(self._shared)
        found: list[ComparedPart] = self._context.parallelize(parts, count).map(stage).collect()
        return found

    # -- which serial checks are needed ------------------------------------------------------

    def _check_tasks(self) -> list[CheckTask]:
        tasks: list[CheckTask] = []
        unsound = self._unsound_indexes()
        core_count = self._context.defaultParallelism
        for store in range(len(self._plan.stores)):
            parts = [part.scan.part for part in self._parts[store]]
            partition_count = min(task_count(parts, core_count), TASKS_PER_CORE * core_count)
            spans = join_spans(part.queues for part in self._parts[store])
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
                        odd=frozenset(span.name for span in mine if not span.is_right),
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
        results = self._context.parallelize(tasks, count).map(stage).collect()
        return {store for store, is_sound in results if not is_sound}

    def _index_is_right(self, number: int) -> bool:
        """Whether all entries of a store are those of the log, and no key is without one."""
        store = self._plan.stores[number]
        if store.geometry is None or store.index_files is None:
            return False
        probe = IndexProbe(store.layout, store.geometry, store.index_files)
        log_start = store.layout.log_files[0].first_offset if store.layout.log_files else 0
        spans = [part.index for part in self._parts[number] if part.key_count]
        end = Place(len(store.index_files), 1)
        return spans_join(spans, probe.place_of(log_start), end)

    def _run_checks(self, tasks: list[CheckTask]) -> list[Checked]:
        if not tasks:
            return []
        context = self._context
        shared_tasks = context.broadcast(tasks)
        scans = [[part.scan for part in parts] for parts in self._parts]
        slots = min(len(tasks), TASKS_PER_CORE * context.defaultParallelism)
        stage = CheckStage(self._shared, shared_tasks, context.broadcast(scans), slots)
        again = self._parts_for(tasks)
        if not again:
            # The checks look at nothing but files.
            return list(context.parallelize([], slots).mapPartitionsWithIndex(stage).collect())
        wanted = context.parallelize(again, task_count(again, context.defaultParallelism)).flatMap(
            OddStage(self._shared, shared_tasks)
        )
        by_check = wanted.repartitionAndSortWithinPartitions(slots, stage.slot_of)
        return list(by_check.mapPartitionsWithIndex(stage).collect())

    def _parts_for(self, tasks: list[CheckTask]) -> list[LogPart]:
        """Return the parts that the serial checks have to see, with their known bounds."""
        odd: dict[int, set[QueueName]] = {}
        for task in tasks:
            odd.setdefault(task.store, set()).update(task.odd)
        for_index = {task.store for task in tasks if task.partition is None}
        again = []
        for store, parts in enumerate(self._parts):
            for part in parts:
                scan = part.scan
                is_wanted = store in for_index or any(
                    span.name in odd[store] for span in part.queues
                )
                if is_wanted and scan.record_count:
                    assert scan.start is not None
                    # A broker may have written more since; it is not looked at.
                    known = replace(
                        scan.part,
                        start=scan.start,
                        bound=min(scan.part.bound, scan.last_record_end),
                        is_known=True,
                    )
                    again.append(known)
        return again

    # -- the report --------------------------------------------------------------------------

    def report(self, store: int, checkpoint: Checkpoint | str) -> StoreReport:
        """Return the report of one store, as the serial verification makes it."""
        layout, parts = self._plan.stores[store].layout, self._parts[store]
        findings = Findings(details_max=self._plan.details_max)
        findings.merge(layout.findings)
        report = StoreReport(root=layout.root, unclean=layout.has_abort, findings=findings)
        checked = [result for result in self._checked if result.store == store]
        with Regions(layout.files) as regions:
            log = LogFiles(layout, regions)
            scan = join_scans(layout, log, [part.scan for part in parts])
            self._report_levels(layout, parts, findings)
            if scan.tail is not Tail.BLANK or not log.has_grown():
                report_tail(layout, scan, findings)
            report_log(layout, scan, findings)
        for result in sorted(checked, key=lambda result: result.task):
            findings.merge(result.findings)
        check_checkpoint(layout, checkpoint, scan.end, findings)
        report.state_file_count = check_state_files(layout, findings)
        report.queue_count = sum(result.queue_count for result in checked)
        report.unit_count = sum(result.unit_count for result in checked)
        self._count_index(store, checked, report)
        count_log(layout, scan, report)
        report.files = _file_sections(layout, parts)
        report.topics = _topic_sections(parts, findings)
        return report

    def _count_index(self, number: int, checked: list[Checked], report: StoreReport) -> None:
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
        self, layout: StoreLayout, parts: list[ComparedPart], findings: Findings
    ) -> None:
        for part in parts:
            name = layout.name_of(part.scan.part.file.path)
            for level in part.bad_levels:
                findings.problem(Kind.DELAY_LEVEL, name, level.physical_offset, level.reason)
            if part.bad_level_count > len(part.bad_levels):
                uncounted = part.bad_level_count - len(part.bad_levels)
                findings.problem(Kind.DELAY_LEVEL, name, None, MORE_LEVELS, count=uncounted)


def join_spans(parts: Iterable[Sequence[QueueSpan]]) -> list[QueueSpan]:
    """Return each queue over all parts, in the order in which the log first names them.

    A queue is right if it is so in every part, and goes on in each where it ended before.
    """
    joined: dict[QueueName, QueueSpan] = {}
    for spans in parts:
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


def _file_sections(layout: StoreLayout, parts: list[ComparedPart]) -> tuple[FileSection, ...]:
    sections = []
    for file, of_file in groupby(parts, key=lambda part: part.scan.part.file):
        name = layout.name_of(file.path)
        scans = [part.scan for part in of_file]
        sections.append(
            FileSection(
                name=name,
                start=file.first_offset,
                record_count=sum(part.record_count for part in scans),
                record_bytes=sum(part.record_bytes for part in scans),
                damage_count=sum(part.damage_count for part in scans),
                damage_bytes=sum(part.damage_bytes for part in scans),
            )
        )
    return tuple(sections)


def _topic_sections(parts: list[ComparedPart], findings: Findings) -> tuple[TopicSection, ...]:
    totals: dict[str, tuple[int, int]] = {}
    for part in parts:
        for topic, (count, size) in part.topics.items():
            name = topic.decode("utf-8", "replace")
            known = totals.get(name, (0, 0))
            totals[name] = (known[0] + count, known[1] + size)
    problems: dict[str, int] = {}
    for finding in findings.of(Severity.PROBLEM):
        place = Path(finding.file).parts
        if len(place) > 1 and place[0] == "consumequeue":
            problems[place[1]] = problems.get(place[1], 0) + 1
    for name in problems:
        totals.setdefault(name, (0, 0))
    return tuple(
        TopicSection(name, *totals[name], problems.get(name, 0)) for name in sorted(totals)
    )
