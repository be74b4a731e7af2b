"""What the sink and the jobs on it promise about time, with time in the hands of the test."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.main import run
from flintmq.spark.jobs.replay.message_replay import ReplayRequest, replay
from flintmq.spark.sink.sink_options import SinkOptions, parse_sink_options
from flintmq.spark.sink.task_time import SinkTime
from flintmq.spark.sink.writer import SinkCommit, TopicWriter
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import bodies, texts
from tests.kits.spark.pipeline_kit import light_session, use_session, write_store
from tests.kits.spark.sink_kit import TOPIC, numbered, send_rows, stored
from tests.kits.store.offline_stores import message

COUNT = 40


@dataclass(slots=True)
class HandTime:
    """Seconds that pass only when somebody sleeps."""

    at_s: float = 0.0

    def monotonic(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds

    def for_sink(self) -> SinkTime:
        return SinkTime(monotonic=self.monotonic, sleep=self.sleep)


def timed_source(told: Path) -> type[DataSource]:
    """Return the source as it is, but with a time that takes none.

    Each task tells in a file how many messages it has sent in how many of those seconds.  Spark
    sends a class that is made here to its workers as a whole.
    """

    class TimedWriter(TopicWriter):
        def __init__(self, options: SinkOptions) -> None:
            self._hand = HandTime()
            super().__init__(options, time=self._hand.for_sink())

        def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
            done = super().write(iterator)
            context = TaskContext.get()
            assert context is not None
            name = str(context.partitionId())
            (told / name).write_text(json.dumps([done.messages, self._hand.at_s]))
            return done

    class TimedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "flintmq-timed"

        def writer(self, schema: StructType, overwrite: bool) -> TimedWriter:
            return TimedWriter(parse_sink_options(self.options))

    return TimedSource


def dying(*_: object) -> None:
    raise KeyboardInterrupt


def test_tasks_of_a_replay_share_its_rate_also_if_it_was_begun_with_more_tasks(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = light_session(spark)
    # So many queues that each task has some.
    messages = [message(number, queues=8) for number in range(COUNT)]
    store = write_store(tmp_path / "store", messages)
    request = ReplayRequest(sources=(str(store),), topics={"orders": "slowly"})
    state = tmp_path / "state"
    with monkeypatch.context() as patch:
        patch.setattr("flintmq.spark.jobs.replay.message_replay.send_on", dying)
        with pytest.raises(KeyboardInterrupt):
            replay(session, request, {"namesrv": cluster.namesrv}, state=state)
    told = tmp_path / "told"
    told.mkdir()
    session.dataSource.register(timed_source(told))
    use_session(monkeypatch, session)
    monkeypatch.setattr("flintmq.spark.jobs.replay.replay_send.FORMAT", "flintmq-timed")
    command = ["pipeline", "replay", str(store), "--to", cluster.namesrv, "--state", str(state)]
    assert run([*command, "--topic", "orders=slowly", "--rate", "1"]) == EXIT_FINE
    tasks = [json.loads(file.read_text()) for file in told.iterdir()]
    assert sum(messages for messages, _ in tasks) == COUNT
    busy = [(messages, seconds) for messages, seconds in tasks if messages]
    assert len(busy) == 2
    # The first message of a task waits for nothing.
    assert sum((messages - 1) / seconds for messages, seconds in busy) == pytest.approx(1, rel=0.05)
    assert len(stored(cluster.namesrv, "slowly")) == COUNT


def test_a_row_comes_not_before_its_time() -> None:
    with EmbeddedCluster(manual_clock=True) as cluster:
        cluster.send("clock", b"what time is it?")
        (told,) = cluster.messages("clock")
        now_ms = told.store_timestamp
        # 5 s and 10 s are the levels that do not end before; the third is for what has passed.
        wanted = {"m0": now_ms + 4_000, "m1": now_ms + 8_000, "m2": now_ms - 1}
        rows = numbered(range(3), deliverAt=lambda number: wanted[f"m{number}"])
        time = SinkTime(now_ms=lambda: now_ms)
        assert send_rows(cluster.namesrv, rows, time=time).messages == 3
        assert bodies(stored(cluster.namesrv)) == ["m2"]
        cluster.advance(5_000)
        cluster.wait_for(TOPIC, 2)
        assert bodies(stored(cluster.namesrv)) == ["m0", "m2"]
        cluster.advance(5_000)
        cluster.wait_for(TOPIC, 3)
        found = stored(cluster.namesrv)
        assert bodies(found) == texts(range(3))
        for row in found:
            came_ms = round(row["storeTimestamp"].timestamp() * 1000)
            assert 0 <= came_ms - max(now_ms, wanted[row["body"].decode()]) <= 4_000
