"""Copying topics from one cluster to another, and going on as they grow."""

import json
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from flintmq.offline.store_lock import hold_directory
from flintmq.settings.durable_file import replace_durably
from flintmq.spark.jobs.replay.replay_plan import ResumeError
from flintmq.spark.jobs.replay.replay_send import SendPlan, send_on
from flintmq.spark.jobs.replay.topic_cluster import TopicCluster
from flintmq.spark.jobs.stream.stream_job import StreamJob, StreamSettings, StreamTarget
from flintmq.spark.live.cluster_options import lowered, parse_connection
from flintmq.spark.runtime.failures import JobError
from flintmq.spark.sink.sink_options import parse_sink_options

FILE_NAME: Final = "copy.json"
CHECKPOINT: Final = "checkpoint"
VERSION: Final = 1
_SIZE_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """What is copied: topics with the names that they get.

    ``source`` are options of the reader (a stream), ``target`` options of the sink.  A batch has
    at most ``batch_rows`` messages.
    """

    source: Mapping[str, str] = field(repr=False)
    target: Mapping[str, str] = field(repr=False)
    topics: Mapping[str, str]
    state: Path
    rate: int | None = None
    batch_rows: int = 100_000
    available_now: bool = False

    def __post_init__(self) -> None:
        if not self.topics:
            raise JobError("a copy needs the topics to be copied")
        if self.rate is not None and self.rate < 1:
            raise JobError(f"rate is 1 or more messages a second, not {self.rate}")
        if self.batch_rows < 1:
            raise JobError(f"batch_rows is 1 or more, not {self.batch_rows}")
        # A wrong option of the sink is told before Spark is started.
        target = parse_sink_options(self.target).connection
        source = parse_connection(lowered(self.source))
        if set(source.namesrv.split(";")) & set(target.namesrv.split(";")):
            self.refuse_circles()

    @property
    def circles(self) -> list[str]:
        """The topics that are read and written; in one cluster that has no end."""
        return sorted(self.topics.keys() & set(self.topics.values()))

    def refuse_circles(self) -> None:
        """Raise JobError if a topic is read and written: source and target are one cluster."""
        for topic in self.circles:
            raise JobError(
                f"the topic {topic} would be read and written in the same cluster, without an "
                f"end; give the copy another name ({topic}=NAME)"
            )


class CopyJob(StreamJob):
    """A running copy; leaving the context stops it.

    It starts with the oldest messages there are.  Killed at any moment and started again with
    the same directory, it goes on: nothing is lost, and what was sent twice can be told.
    """

    def __init__(self, spark: SparkSession, request: CopyRequest) -> None:
        self._locked = ExitStack()
        request.state.mkdir(parents=True, exist_ok=True)
        self._locked.enter_context(hold_directory(request.state))
        try:
            self._request = request
            self.made_topics = self._make_topics()
            self._plan = self._send_plan(spark)
            source = {
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(request.batch_rows),
                **request.source,
                "subscribe": ",".join(request.topics),
            }
            planned = StreamSettings(
                checkpoint=str(request.state / CHECKPOINT), available_now=request.available_now
            )
            super().__init__(spark, source, StreamTarget(rows=self._copy), planned)
        except BaseException:
            self._locked.close()
            raise

    def _make_topics(self) -> list[str]:
        request = self._request
        source, target = TopicCluster(request.source), TopicCluster(request.target)
        if request.circles and source.shares_brokers(target):
            request.refuse_circles()
        counts = source.queue_counts(request.topics)
        return target.make({new: counts[topic] for topic, new in request.topics.items()})

    def _send_plan(self, spark: SparkSession) -> SendPlan:
        request = self._request
        target = TopicCluster(request.target)
        parallel = spark.sparkContext.defaultParallelism
        kept = _kept(
            request.state / FILE_NAME,
            source=TopicCluster(request.source).name,
            target=target.name,
            topics=request.topics,
            partitions=max(1, min(parallel, request.rate or parallel)),
        )
        return SendPlan(
            cluster=target.options,
            write_id=kept.write_id,
            names=request.topics,
            queue_counts=target.queue_counts(request.topics.values()),
            partitions=kept.partitions,
            rate=request.rate,
        )

    def _copy(self, messages: DataFrame, batch: int) -> None:
        send_on(messages, batch, "queueOffset", self._plan)

    def stop(self) -> None:
        """Stop; a batch under way is given up, and sent again at the next start."""
        try:
            super().stop()
        finally:
            self._locked.close()


@dataclass(frozen=True, slots=True)
class _CopyState:
    """What stays the same at each start of a copy, since the marks of rows depend on it."""

    write_id: str
    partitions: int


def _kept(
    path: Path, *, source: str, target: str, topics: Mapping[str, str], partitions: int
) -> _CopyState:
    """Return what the directory of a copy keeps; a new one begins to keep it."""
    request = {"source": source, "target": target, "topics": dict(topics)}
    if path.exists():
        return _read(path, request)
    found = _CopyState(uuid.uuid4().hex, partitions)
    members = {
        "version": VERSION,
        "request": request,
        "writeId": found.write_id,
        "partitions": found.partitions,
    }
    replace_durably(path, json.dumps(members, indent=1).encode())
    return found


def _read(path: Path, request: Mapping[str, object]) -> _CopyState:
    if path.stat().st_size > _SIZE_MAX:
        raise ResumeError(str(path), "is too large to be the state of a copy")
    try:
        members = json.loads(path.read_bytes())
        kept = _CopyState(str(members["writeId"]), int(members["partitions"]))
        version, known = members["version"], members["request"]
    except (ValueError, TypeError, KeyError) as error:
        raise ResumeError(str(path), f"cannot be understood: {error}") from error
    if version != VERSION:
        raise ResumeError(str(path), "was written by another version")
    if known != request:
        raise ResumeError(str(path), "belongs to a copy of other topics, or of other clusters")
    return kept
