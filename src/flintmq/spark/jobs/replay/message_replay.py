"""Replaying: what store directories or an archive hold is sent to a cluster again."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from flintmq.format.topic_names import name_fault
from flintmq.model import topics as names
from flintmq.offline.store_lock import hold_directory
from flintmq.spark.jobs.damages import Damages
from flintmq.spark.jobs.replay.replay_plan import ReplayPlan, ReplayState, ReplayTopic
from flintmq.spark.jobs.replay.replay_send import SendPlan, send_on
from flintmq.spark.jobs.replay.replay_source import ReplayRange, ReplaySource, open_source
from flintmq.spark.jobs.replay.topic_cluster import TopicCluster
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.runtime.failures import JobError, SqlError, reason_of
from flintmq.spark.runtime.stage_names import stage_name

PART_SIZE: Final = 64 << 20
_SYSTEM: Final = (names.SYSTEM_TOPICS | names.NO_SEND_TOPICS) - {names.BENCHMARK_TOPIC}
_SYSTEM_PREFIXES: Final = (names.RETRY_PREFIX, names.DLQ_PREFIX, names.SYSTEM_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What is replayed, and how.

    ``topics`` are the topics wanted with the names they get; without any, all ordinary ones
    keep their names.  Times are milliseconds of storing, the end is exclusive.  ``where`` is a
    condition in SQL over the columns of messages.  ``rate`` is for all together, in messages a
    second.
    """

    sources: tuple[str, ...]
    topics: Mapping[str, str] = field(default_factory=dict)
    start_ms: int | None = None
    end_ms: int | None = None
    where: str | None = None
    rate: int | None = None
    part_size: int = PART_SIZE
    on_corrupt: OnCorrupt = OnCorrupt.FAIL

    def __post_init__(self) -> None:
        if self.on_corrupt is OnCorrupt.ROW:
            raise JobError("damage cannot be sent: it fails or is left out")
        if not self.sources:
            raise JobError("a replay needs an archive, or at least one directory")
        if self.rate is not None and self.rate < 1:
            raise JobError(f"rate is 1 or more messages a second, not {self.rate}")
        for target in self.topics.values():
            fault = name_fault(target)
            if fault is not None:
                raise JobError(f"{target!r}: {fault}")

    def key(self, target: str) -> dict[str, object]:
        """Return what must be the same for a replay that goes on."""
        return {
            "sources": list(self.sources),
            "target": target,
            "topics": dict(self.topics),
            "start": self.start_ms,
            "end": self.end_ms,
            "where": self.where,
            "damage": self.on_corrupt.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay has done.  ``batch_count`` is of this run, ``made_topics`` were new.

    ``damages`` is what the source lacks: it was left out.
    """

    topics: tuple[ReplayTopic, ...]
    message_count: int
    batch_count: int
    made_topics: tuple[str, ...]
    is_resumed: bool
    is_dry_run: bool
    damages: Damages


def replay(
    spark: SparkSession,
    request: ReplayRequest,
    cluster: Mapping[str, str],
    *,
    state: Path | None = None,
    dry_run: bool = False,
) -> ReplayReport:
    """Send messages to the cluster that options of the sink name.

    With a directory ``state`` a replay that was killed goes on: nothing is lost, and what is
    sent twice can be told (the reader's option dropRepeats).

    Raises:
        ResumeError: the directory belongs to another replay.
        ReplayLossError: what is left to be sent is not in the source any more.
        StoreInUseError: another process replays with this directory.
    """
    with ExitStack() as stack:
        if state is not None and not dry_run:
            state.mkdir(parents=True, exist_ok=True)
            stack.enter_context(hold_directory(state))
        run = _Replay(spark, request, TopicCluster(cluster), ReplayState(state))
        return run.look() if dry_run else run.send()


class _Replay:
    """One run of a replay."""

    def __init__(
        self, spark: SparkSession, request: ReplayRequest, target: TopicCluster, state: ReplayState
    ) -> None:
        self._spark = spark
        self._request = request
        self._target = target
        self._state = state
        self._key = request.key(target.name)
        self._source: ReplaySource = open_source(
            spark, request.sources, on_corrupt=request.on_corrupt
        )

    def look(self) -> ReplayReport:
        """Tell what would be sent."""
        return self._report(self._new_plan(), is_dry_run=True)

    def send(self) -> ReplayReport:
        """Send what is left."""
        before = self._state.load(self._key)
        plan = before or self._new_plan()
        wanted = {one.target: one.queue_count for one in plan.topics}
        made = self._target.make(wanted)
        self._state.save(plan)
        sending = SendPlan(
            cluster=self._target.options,
            write_id=plan.write_id,
            names={one.topic: one.target for one in plan.topics},
            queue_counts=self._target.queue_counts(wanted),
            partitions=plan.partitions,
            rate=self._request.rate,
        )
        batch_count = 0
        while plan.topics and (found := plan.next_range(self._source)) is not None:
            number, log_range = found
            messages = self._wanted(log_range).where(F.col("topic").isin([*sending.names]))
            with stage_name(self._spark.sparkContext, f"sending batch {plan.batch}"):
                send_on(messages, plan.batch, "physicalOffset", sending)
            self._source.check(log_range)
            plan = plan.after(number, log_range)
            self._state.save(plan)
            batch_count += 1
        self._target.forget(plan.write_id)
        return self._report(
            plan, batch_count=batch_count, made_topics=made, is_resumed=before is not None
        )

    def _new_plan(self) -> ReplayPlan:
        logs = tuple(self._source.logs())
        parallel = self._spark.sparkContext.defaultParallelism
        return ReplayPlan(
            request=self._key,
            logs=logs,
            topics=self._topics(logs),
            partitions=max(1, min(parallel, self._request.rate or parallel)),
            part_size=self._request.part_size,
            damages=self._source.damages(logs),
        )

    def _topics(self, logs: Sequence[ReplayRange]) -> tuple[ReplayTopic, ...]:
        """Scan the logs once, and return the topics that are sent."""
        found: dict[str, ReplayTopic] = {}
        wanted = self._request.topics
        for log in logs:
            cells = (
                self._wanted(log)
                .groupBy("topic")
                .agg(
                    F.count("*").alias("count"),
                    F.max("queueId").alias("queue"),
                    F.unix_millis(F.min("storeTimestamp")).alias("first"),
                    F.unix_millis(F.max("storeTimestamp")).alias("last"),
                )
            )
            with stage_name(self._spark.sparkContext, "counting what is sent"):
                counted = cells.collect()
            for topic, count, queue, first, last in counted:
                if topic in wanted or (not wanted and is_ordinary(topic)):
                    one = ReplayTopic(
                        topic=topic,
                        target=wanted.get(topic, topic),
                        message_count=count,
                        queue_count=queue + 1,
                        first_ms=first,
                        last_ms=last,
                    )
                    found[topic] = _added(found.get(topic), one)
        return tuple(found[topic] for topic in sorted(found))

    def _wanted(self, log_range: ReplayRange) -> DataFrame:
        """Return the messages of a range that meet the conditions on time and content."""
        request = self._request
        # A body that cannot be decompressed is null: such a message is left out, and counted.
        table = self._source.messages(log_range).where(F.col("body").isNotNull())
        time = F.unix_millis("storeTimestamp")
        if request.start_ms is not None:
            table = table.where(time >= request.start_ms)
        if request.end_ms is not None:
            table = table.where(time < request.end_ms)
        if request.where is None:
            return table
        try:
            return table.where(request.where)
        except (AnalysisException, ParseException) as error:
            raise SqlError(reason_of(error)) from error

    @staticmethod
    def _report(
        plan: ReplayPlan,
        *,
        batch_count: int = 0,
        made_topics: Sequence[str] = (),
        is_resumed: bool = False,
        is_dry_run: bool = False,
    ) -> ReplayReport:
        return ReplayReport(
            topics=plan.topics,
            message_count=sum(one.message_count for one in plan.topics),
            batch_count=batch_count,
            made_topics=tuple(made_topics),
            is_resumed=is_resumed,
            is_dry_run=is_dry_run,
            damages=plan.damages,
        )


def is_ordinary(topic: str) -> bool:
    """Whether a topic is one of users, rather than one that brokers and groups work with."""
    return topic not in _SYSTEM and not topic.startswith(_SYSTEM_PREFIXES)


def _added(before: ReplayTopic | None, other: ReplayTopic) -> ReplayTopic:
    """Return what two stores have of a topic together."""
    if before is None:
        return other
    times = [
        time for one in (before, other) for time in (one.first_ms, one.last_ms) if time is not None
    ]
    return ReplayTopic(
        topic=other.topic,
        target=other.target,
        message_count=before.message_count + other.message_count,
        queue_count=max(before.queue_count, other.queue_count),
        first_ms=min(times, default=None),
        last_ms=max(times, default=None),
    )
