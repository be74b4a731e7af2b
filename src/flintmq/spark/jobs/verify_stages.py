"""The tasks of a verification.

1. `CompareStage` walks a part of the log and compares in place: the units of its records with
   the queues, its keys with the index.  What goes to the driver is where each queue begins and
   ends in the part, and whether all units were right.
2. `CheckStage` runs the serial checks of queues and index.  For queues that were right in every
   part it looks at what precedes and follows them; the others it gets unit by unit, from
   `OddStage`, by way of Spark's shuffle.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import NamedTuple, TypeAlias

import numpy as np
from pyspark import Broadcast

from flintmq.format.consume_queue import UNIT_SIZE
from flintmq.format.delay_levels import DelayLevels
from flintmq.offline.derive import UnitRun
from flintmq.offline.findings import Findings
from flintmq.offline.index_geometry import IndexGeometry
from flintmq.offline.layout import StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.regions import Regions
from flintmq.offline.verify import make_index_check
from flintmq.offline.verify_queues import QueueCheck
from flintmq.offline.verify_state import known_topics
from flintmq.spark.derived import BadLevel, Entries, QueueRuns, SplitViews, partition_of
from flintmq.spark.index_probe import IndexProbe, Span, UsedFile, file_is_sound
from flintmq.spark.log_parts import join_scans
from flintmq.spark.log_walk import LogPart, PartScan, walk_part
from flintmq.spark.queue_numbers import QueueName
from flintmq.spark.unit_replay import UnitReplay


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """What the tasks have to know of one store."""

    layout: StoreLayout
    geometry: IndexGeometry | None
    index_files: Sequence[UsedFile] | None
    """The index files to compare with; None when the serial check has to read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """What the tasks have to know of all stores."""

    stores: Sequence[StorePlan]
    delay_levels: DelayLevels
    details_max: int


class QueueSpan(NamedTuple):
    """The units that a part of the log, or all of it, asks for in one queue."""

    name: QueueName
    first: int
    following: int
    is_right: bool
    """Whether they are one run, and the queue has just these units there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPart:
    """What a task has found out about a part of the log."""

    scan: PartScan
    queues: tuple[QueueSpan, ...]
    key_count: int
    index: Span | None
    topics: dict[bytes, tuple[int, int]]
    bad_level_count: int
    bad_levels: tuple[BadLevel, ...]


def _views(plan: VerifyPlan, store: StorePlan, *, units: bool, keys: bool) -> SplitViews:
    return SplitViews(
        delay_levels=plan.delay_levels,
        lmq=store.layout.lmq,
        wants_units=units,
        wants_keys=keys,
    )


@dataclass(frozen=True, slots=True)
class CompareStage:
    """Compares a part of the log with queues and index."""

    plan: "Broadcast[VerifyPlan]"

    def __call__(self, part: LogPart) -> ComparedPart:
        """Walk ``part`` and compare."""
        plan = self.plan.value
        store = plan.stores[part.store]
        views = _views(plan, store, units=True, keys=store.index_files is not None)
        scan = walk_part(store.layout, part, views.take)
        entries = views.entries()
        span = None
        if len(entries):
            assert store.geometry is not None
            assert store.index_files is not None
            span = IndexProbe(store.layout, store.geometry, store.index_files).span_of(entries)
        return ComparedPart(
            scan=scan,
            queues=tuple(_compare(store.layout, views.runs())),
            key_count=len(entries),
            index=span,
            topics=views.topic_totals(),
            bad_level_count=views.bad_level_count,
            bad_levels=tuple(views.bad_levels),
        )


def _compare(layout: StoreLayout, runs: QueueRuns) -> Iterator[QueueSpan]:
    """Yield for each queue of a part whether it has the units of the part."""
    run_counts = np.bincount(runs.run_queue, minlength=len(runs.names))
    with Regions(layout.files) as regions:
        queues = QueueFiles(layout, regions)
        run = 0
        for name, run_count in zip(runs.names, run_counts.tolist(), strict=True):
            first, units = int(runs.run_first[run]), runs.run_units(run)
            count = len(units) // UNIT_SIZE
            is_right = run_count == 1 and first >= 0
            if is_right:
                key = (name[0].decode("utf-8", "replace"), name[1])
                is_right = queues.read(key, first, count) == units.data
            yield QueueSpan(name, first, first + count, is_right)
            run += run_count


@dataclass(frozen=True, slots=True)
class IndexFileStage:
    """Checks index files in themselves."""

    plan: "Broadcast[VerifyPlan]"

    def __call__(self, task: tuple[int, int]) -> tuple[int, bool]:
        """Return the store of a task (store, file), and whether the file is sound."""
        number, file = task
        store = self.plan.value.stores[number]
        assert store.geometry is not None
        assert store.index_files is not None
        before = store.index_files[file - 1] if file else None
        return number, file_is_sound(store.layout, store.geometry, store.index_files[file], before)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTask:
    """A serial check: of the queues of one partition of a store, or of its index."""

    store: int
    partition: int | None
    """None for the index."""
    partition_count: int = 1
    right: tuple[QueueSpan, ...] = ()
    """The queues that have all units of their records."""
    odd: frozenset[QueueName] = frozenset()


Wanted: TypeAlias = QueueRuns | Entries
Keyed: TypeAlias = tuple[tuple[int, int], Wanted]


@dataclass(frozen=True, slots=True)
class OddStage:
    """Walks parts again, for the units and keys that the serial checks have to see."""

    plan: "Broadcast[VerifyPlan]"
    tasks: "Broadcast[list[CheckTask]]"

    def __call__(self, part: LogPart) -> list[Keyed]:
        """Return what each check has to see of ``part``, by number of the check and the part."""
        plan = self.plan.value
        store = plan.stores[part.store]
        mine = [
            (number, task)
            for number, task in enumerate(self.tasks.value)
            if task.store == part.store and (task.odd or task.partition is None)
        ]
        views = _views(
            plan,
            store,
            units=any(task.odd for _, task in mine),
            keys=any(task.partition is None for _, task in mine),
        )
        walk_part(store.layout, part, views.take)
        runs, found = views.runs(), []
        for number, task in mine:
            wanted = views.entries() if task.partition is None else _select(runs, task.odd)
            found.append(((number, part.number), wanted))
        return found


def _select(runs: QueueRuns, wanted: frozenset[QueueName]) -> QueueRuns:
    """Return the runs of some of the queues."""
    numbers = [number for number, name in enumerate(runs.names) if name in wanted]
    kept = np.flatnonzero(np.isin(runs.run_queue, numbers))
    pieces = [runs.run_units(int(run)) for run in kept]
    counts = np.array([len(piece) // UNIT_SIZE for piece in pieces], np.int64)
    return QueueRuns(
        [runs.names[number] for number in numbers],
        np.searchsorted(numbers, runs.run_queue[kept]),
        runs.run_first[kept],
        np.cumsum(counts) - counts,
        np.concatenate([np.zeros(0, np.uint8), *pieces]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a serial check has found."""

    task: int
    store: int
    findings: Findings
    queue_count: int = 0
    unit_count: int = 0
    entry_count: int | None = None
    """How many entries the index has; None from checks of queues."""


@dataclass(frozen=True, slots=True)
class CheckStage:
    """Runs the serial checks, dealt out to ``slot_count`` Spark partitions."""

    plan: "Broadcast[VerifyPlan]"
    tasks: "Broadcast[list[CheckTask]]"
    scans: "Broadcast[Sequence[Sequence[PartScan]]]"
    slot_count: int

    def slot_of(self, key: tuple[int, int]) -> int:
        """Return in which partition the check is run that wanted a part of the log."""
        return key[0] % self.slot_count

    def __call__(self, slot: int, wanted: Iterable[Keyed]) -> Iterator[Checked]:
        """Run the checks of one partition with what they wanted, sorted by check and part."""
        groups = groupby(wanted, key=lambda item: item[0][0])
        group = next(groups, None)
        for number in range(slot, len(self.tasks.value), self.slot_count):
            if group is not None and group[0] == number:
                yield self._check(number, (value for _, value in group[1]))
                group = next(groups, None)
            else:
                yield self._check(number, iter(()))

    def _check(self, number: int, parts: Iterator[Wanted]) -> Checked:
        plan, task = self.plan.value, self.tasks.value[number]
        layout = plan.stores[task.store].layout
        scans = self.scans.value[task.store]
        check = _check_index if task.partition is None else _check_queues
        return check(plan, layout, number, task, scans, parts)


def _check_queues(
    plan: VerifyPlan,
    layout: StoreLayout,
    number: int,
    task: CheckTask,
    scans: Sequence[PartScan],
    parts: Iterator[Wanted],
) -> Checked:
    topics = known_topics(layout)
    layout = replace(
        layout,
        queues={
            (topic, queue_id): files
            for (topic, queue_id), files in layout.queues.items()
            if partition_of((os.fsencode(topic), queue_id), task.partition_count) == task.partition
        },
    )
    findings = Findings(details_max=plan.details_max)
    with Regions(layout.files) as regions:
        log = LogFiles(layout, regions)
        queues = QueueFiles(layout, regions)
        check = QueueCheck(
            queues,
            log,
            join_scans(layout, log, scans),
            findings,
            unclean=layout.has_abort,
            has_directory=layout.has_queue_directory,
            known_topics=topics,
            details_max=plan.details_max,
            lmq=layout.lmq,
        )
        for (topic, queue_id), first, following, _ in task.right:
            run = UnitRun(topic.decode("utf-8", "replace"), queue_id, first)
            check.begin(run)
            run.next = following
            check.unit_count += following - first
        replay = UnitReplay(check)
        for runs in parts:
            assert isinstance(runs, QueueRuns)
            replay.take(runs)
        check.finish()
        return Checked(
            task=number,
            store=task.store,
            findings=findings,
            queue_count=len(queues.keys),
            unit_count=check.unit_count,
        )


def _check_index(
    plan: VerifyPlan,
    layout: StoreLayout,
    number: int,
    task: CheckTask,
    scans: Sequence[PartScan],
    parts: Iterator[Wanted],
) -> Checked:
    findings = Findings(details_max=plan.details_max)
    with Regions(layout.files) as regions:
        log = LogFiles(layout, regions)
        check = make_index_check(layout, regions, log, join_scans(layout, log, scans), findings)
        if check is None:
            return Checked(task=number, store=task.store, findings=findings)
        try:
            for entries in parts:
                assert isinstance(entries, Entries)
                check.take(
                    entries.hashes.tolist(), entries.offsets.tolist(), entries.times.tolist()
                )
            check.finish()
        finally:
            check.close()
        count = check.entry_count
    return Checked(task=number, store=task.store, findings=findings, entry_count=count)


def index_tasks(plan: VerifyPlan) -> list[tuple[int, int]]:
    """Return store and number of every index file that is compared."""
    return list(
        chain.from_iterable(
            ((store, file) for file in range(len(known.index_files or ())))
            for store, known in enumerate(plan.stores)
        )
    )
