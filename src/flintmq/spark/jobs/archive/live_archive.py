"""Archiving live topics: the archive of a store, made through brokers instead of their files.

A pull is answered with records as they stand in the broker's log, so an archive of live topics
holds the same rows, checksums and manifests as one of stores, and is checked, queried, replayed
and restored like it.  Each broker is a store in it.  What a run took is told by ranges of queue
offsets, and the next run goes on behind them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import ArchiveError, OptionError
from flintmq.spark.jobs.archive.archive_manifest import (
    ArchivedFile,
    QueueEnd,
    QueueRun,
    StoreRun,
)
from flintmq.spark.jobs.archive.archive_run import (
    ArchiveReport,
    ArchiveRules,
    ArchiveRun,
    begin_run,
    counted,
)
from flintmq.spark.jobs.archive.live_archive_losses import LossRule, RunLosses
from flintmq.spark.jobs.archive.live_archive_plan import (
    LivePlan,
    PlannedRange,
    plan_run,
    prove_logs,
    prove_unchanged,
)
from flintmq.spark.jobs.archive.live_archive_state import BrokerFacts, state_files
from flintmq.spark.jobs.archive.live_archive_task import ArchivedRange, bundled, joined
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.cluster_options import lowered
from flintmq.spark.live.live_options import LiveOptions, parse_batch
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.runtime.spark_session import TaskSession

_REFUSED_OPTIONS: Final = {
    "subExpression": "an archive takes messages of all tags",
    "sqlFilter": "an archive takes all messages",
    "dropRepeats": "an archive keeps what the broker has",
    "repeatLookback": "an archive keeps what the broker has",
    "kafkaColumns": "an archive has columns of its own",
    "includeHeaders": "an archive has columns of its own",
    "failOnDataLoss": "allow_gap says whether a run goes on without what is gone",
}
"""Options of the data source that would make something else of an archive, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArchiveRequest:
    """Which live topics are archived, and by which rules.

    ``source`` are options of the data source for a batch.  A queue that the archive does not know
    begins with its oldest message, unless the options say otherwise.  With ``allow_gap`` a run
    also accepts a topic that was made anew.
    """

    source: Mapping[str, str] = field(repr=False)
    rules: ArchiveRules
    options: LiveOptions = field(init=False, repr=False)
    """What the options say; OptionError for one that an archive cannot follow."""

    def __post_init__(self) -> None:
        given = lowered(self.source)
        for name, why in _REFUSED_OPTIONS.items():
            if name.lower() in given:
                raise OptionError(f"the option {name} has no place here: {why}")
        object.__setattr__(self, "options", parse_batch(self.source))


def archive_topics(
    spark: TaskSession,
    source: Mapping[str, str],
    to: Path | str,
    *,
    on_corrupt: OnCorrupt = OnCorrupt.FAIL,
    allow_gap: bool = False,
) -> ArchiveReport:
    """Add to the archive ``to`` what is new in live topics since its last run.

    `LiveArchiveRequest` explains the arguments, `archive_live_topics` the errors.
    """
    rules = ArchiveRules(to=Path(to), on_corrupt=on_corrupt, allow_gap=allow_gap)
    return archive_live_topics(spark, LiveArchiveRequest(source=source, rules=rules))


def archive_live_topics(spark: TaskSession, request: LiveArchiveRequest) -> ArchiveReport:
    """Add to an archive what is new in live topics since its last run.

    Raises:
        ArchiveError: a queue is not the one that was archived, messages or a topic are gone, or
            the archive is one of stores.
        LiveError: the cluster does not answer, or refuses.
        StoreInUseError: another run is adding to the archive.
    """
    options, rules = request.options, request.rules
    rule = LossRule(allow_gap=rules.allow_gap, skips_damage=rules.on_corrupt is OnCorrupt.SKIP)
    with begin_run(spark, rules.to, is_live=True) as run:
        known, losses = _known_queues(run), RunLosses(rule)
        with LiveSession(options.connection) as session:
            cluster = Cluster(session.client, options)
            plan = session.run(plan_run(cluster, options, known, losses))
            brokers = _Brokers(run, options, plan, losses, known)
            session.run(prove_logs(cluster, plan.ranges, _last_records(run)))
        return brokers.add(rules.on_corrupt)


def _last_records(run: ArchiveRun) -> dict[str, QueueEnd]:
    """Return, of each broker, the archived record that is the last in its log."""
    found: dict[str, QueueEnd] = {}
    for store in (store for manifest in run.known for store in manifest.stores):
        for last in (queue.last for queue in store.queues or () if queue.last is not None):
            before = found.get(store.name)
            if before is None or before.physical_offset < last.physical_offset:
                found[store.name] = last
    return found


def _known_queues(run: ArchiveRun) -> dict[MessageQueue, QueueRun]:
    """Return what is known of each queue since the last run that has looked at it.

    A queue of which nothing was archived yet is known by where it began: at the first look, or
    behind the last gap.
    """
    found: dict[MessageQueue, QueueRun] = {}
    for manifest in run.known:
        for store in manifest.stores:
            for one in store.queues or ():
                queue = MessageQueue(one.topic, store.name, one.queue_id)
                before = found.get(queue)
                if before is not None and before.last is one.last is None:
                    went_on = one.start == before.end
                    found[queue] = replace(one, start=before.start) if went_on else one
                else:
                    found[queue] = one
    return found


class _Brokers:
    """One run over the queues of brokers."""

    def __init__(
        self,
        run: ArchiveRun,
        options: LiveOptions,
        plan: LivePlan,
        losses: RunLosses,
        known: Mapping[MessageQueue, QueueRun],
    ) -> None:
        self._run = run
        self._options = options
        self._plan = plan
        self._losses = losses
        self._known = known
        self._stores = [self._begin(name, plan.brokers[name]) for name in sorted(plan.brokers)]

    def add(self, on_corrupt: OnCorrupt) -> ArchiveReport:
        tasks = bundled(
            self._plan.ranges,
            options=self._options,
            rule=self._losses.rule,
            slots=self._run.slots,
            root=self._run.task_root,
        )
        if not tasks:
            return self._run.nothing_new(self._stores, self._losses.of_plan())
        done = self._run.done_by(tasks)
        files = self._run.collect([written for written, _ in done])
        archived = joined(one for _, some in done for one in some)
        with LiveSession(self._options.connection) as session:
            cluster = Cluster(session.client, self._options)
            session.run(prove_unchanged(cluster, self._plan.ranges, archived))
        return self._run.publish(
            topics=tuple(sorted({planned.queue.topic for planned in self._plan.ranges})),
            on_corrupt=on_corrupt.value,
            stores=[
                self._finished(number, store, files, archived)
                for number, store in enumerate(self._stores)
            ],
            files=files,
            damages_behind=self._losses.of_absent(),
        )

    def _begin(self, name: str, facts: BrokerFacts) -> StoreRun:
        """Return a broker, without its records; ArchiveError if it is another of that name."""
        for before in self._run.known_as(name):
            for what, then, now in (
                ("belonged to the cluster", before.cluster, facts.cluster),
                ("had log files of", before.log_file_size, facts.log_file_size),
            ):
                if then != now:
                    reason = f"when it was archived it {what} {then}, not {now}: it is another one"
                    raise ArchiveError(f"broker {name}", reason)
        return StoreRun(
            name=name,
            path=self._options.connection.namesrv,
            broker_name=name,
            start=0,
            end=0,
            record_count=0,
            record_bytes=0,
            checksum=0,
            last=None,
            log_file_size=facts.log_file_size,
            queue_file_size=facts.queue_file_size,
            hash_slots=facts.hash_slots,
            index_entries=facts.index_entries,
            cluster=facts.cluster,
            queues=(),
        )

    def _finished(
        self,
        number: int,
        store: StoreRun,
        files: Sequence[ArchivedFile],
        archived: Mapping[MessageQueue, ArchivedRange],
    ) -> StoreRun:
        """Return a broker with what was archived of it; its state files are kept."""
        ranges = [one for one in self._plan.ranges if one.queue.broker_name == store.name]
        found = [archived[one.queue] for one in ranges if one.queue in archived]
        queues = tuple(_queue_run(one, archived.get(one.queue)) for one in ranges)
        contents = state_files(self._plan.brokers[store.name], self._ends(store.name, queues))
        return replace(
            counted(store, files),
            start=min((one.start for one in found if one.record_count), default=0),
            end=max((one.end for one in found if one.record_count), default=0),
            queues=queues,
            damages=self._losses.of_broker(store.name, queues),
            state_files=self._run.keep_state(number, contents),
        )

    def _ends(self, broker: str, queues: Sequence[QueueRun]) -> dict[tuple[str, int], int]:
        """Return where the queues of a broker end in the archive, those of earlier runs too."""
        before = [run for queue, run in self._known.items() if queue.broker_name == broker]
        return {(one.topic, one.queue_id): one.end for one in (*before, *queues)}


def _queue_run(planned: PlannedRange, archived: ArchivedRange | None) -> QueueRun:
    return QueueRun(
        topic=planned.queue.topic,
        queue_id=planned.queue.queue_id,
        start=planned.wanted.start,
        end=planned.wanted.end,
        record_count=0 if archived is None else archived.record_count,
        last=planned.last if archived is None or archived.last is None else archived.last,
    )
