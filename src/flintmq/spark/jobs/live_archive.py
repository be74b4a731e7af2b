"""Archiving live topics: the archive of a store, made through brokers instead of their files.

A pull is answered with records as they stand in the broker's log, so an archive of live topics
holds the same rows, checksums and manifests as one of stores, and is checked, queried, replayed
and restored like it.  Each broker is a store in it.  What a run took is told by ranges of queue
offsets, and the next run goes on behind them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import ArchiveError, OptionError
from flintmq.spark.jobs.archive_manifest import ArchivedFile, QueueRun, StoreRun
from flintmq.spark.jobs.archive_run import ArchiveReport, ArchiveRun, begin_run, counted
from flintmq.spark.jobs.live_archive_plan import LivePlan, LossRule, QueueTake, plan_run
from flintmq.spark.jobs.live_archive_state import BrokerFacts, state_files
from flintmq.spark.jobs.live_archive_task import RangeTaken, bundled, joined
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.connection import lowered
from flintmq.spark.live.options import LiveOptions, parse_batch
from flintmq.spark.live.session import LiveSession
from flintmq.spark.options import OnCorrupt
from flintmq.spark.session import TaskSession

_NO_PLACE: Final = {
    "subExpression": "an archive takes messages of all tags",
    "sqlFilter": "an archive takes all messages",
    "dropRepeats": "an archive keeps what the broker has",
    "repeatLookback": "an archive keeps what the broker has",
    "kafkaColumns": "an archive has columns of its own",
    "includeHeaders": "an archive has columns of its own",
    "failOnDataLoss": "allow_gap says whether a run goes on without what is gone",
}
"""Options of the data source that would make something else of an archive, and why."""


def archive_topics(
    spark: TaskSession,
    source: Mapping[str, str],
    to: Path | str,
    *,
    on_corrupt: OnCorrupt = OnCorrupt.FAIL,
    allow_gap: bool = False,
) -> ArchiveReport:
    """Add to the archive ``to`` what is new in live topics since its last run.

    ``source`` are options of the data source for a batch.  A queue that the archive does not know
    begins with its oldest message, unless the options say otherwise.  ``to`` must be a directory
    that driver and executors see under the same path.  Damage ends the run, or is left out with
    ``OnCorrupt.SKIP``.  ``allow_gap`` lets a run go on without messages that were deleted before
    they were archived, and with a topic that was made anew.

    Raises:
        ArchiveError: a queue is not the one that was archived, messages or a topic are gone, or
            the archive is one of stores.
        LiveError: the cluster does not answer, or refuses.
        StoreInUseError: another run is adding to the archive.
    """
    if on_corrupt is OnCorrupt.ROW:
        raise ArchiveError(str(to), "damage has no row in an archive: it fails or is left out")
    options = _parse(source)
    rule = LossRule(allow_gap=allow_gap, skips_damage=on_corrupt is OnCorrupt.SKIP)
    with begin_run(spark, to, is_live=True) as run:
        known = _known_queues(run)
        with LiveSession(options.connection) as session:
            plan = session.run(plan_run(Cluster(session.client, options), options, known, rule))
        return _Brokers(run, options, plan, rule, known).add(on_corrupt)


def _parse(source: Mapping[str, str]) -> LiveOptions:
    given = lowered(source)
    for name, why in _NO_PLACE.items():
        if name.lower() in given:
            raise OptionError(f"the option {name} has no place here: {why}")
    return parse_batch(source)


def _known_queues(run: ArchiveRun) -> dict[MessageQueue, QueueRun]:
    """Return what is known of each queue since the last run that has looked at it."""
    return {
        MessageQueue(queue.topic, store.name, queue.queue_id): queue
        for manifest in run.known
        for store in manifest.stores
        for queue in store.queues or ()
    }


class _Brokers:
    """One run over the queues of brokers."""

    def __init__(
        self,
        run: ArchiveRun,
        options: LiveOptions,
        plan: LivePlan,
        rule: LossRule,
        known: Mapping[MessageQueue, QueueRun],
    ) -> None:
        self._run = run
        self._options = options
        self._plan = plan
        self._rule = rule
        self._known = known

    def add(self, on_corrupt: OnCorrupt) -> ArchiveReport:
        stores = [self._begin(name, facts) for name, facts in sorted(self._plan.brokers.items())]
        tasks = bundled(
            [take.wanted for take in self._plan.takes],
            options=self._options,
            rule=self._rule,
            slots=self._run.slots,
            root=self._run.task_root,
        )
        if not tasks:
            return self._run.nothing_new(stores)
        done = self._run.done_by(tasks)
        files = self._run.collect([written for written, _ in done])
        taken = joined(one for _, some in done for one in some)
        return self._run.publish(
            topics=tuple(sorted({take.queue.topic for take in self._plan.takes})),
            on_corrupt=on_corrupt.value,
            stores=[
                self._finished(number, store, files, taken) for number, store in enumerate(stores)
            ],
            files=files,
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
        taken: Mapping[MessageQueue, RangeTaken],
    ) -> StoreRun:
        """Return a broker with what was taken of it, its state kept."""
        takes = [take for take in self._plan.takes if take.queue.broker_name == store.name]
        found = [taken[take.queue] for take in takes if take.queue in taken]
        queues = tuple(_queue_run(take, taken.get(take.queue)) for take in takes)
        contents = state_files(self._plan.brokers[store.name], self._ends(store.name, queues))
        return replace(
            counted(store, files),
            start=min((one.start for one in found if one.record_count), default=0),
            end=max((one.end for one in found if one.record_count), default=0),
            queues=queues,
            state_files=self._run.keep_state(number, contents),
        )

    def _ends(self, broker: str, queues: Sequence[QueueRun]) -> dict[tuple[str, int], int]:
        """Return where the queues of a broker end in the archive, those of earlier runs too."""
        before = [run for queue, run in self._known.items() if queue.broker_name == broker]
        return {(one.topic, one.queue_id): one.end for one in (*before, *queues)}


def _queue_run(take: QueueTake, taken: RangeTaken | None) -> QueueRun:
    return QueueRun(
        topic=take.queue.topic,
        queue_id=take.queue.queue_id,
        start=take.wanted.start,
        end=take.wanted.end,
        record_count=0 if taken is None else taken.record_count,
        last=take.last if taken is None or taken.last is None else taken.last,
    )
