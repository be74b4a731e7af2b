"""Replays and copies that are killed by SIGKILL in the middle of a batch, and started again.

The job is slowed down (``--rate``), so that it is killed long before its end; the second start,
on another number of cores, has no such limit.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.main import run
from flintmq.model.message import PutMessage
from flintmq.spark.jobs.replay.topic_copy import CHECKPOINT
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import Row, until
from tests.kits.spark.pipeline_kit import light_session, numbered, use_session, write_store
from tests.kits.spark.process_kit import END_S, kill_when_sent, pipeline, stored_count
from tests.kits.spark.sink_kit import first_copies, send_rows, set_queue_count, stored
from tests.kits.spark.sink_kit import numbered as rows_of

FIRST = 10
"""Messages of the first batch, which is whole when the job is killed."""

COUNT = 110
SLOWLY = ("--rate", "10", "--master", "local[1]")


@pytest.fixture(scope="module")
def other() -> Iterator[EmbeddedCluster]:
    """A second cluster, to copy to."""
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def again(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands of this process use the session that runs: a second start that is quick."""
    use_session(monkeypatch, light_session(spark))


def by_queue(rows: list[Row]) -> dict[int, list[bytes]]:
    queues: defaultdict[int, list[bytes]] = defaultdict(list)
    for row in rows:
        queues[row["queueId"]].append(row["body"])
    return dict(queues)


def assert_repeats_are_of_later_batches(rows: list[Row], first: set[bytes]) -> None:
    """Check that the kill was inside of a batch, and that what was done before is not repeated."""
    times = Counter(row["body"] for row in rows)
    repeated = {body for body, count in times.items() if count > 1}
    assert repeated
    assert not repeated & first


def in_queues(messages: list[PutMessage]) -> dict[int, list[bytes]]:
    queues: defaultdict[int, list[bytes]] = defaultdict(list)
    for message in messages:
        queues[message.queue_id].append(message.body)
    return dict(queues)


@pytest.mark.usefixtures("again")
def test_a_replay_that_is_killed_goes_on_with_the_batch_it_was_in(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    messages = numbered(COUNT)
    # Each store is a batch at least.
    write_store(tmp_path / "0", messages[:FIRST])
    write_store(tmp_path / "1", messages[FIRST:])
    arguments = ["replay", str(tmp_path / "[01]"), "--to", cluster.namesrv]
    arguments += ["--topic", "orders=replayed", "--state", str(tmp_path / "state")]
    log = tmp_path / "replay.log"
    with pipeline(*arguments, *SLOWLY, log=log) as process:
        kill_when_sent(process, cluster.namesrv, "replayed", FIRST + 5, log)
    assert stored_count(cluster.namesrv, "replayed") < COUNT  # There was something left to do.
    assert run(["pipeline", *arguments]) == EXIT_FINE
    rows = stored(cluster.namesrv, "replayed")
    assert_repeats_are_of_later_batches(rows, {one.body for one in messages[:FIRST]})
    for split in ({}, {"maxRecordsPerPartition": "7"}):
        once = first_copies(cluster.namesrv, "replayed", **split)
        assert by_queue(once) == in_queues(messages)


@pytest.mark.usefixtures("again")
def test_a_copy_that_is_killed_goes_on_with_the_batch_it_was_in(
    cluster: EmbeddedCluster, other: EmbeddedCluster, tmp_path: Path
) -> None:
    set_queue_count(cluster.namesrv, 2, "growing")
    send_rows(cluster.namesrv, rows_of(range(FIRST)), topic="growing")
    state = tmp_path / "state"
    arguments = ["copy", cluster.namesrv, "--to", other.namesrv, "--topic", "growing=copied"]
    arguments += ["--state", str(state)]
    log = tmp_path / "copy.log"
    with pipeline(*arguments, *SLOWLY, log=log) as process:
        until((state / CHECKPOINT / "commits" / "0").exists, timeout_s=END_S)
        # One request for each queue, so that the next batch has half of them at least.
        send_rows(cluster.namesrv, rows_of(range(FIRST, COUNT)), topic="growing", batch=1)
        kill_when_sent(process, other.namesrv, "copied", FIRST + 5, log)
    assert stored_count(other.namesrv, "copied") < COUNT  # There was something left to do.
    send_rows(cluster.namesrv, rows_of(range(COUNT, COUNT + 20)), topic="growing", batch=2)
    assert run(["pipeline", *arguments, "--available-now"]) == EXIT_FINE
    originals = stored(cluster.namesrv, "growing")
    assert len(originals) == COUNT + 20
    first = {b"m%d" % number for number in range(FIRST)}
    assert_repeats_are_of_later_batches(stored(other.namesrv, "copied"), first)
    for split in ({}, {"maxRecordsPerPartition": "7"}):
        assert by_queue(first_copies(other.namesrv, "copied", **split)) == by_queue(originals)
