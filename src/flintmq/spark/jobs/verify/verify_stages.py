"""The tasks of a verification.

1. `CompareStage` walks a range of the log and compares in place: the units of its records with
   the queues, its keys with the index.  What goes to the driver is where each queue begins and
   ends in the range, and whether all units were right.
2. `CheckStage` runs the serial checks of queues and index.  For queues that were right in every
   range it looks at what precedes and follows them; the others it gets unit by unit, from
   `RecheckStage`, by way of Spark's shuffle.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import NamedTuple, TypeAlias

import numpy as np
from pyspark import Broadcast

from flintmq.format.delay_levels import DelayLevels
from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.kernels.derived_views import (
    BadLevel,
    Entries,
    SplitViews,
    UnitSlices,
    partition_of,
)
from flintmq.kernels.queue_numbers import QueueName
from flintmq.offline.derive import DerivedQueue
from flintmq.offline.findings import Findings
from flintmq.offline.index_geometry import IndexGeometry
from flintmq.offline.layout import StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.regions import Regions
from flintmq.offline.verify.store_verify import make_index_check
from flintmq.offline.verify.verify_queues import QueueCheck
from flintmq.offline.verify.verify_state import known_topics
from flintmq.spark.parallel_log.index_probe import EntrySpan, IndexProbe, UsedFile, file_is_sound
from flintmq.spark.parallel_log.range_planning import join_scans
from flintmq.spark.parallel_log.range_walk import RangeScan, WalkRange, walk_range
from flintmq.spark.parallel_log.unit_replay import UnitReplay


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreVerifyPlan:
    """What the tasks have to know of one store."""

    layout: StoreLayout
    geometry: IndexGeometry | None
    index_files: Sequence[UsedFile] | None
    """The index files to compare with; None when the serial check has to read them."""
    dispatched: int
    """Below this log offset every unit was durable before the log was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """What the tasks have to know of all stores."""

    stores: Sequence[StoreVerifyPlan]
    delay_levels: DelayLevels
    details_max: int


class QueueSpan(NamedTuple):
    """The units that a range of the log, or all of it, asks for in one queue."""

    name: QueueName
    first: int
    following: int
    is_right: bool
    """Whether they are one slice, and the queue has just these units there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRange:
    """What a task has found out about a range of the log."""

    scan: RangeScan
    queues: tuple[QueueSpan, ...]
    key_count: int
    index: EntrySpan | None
    topics: dict[bytes, tuple[int, int]]
    bad_level_count: int
    bad_levels: tuple[BadLevel, ...]


def _views(plan: VerifyPlan, store: StoreVerifyPlan, *, units: bool, keys: bool) -> SplitViews:
    return SplitViews(
        delay_levels=plan.delay_levels,
        lmq=store.layout.lmq,
        wants_units=units,
        wants_keys=keys,
    )


@dataclass(frozen=True, slots=True)
class CompareStage:
    """Compares a range of the log with queues and index."""

    plan: "Broadcast[VerifyPlan]"

    def __call__(self, log_range: WalkRange) -> ComparedRange:
        """Walk ``log_range`` and compare its records with queues and index."""
        plan = self.plan.value
        store = plan.stores[log_range.store]
        views = _views(plan, store, units=True, keys=store.index_files is not None)
        scan = walk_range(store.layout, log_range, views.take)
        entries = views.entries()
        span = None
        if len(entries):
            assert store.geometry is not None
            assert store.index_files is not None
            span = IndexProbe(store.layout, store.geometry, store.index_files).span_of(entries)
        return ComparedRange(
            scan=scan,
            queues=tuple(_compare(store.layout, views.slices())),
            key_count=len(entries),
            index=span,
            topics=views.topic_totals(),
            bad_level_count=views.bad_level_count,
            bad_levels=tuple(views.bad_levels),
        )


def _compare(layout: StoreLayout, slices: UnitSlices) -> Iterator[QueueSpan]:
    """Yield for each queue of a range whether it has the units that the records ask for."""
    slice_counts = np.bincount(slices.slice_queue, minlength=len(slices.names))
    with Regions(layout.files) as regions:
        queues = QueueFiles(layout, regions)
        number = 0
        for name, slice_count in zip(slices.names, slice_counts.tolist(), strict=True):
            first, units = int(slices.slice_first[number]), slices.units_of(number)
            count = len(units) // UNIT_SIZE
            is_right = slice_count == 1 and first >= 0
            if is_right:
                key = (name[0].decode("utf-8", "replace"), name[1])
                is_right = queues.read(key, first, count) == units.data
            yield QueueSpan(name, first, first + count, is_right)
            number += slice_count


@dataclass(frozen=True, slots=True)
class IndexFileStage:
    """Checks each index file on its own."""

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
    """The partition of the queues that is checked; None for the index."""
    partition_count: int = 1
    right: tuple[QueueSpan, ...] = ()
    """The queues that have all units of their records."""
    suspect: frozenset[QueueName] = frozenset()


RangeViews: TypeAlias = UnitSlices | Entries
KeyedViews: TypeAlias = tuple[tuple[int, int], RangeViews]


@dataclass(frozen=True, slots=True)
class RecheckStage:
    """Walks ranges again, for the units and keys that the serial checks have to see."""

    plan: "Broadcast[VerifyPlan]"
    tasks: "Broadcast[list[CheckTask]]"

    def __call__(self, log_range: WalkRange) -> list[KeyedViews]:
        """Return what each check has to see of a range, keyed by check number and range number."""
        plan = self.plan.value
        store = plan.stores[log_range.store]
        mine = [
            (number, task)
            for number, task in enumerate(self.tasks.value)
            if task.store == log_range.store and (task.suspect or task.partition is None)
        ]
        views = _views(
            plan,
            store,
            units=any(task.suspect for _, task in mine),
            keys=any(task.partition is None for _, task in mine),
        )
        walk_range(store.layout, log_range, views.take)
        slices, found = views.slices(), []
        for number, task in mine:
            wanted = views.entries() if task.partition is None else _select(slices, task.suspect)
            found.append(((number, log_range.number), wanted))
        return found


def _select(slices: UnitSlices, wanted: frozenset[QueueName]) -> UnitSlices:
    """Return the slices of some of the queues."""
    numbers = [number for number, name in enumerate(slices.names) if name in wanted]
    kept = np.flatnonzero(np.isin(slices.slice_queue, numbers))
    pieces = [slices.units_of(int(at)) for at in kept]
    counts = np.array([len(piece) // UNIT_SIZE for piece in pieces], np.int64)
    return UnitSlices(
        [slices.names[number] for number in numbers],
        np.searchsorted(numbers, slices.slice_queue[kept]),
        slices.slice_first[kept],
        np.cumsum(counts) - counts,
        np.concatenate([np.zeros(0, np.uint8), *pieces]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
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
    scans: "Broadcast[Sequence[Sequence[RangeScan]]]"
    slot_count: int

    def slot_of(self, key: tuple[int, int]) -> int:
        """Return in which partition the check is run that wanted a range of the log."""
        return key[0] % self.slot_count

    def __call__(self, slot: int, wanted: Iterable[KeyedViews]) -> Iterator[CheckResult]:
        """Run the checks of one partition with what they wanted, sorted by check and range."""
        groups = groupby(wanted, key=lambda item: item[0][0])
        group = next(groups, None)
        for number in range(slot, len(self.tasks.value), self.slot_count):
            if group is not None and group[0] == number:
                yield self._check(number, (value for _, value in group[1]))
                group = next(groups, None)
            else:
                yield self._check(number, iter(()))

    def _check(self, number: int, wanted: Iterator[RangeViews]) -> CheckResult:
        plan, task = self.plan.value, self.tasks.value[number]
        store = plan.stores[task.store]
        scans = self.scans.value[task.store]
        check = _check_index if task.partition is None else _check_queues
        return check(plan, store, number, task, scans, wanted)


def _check_queues(
    plan: VerifyPlan,
    store: StoreVerifyPlan,
    number: int,
    task: CheckTask,
    scans: Sequence[RangeScan],
    wanted: Iterator[RangeViews],
) -> CheckResult:
    layout = store.layout
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
            dispatched=store.dispatched,
            all_queues=QueueFiles(store.layout, regions),
        )
        for (topic, queue_id), first, following, _ in task.right:
            queue = DerivedQueue(topic.decode("utf-8", "replace"), queue_id, first)
            check.begin(queue)
            queue.next = following
            check.unit_count += following - first
        replay = UnitReplay(check)
        for slices in wanted:
            assert isinstance(slices, UnitSlices)
            replay.take(slices)
        check.finish()
        return CheckResult(
            task=number,
            store=task.store,
            findings=findings,
            queue_count=len(queues.keys),
            unit_count=check.unit_count,
        )


def _check_index(
    plan: VerifyPlan,
    store: StoreVerifyPlan,
    number: int,
    task: CheckTask,
    scans: Sequence[RangeScan],
    wanted: Iterator[RangeViews],
) -> CheckResult:
    layout = store.layout
    findings = Findings(details_max=plan.details_max)
    with Regions(layout.files) as regions:
        log = LogFiles(layout, regions)
        check = make_index_check(layout, regions, log, join_scans(layout, log, scans), findings)
        if check is None:
            return CheckResult(task=number, store=task.store, findings=findings)
        try:
            for entries in wanted:
                assert isinstance(entries, Entries)
                check.take(
                    entries.hashes.tolist(), entries.offsets.tolist(), entries.times.tolist()
                )
            check.finish()
        finally:
            check.close()
        count = check.entry_count
    return CheckResult(task=number, store=task.store, findings=findings, entry_count=count)


def index_tasks(plan: VerifyPlan) -> list[tuple[int, int]]:
    """Return store and number of every index file that is compared."""
    return list(
        chain.from_iterable(
            ((store, file) for file in range(len(known.index_files or ())))
            for store, known in enumerate(plan.stores)
        )
    )
