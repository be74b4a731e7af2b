"""Tasks of the sink against real brokers that refuse, vanish, fail or run full.

Whatever happens, a task succeeds only when all of its rows are stored, and a second attempt of
the same task leaves each row once for who drops repeats.
"""

import contextlib
import logging
import os
import random
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flintmq.spark.live.repeat_mark import ROW_MARK
from flintmq.spark.sink.chosen_queues import NAMESPACE, QueueChooser
from flintmq.spark.sink.errors import RowError, SendError, SinkError
from flintmq.testing import EmbeddedCluster
from tests.kits.processes.serving import Serving
from tests.kits.spark.live_broker_kit import OtherBroker
from tests.kits.spark.live_kit import Admin, bodies, texts
from tests.kits.spark.sink_kit import (
    TOPIC,
    ask,
    first_copies,
    numbered,
    send_rows,
    set_queue_count,
    stored,
)

DEADLINE_S = 60
NOBODY = "127.0.0.1:1"
"""An address where nobody listens."""


class Retry(logging.Handler):
    """Knows when something is tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.happened = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.happened.set()

    def wait(self) -> None:
        assert self.happened.wait(DEADLINE_S), "nothing was tried again"


@pytest.fixture
def retry() -> Iterator[Retry]:
    """Tell when a send was refused and waits for its next attempt."""
    handler = Retry()
    logger = logging.getLogger("flintmq.spark.live.live_session")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(level)
    logger.removeHandler(handler)


def crash() -> None:
    raise ConnectionAbortedError("the task was killed")


def test_rows_of_a_key_stay_in_their_order_in_one_queue(cluster: EmbeddedCluster) -> None:
    topic = "keys"
    rows = numbered(range(300), shardingKey=lambda number: f"k{number % 7}")
    commit = send_rows(cluster.namesrv, rows[:100], rows[100:], topic=topic)
    assert commit.messages == 300
    queues: defaultdict[int, set[int]] = defaultdict(set)
    order: defaultdict[int, list[int]] = defaultdict(list)
    for row in stored(cluster.namesrv, topic):
        number = int(row["body"][1:])
        queues[number % 7].add(row["queueId"])
        order[number % 7].append(number)
    assert all(len(found) == 1 for found in queues.values())
    assert all(order[key] == list(range(key, 300, 7)) for key in range(7))


def test_messages_have_what_the_columns_say(cluster: EmbeddedCluster) -> None:
    topic = "columns"
    (row,) = numbered(range(1), tags="A", keys="k1 k2", queueId=3, flag=9)
    send_rows(cluster.namesrv, [row], query="columns-query", batch=4, partition=2, topic=topic)
    (found,) = stored(cluster.namesrv, topic)
    assert (found["tags"], found["keys"], found["queueId"], found["flag"]) == ("A", "k1 k2", 3, 9)
    mark = dict(found["properties"])[ROW_MARK]
    assert mark.startswith("columns-query/4/2/0/")


def test_a_refused_send_is_an_error_with_the_cause_and_nothing_is_said_to_be_sent(
    cluster: EmbeddedCluster,
) -> None:
    with (
        cluster.refusing_sends("the disk is full"),
        pytest.raises(SendError, match="the disk is full") as caught,
    ):
        send_rows(cluster.namesrv, numbered(range(10)), topic="refused", retries="0")
    assert caught.value.acknowledged == 0
    assert cluster.messages("refused") == []


def test_a_send_that_is_refused_for_a_while_arrives(cluster: EmbeddedCluster, retry: Retry) -> None:
    with contextlib.ExitStack() as refusal:
        refusal.enter_context(cluster.refusing_sends())
        commit = send_rows(
            cluster.namesrv, numbered(range(10)), retry.wait, refusal.close, topic="patience"
        )
    assert commit.messages == 10
    assert bodies(stored(cluster.namesrv, "patience")) == texts(range(10))


def test_lost_connections_lose_no_row(cluster: EmbeddedCluster) -> None:
    dropped = 0

    def cut() -> None:
        nonlocal dropped
        dropped += cluster.drop_connections()

    parts = [numbered(range(at, at + 500)) for at in range(0, 2000, 500)]
    send_rows(cluster.namesrv, parts[0], cut, parts[1], cut, parts[2], cut, parts[3], topic="cut")
    assert dropped, "nothing was cut"
    assert set(bodies(stored(cluster.namesrv, "cut"))) == set(texts(range(2000)))
    assert bodies(first_copies(cluster.namesrv, "cut")) == texts(range(2000))


def test_a_disk_that_fails_fails_the_task() -> None:
    with EmbeddedCluster(flushDiskType="SYNC_FLUSH") as cluster:
        send_rows(cluster.namesrv, numbered(range(5)))
        cluster.fail_next_fsync()
        with pytest.raises(SendError):
            send_rows(cluster.namesrv, numbered(range(5, 10)), batch=1, retries="1")


def test_a_second_attempt_leaves_each_row_once_also_when_queues_were_added(
    cluster: EmbeddedCluster,
) -> None:
    topic = "second-attempt"
    set_queue_count(cluster.namesrv, 2, topic)
    rows = numbered(range(400))
    with pytest.raises(ConnectionAbortedError):
        send_rows(cluster.namesrv, rows[:250], rows[250:], crash, topic=topic)
    set_queue_count(cluster.namesrv, 6, topic)
    send_rows(cluster.namesrv, rows, topic=topic)
    send_rows(cluster.namesrv, numbered(range(400, 500)), batch=1, topic=topic)
    everything = stored(cluster.namesrv, topic)
    assert len(everything) > 500
    assert {row["queueId"] for row in everything} == {0, 1}
    for split in ({}, {"maxRecordsPerPartition": "37"}):
        assert bodies(first_copies(cluster.namesrv, topic, **split)) == texts(range(500))


def test_another_query_has_queues_of_its_own_choice(cluster: EmbeddedCluster) -> None:
    topic = "choices"
    set_queue_count(cluster.namesrv, 1, topic)
    send_rows(cluster.namesrv, numbered(range(4)), topic=topic, query="old")
    set_queue_count(cluster.namesrv, 4, topic)
    send_rows(cluster.namesrv, numbered(range(4, 8)), topic=topic, query="new")
    found = {row["body"].decode(): row["queueId"] for row in stored(cluster.namesrv, topic)}
    assert [found[f"m{number}"] for number in range(8)] == [0, 0, 0, 0, 0, 1, 2, 3]


def test_what_was_chosen_is_forgotten_for_one_query_only(cluster: EmbeddedCluster) -> None:
    for query in ("gone", "gone-too", "stays"):
        send_rows(cluster.namesrv, numbered(range(1)), topic="forget", query=query)
    ask(cluster.namesrv, lambda client: QueueChooser(client, "gone").forget())

    def kept(query: str) -> object:
        return ask(cluster.namesrv, lambda client: QueueChooser(client, query)._kept("forget"))

    assert kept("gone") is None
    assert kept("gone-too") is not None
    assert kept("stays") is not None
    assert NAMESPACE == "FLINTMQ_SINK", "users find it by this name"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"body": "x", "queueId": 99},
            "row 1 of partition 0: the columns queueId and brokerName: topic rows has no queue 99",
        ),
        ({"body": "x", "flag": 1 << 40}, "row 1 of partition 0: the column flag is 1099511627776"),
        ({"body": None}, "row 1 of partition 0: the column body is null"),
        (
            {"body": "x", "delayTimeLevel": 40},
            "row 1 of partition 0: the column delayTimeLevel is 40",
        ),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(
    cluster: EmbeddedCluster, row: dict[str, object], words: str
) -> None:
    first = numbered(range(1), **dict.fromkeys(row.keys() - {"body"}, 0))
    with pytest.raises(RowError, match=words):
        send_rows(cluster.namesrv, [*first, row], topic="rows")


def test_a_message_that_a_broker_refuses_is_named_by_its_row(cluster: EmbeddedCluster) -> None:
    large = random.Random(7).randbytes(5 << 20)
    rows = [*numbered(range(3)), {"body": large}]
    with pytest.raises(SendError, match=r"refused queue \d+ of broker-a, row 3 of partition 0: "):
        send_rows(cluster.namesrv, rows, topic="refused")


def test_a_cluster_that_is_not_there_is_an_error_with_the_cause() -> None:
    with pytest.raises(SinkError, match="no name server can be reached"):
        send_rows(NOBODY, numbered(range(1)), retries="0")


def test_a_time_of_delivery_becomes_a_level(cluster: EmbeddedCluster) -> None:
    rows = numbered(range(1), deliverAt=0) + numbered(range(1, 2), deliverAt=1 << 41)
    with pytest.raises(RowError, match="row 1 of partition 0: the column deliverAt is"):
        send_rows(cluster.namesrv, rows, topic="times")
    send_rows(cluster.namesrv, rows[:1], topic="times", query="past")
    assert bodies(stored(cluster.namesrv, "times")).count("m0") >= 1


def test_a_delayed_row_that_comes_after_later_batches_is_no_repeat() -> None:
    with EmbeddedCluster(manual_clock=True) as cluster:
        late = numbered(range(8), delayTimeLevel=3)
        send_rows(cluster.namesrv, late)
        send_rows(cluster.namesrv, late)
        send_rows(cluster.namesrv, numbered(range(8, 12)), batch=1)
        cluster.advance(10_000)
        cluster.wait_for(TOPIC, 20)
        assert bodies(stored(cluster.namesrv)) == sorted(texts(range(8)) + texts(range(12)))
        assert bodies(first_copies(cluster.namesrv)) == texts(range(12))


@pytest.mark.slow
def test_a_broker_killed_in_the_middle_of_a_task_loses_no_row(tmp_path: Path, retry: Retry) -> None:
    with Serving(tmp_path / "data", {"flushDiskType": "SYNC_FLUSH"}) as servers:

        def kill() -> None:
            servers.kill()

        def start() -> None:
            retry.wait()
            servers.start()

        parts = [numbered(range(at, at + 1000)) for at in range(0, 3000, 1000)]
        commit = send_rows(
            servers.namesrv, parts[0], kill, parts[1], start, parts[2], sendTimeoutMs="10000"
        )
        assert commit.messages == 3000
        assert set(bodies(stored(servers.namesrv))) == set(texts(range(3000)))
        assert bodies(first_copies(servers.namesrv)) == texts(range(3000))


@pytest.mark.slow
def test_a_broker_of_two_that_is_killed_fails_the_task_and_its_return_lets_it_succeed(
    cluster: EmbeddedCluster, tmp_path: Path, retry: Retry
) -> None:
    namesrv = f"{NOBODY};{cluster.namesrv}"  # One of two name servers is down from the start.
    parts = [numbered(range(at, at + 200)) for at in range(0, 600, 200)]
    with OtherBroker("broker-b", namesrv, tmp_path / "b") as other:
        with Admin(namesrv) as admin:
            admin.set_topic("two", 2, broker_count=2)
        with pytest.raises(SendError, match="of broker-b, ") as caught:
            send_rows(namesrv, parts[0], other.kill, *parts[1:], topic="two", retries="0")

        def start() -> None:
            # The name server has forgotten the broker, the query has not.
            retry.wait()
            other.start()

        assert send_rows(namesrv, *parts, start, topic="two").messages == 600
        everything = stored(namesrv, "two")
        assert {row["brokerName"] for row in everything} == {"broker-a", "broker-b"}
        assert len(everything) >= 600 + caught.value.acknowledged
        assert set(bodies(everything)) == set(texts(range(600)))
        for split in ({}, {"maxRecordsPerPartition": "37"}):
            assert bodies(first_copies(namesrv, "two", **split)) == texts(range(600))


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of twelve megabytes in memory."""
    path = tmp_path / "volume"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={12 << 20}", "flintmq-test", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = f"a small volume cannot be mounted, that takes root: {done.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.slow
def test_a_full_disk_fails_the_task_and_room_lets_it_succeed(volume: Path) -> None:
    filler = volume / "filler"
    store = volume / "store"
    with EmbeddedCluster(storePathRootDir=store, mappedFileSizeCommitLog=1 << 20) as cluster:
        rows = numbered(range(3000), properties=lambda _: [("pad", "x" * 1000)])
        send_rows(cluster.namesrv, numbered(range(3000, 3010)))
        fill(filler)
        with pytest.raises(SendError) as caught:
            send_rows(cluster.namesrv, rows, batch=1, retries="0")
        acknowledged = caught.value.acknowledged
        assert acknowledged < len(rows)
        assert len(stored(cluster.namesrv)) >= 10 + acknowledged
        filler.unlink()
        commit = until_taken(lambda: send_rows(cluster.namesrv, rows, batch=1).messages)
        assert commit == len(rows)
        assert bodies(first_copies(cluster.namesrv)) == texts(range(3010))


def fill(filler: Path) -> None:
    """Leave no room on a volume."""
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 << 10))


def until_taken(send: Callable[[], int]) -> int:
    """Send, also if the broker needs a moment to see that there is room again."""
    with contextlib.suppress(SendError):
        return send()
    return send()
