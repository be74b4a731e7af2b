"""Copies of topics from one cluster to another."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from flintmq.cli.main import run
from flintmq.spark.jobs.replay.message_replay import ReplayRequest, replay
from flintmq.spark.jobs.replay.replay_plan import ResumeError
from flintmq.spark.jobs.replay.replay_send import SendPlan, send_on
from flintmq.spark.jobs.replay.topic_copy import CHECKPOINT, CopyJob, CopyRequest
from flintmq.spark.runtime.failures import JobError
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import Admin, Row, bodies, send, texts
from tests.kits.spark.pipeline_kit import light_session, use_session, write_store
from tests.kits.spark.sink_kit import first_copies, set_queue_count, stored
from tests.kits.store.offline_stores import message

DEADLINE_S = 120
OF_ONE_QUEUE = (
    "'broker-a' AS brokerName",
    "0 AS queueId",
    "0 AS flag",
    "string(NULL) AS tags",
    "string(NULL) AS keys",
    "map('colour', 'red') AS properties",
    "timestamp_millis(0) AS storeTimestamp",
    "timestamp_millis(0) AS bornTimestamp",
)
"""Columns of messages that do not matter."""


@pytest.fixture(scope="module")
def other() -> Iterator[EmbeddedCluster]:
    """A second cluster, to copy to."""
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return light_session(spark)


def request_of(
    cluster: EmbeddedCluster, other: EmbeddedCluster, state: Path, **topics: str
) -> CopyRequest:
    return CopyRequest(
        source={"namesrv": cluster.namesrv},
        target={"namesrv": other.namesrv},
        topics=topics,
        state=state,
        batch_rows=100,
        available_now=True,
    )


def copy(session: SparkSession, request: CopyRequest) -> list[str]:
    """Copy what is there; return the topics that were made."""
    with CopyJob(session, request) as job:
        assert job.wait(DEADLINE_S)
        return job.made_topics


def by_queue(rows: list[Row]) -> dict[int, list[bytes]]:
    queues: defaultdict[int, list[bytes]] = defaultdict(list)
    for row in rows:
        queues[row["queueId"]].append(row["body"])
    return dict(queues)


def test_a_copy_has_the_same_queues_and_goes_on(
    session: SparkSession, cluster: EmbeddedCluster, other: EmbeddedCluster, tmp_path: Path
) -> None:
    set_queue_count(cluster.namesrv, 3, "copied")
    send(cluster, "copied", range(100), tag="A", keys=("k",))
    request = request_of(cluster, other, tmp_path, copied="copied")
    assert copy(session, request) == ["copied"]
    assert by_queue(stored(other.namesrv, "copied")) == by_queue(stored(cluster.namesrv, "copied"))
    # As if it had died before Spark noted that the last batch was done.
    commits = sorted(
        (tmp_path / CHECKPOINT / "commits").glob("[0-9]*"), key=lambda it: int(it.name)
    )
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    send(cluster, "copied", range(100, 160))
    assert copy(session, request) == []
    assert len(stored(other.namesrv, "copied")) > 160
    once = first_copies(other.namesrv, "copied")
    assert bodies(once) == texts(range(160))
    assert by_queue(once) == by_queue(stored(cluster.namesrv, "copied"))
    assert {row["tags"] for row in once} == {"A", None}


def test_a_topic_made_anew_is_not_copied_as_if_it_went_on(
    session: SparkSession, cluster: EmbeddedCluster, other: EmbeddedCluster, tmp_path: Path
) -> None:
    set_queue_count(cluster.namesrv, 1, "renewed")
    send(cluster, "renewed", range(10))
    request = request_of(cluster, other, tmp_path, renewed="renewed")
    copy(session, request)
    with Admin(cluster.namesrv) as admin:
        admin.delete_topic("renewed")
        admin.set_topic("renewed", 1)
    # It is longer than the old one was, so its offsets look as if it went on.
    send(cluster, "renewed", range(100, 125))
    with pytest.raises(StreamingQueryException, match="deleted and made anew"):
        copy(session, request)
    assert bodies(stored(other.namesrv, "renewed")) == texts(range(10))


def test_properties_with_blank_values_are_replayed_and_copied(
    session: SparkSession, cluster: EmbeddedCluster, other: EmbeddedCluster, tmp_path: Path
) -> None:
    # One without any value is no property: so brokers and clients read what is stored.
    blank = {"space": " ", "spaces": "   ", "tab": "\t", "KEYS": "k"}
    store = write_store(tmp_path / "store", [message(1, topic="blank", properties=blank)])
    replay(session, ReplayRequest(sources=(str(store),)), {"namesrv": cluster.namesrv})
    copy(session, request_of(cluster, other, tmp_path / "state", blank="blank"))
    for namesrv in (cluster.namesrv, other.namesrv):
        (row,) = stored(namesrv, "blank")
        assert blank.items() <= dict(row["properties"]).items()


def test_topics_that_get_one_name_are_sent_in_the_same_order_again(
    session: SparkSession, other: EmbeddedCluster
) -> None:
    set_queue_count(other.namesrv, 1, "merged")
    rows = [
        {"topic": topic, "queueOffset": offset, "body": f"m{2 * offset + number}".encode()}
        for offset in range(20)
        for number, topic in enumerate(("left", "right"))
    ]
    plan = SendPlan(
        cluster={"namesrv": other.namesrv},
        write_id="merging",
        names={"left": "merged", "right": "merged"},
        queue_counts={"merged": 1},
        partitions=1,
    )
    # A shuffle gives the rows of its parts in any order.
    for attempt in (rows, rows[::-1]):
        messages = session.createDataFrame(attempt, "topic string, queueOffset long, body binary")
        send_on(messages.selectExpr("*", *OF_ONE_QUEUE), 0, "queueOffset", plan)
    assert len(stored(other.namesrv, "merged")) == 80
    assert bodies(first_copies(other.namesrv, "merged")) == texts(range(40))


def test_a_directory_serves_one_copy_only(
    session: SparkSession, cluster: EmbeddedCluster, other: EmbeddedCluster, tmp_path: Path
) -> None:
    send(cluster, "first", range(3))
    send(cluster, "second", range(3))
    copy(session, request_of(cluster, other, tmp_path, first="renamed"))
    assert bodies(stored(other.namesrv, "renamed")) == texts(range(3))
    with pytest.raises(ResumeError, match="belongs to a copy of other topics"):
        copy(session, request_of(cluster, other, tmp_path, second="renamed"))


def test_a_copy_into_what_it_reads_is_refused(
    cluster: EmbeddedCluster, other: EmbeddedCluster, tmp_path: Path
) -> None:
    with pytest.raises(JobError, match="the topic b would be read and written in the same cluster"):
        request_of(cluster, cluster, tmp_path, a="b", b="c")
    assert request_of(cluster, cluster, tmp_path, a="b", c="b")
    assert request_of(cluster, other, tmp_path, a="a")


def test_a_copy_into_what_it_reads_is_refused_whatever_the_name_server_is_called(
    session: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    send(cluster, "looped", range(3))
    request = request_of(cluster, cluster, tmp_path, looped="another")
    target = {"namesrv": cluster.namesrv.replace("127.0.0.1", "localhost")}
    loop = replace(request, target=target, topics={"looped": "looped"})
    with pytest.raises(JobError, match="looped would be read and written in the same cluster"):
        copy(session, loop)
    assert len(stored(cluster.namesrv, "looped")) == 3


def test_a_topic_that_is_not_there_cannot_be_copied(
    session: SparkSession, cluster: EmbeddedCluster, other: EmbeddedCluster, tmp_path: Path
) -> None:
    with pytest.raises(JobError, match="there is no topic nowhere"):
        copy(session, request_of(cluster, other, tmp_path, nowhere="x"))


def test_the_command_copies_what_is_there(
    session: SparkSession,
    cluster: EmbeddedCluster,
    other: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    send(cluster, "by-hand", range(5))
    use_session(monkeypatch, session)
    command = ["pipeline", "copy", cluster.namesrv, "--to", other.namesrv, "--available-now"]
    assert run([*command, "--state", str(tmp_path), "--topic", "by-hand=there"]) == 0
    assert "ended: 5 messages in 1 batch" in capsys.readouterr().err
    assert bodies(stored(other.namesrv, "there")) == texts(range(5))
    assert run([*command, "--state", str(tmp_path)]) == 2
    assert "--topic says what is to be copied" in capsys.readouterr().err
