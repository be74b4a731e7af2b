"""Replays: order, choice, names, and going on after the process has died anywhere."""

import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from flintmq.cli.main import run
from flintmq.offline.errors import StoreInUseError
from flintmq.offline.store_lock import hold_directory
from flintmq.spark.jobs.archive.store_archive import archive
from flintmq.spark.jobs.replay.message_replay import ReplayRequest, is_ordinary, replay
from flintmq.spark.jobs.replay.replay_plan import FILE_NAME, ResumeError
from flintmq.spark.jobs.replay.replay_send import BORN_AT, STORED_AT, SendPlan, send_on
from flintmq.spark.jobs.replay.replay_source import ReplayLossError
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.spark.runtime.failures import JobError, SqlError
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.live_kit import Row
from tests.kits.spark.log_writer import LogWriter
from tests.kits.spark.pipeline_kit import light_session, numbered, use_session, write_store
from tests.kits.spark.sink_kit import first_copies, stored
from tests.kits.store.offline_stores import START_MS

COUNT = 60
ROLLED = {"commit_log_file_size": 8192}
PART_SIZE = 6000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    messages = numbered(COUNT, n7={"topic": "%RETRY%g"}, n8={"topic": "other"})
    return write_store(tmp_path_factory.mktemp("replay") / "store", messages, **ROLLED)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return light_session(spark)


def numbers(rows: list[Row]) -> list[int]:
    """Return the numbers of messages in their order, queue by queue."""
    return [int(row["body"].split()[1]) for row in rows]


def in_order(rows: list[Row]) -> dict[int, list[int]]:
    queues: defaultdict[int, list[int]] = defaultdict(list)
    for row, number in zip(rows, numbers(rows), strict=True):
        queues[row["queueId"]].append(number)
    return dict(queues)


def test_messages_come_in_the_order_of_their_queues_with_all_that_they_were(
    session: SparkSession, cluster: EmbeddedCluster, store: Path
) -> None:
    request = ReplayRequest(sources=(str(store),), part_size=PART_SIZE, topics={"orders": "again"})
    report = replay(session, request, {"namesrv": cluster.namesrv})
    assert report.message_count == COUNT - 2
    assert report.batch_count > 2
    assert report.made_topics == ("again",)
    rows = stored(cluster.namesrv, "again")
    wanted = [number for number in range(COUNT) if number not in (7, 8)]
    assert in_order(rows) == {
        queue: [number for number in wanted if number % 2 == queue] for queue in (0, 1)
    }
    for row, number in zip(rows, numbers(rows), strict=True):
        properties = dict(row["properties"])
        assert properties[STORED_AT] == str(START_MS + 1000 * number)
        assert properties[BORN_AT] == str(START_MS)
        assert (row["keys"], row["tags"]) == (f"key-{number}", f"Tag{number % 3}")


def test_an_archive_is_chosen_from_by_time_and_condition(
    session: SparkSession, cluster: EmbeddedCluster, store: Path, tmp_path: Path
) -> None:
    archive(session, [str(store)], tmp_path / "archive")
    request = ReplayRequest(
        sources=(str(tmp_path / "archive"),),
        topics={"orders": "chosen"},
        start_ms=START_MS + 10_000,
        end_ms=START_MS + 30_000,
        where="tags = 'Tag1'",
        part_size=PART_SIZE,
    )
    looked = replay(session, request, {"namesrv": cluster.namesrv}, dry_run=True)
    assert looked.is_dry_run
    wanted = [number for number in range(10, 30) if number % 3 == 1]
    assert looked.message_count == len(wanted)
    assert looked.made_topics == ()
    replay(session, request, {"namesrv": cluster.namesrv})
    assert sorted(numbers(stored(cluster.namesrv, "chosen"))) == wanted


def test_all_ordinary_topics_are_taken_where_none_is_named(
    session: SparkSession, cluster: EmbeddedCluster, store: Path
) -> None:
    looked = replay(
        session,
        ReplayRequest(sources=(str(store),)),
        {"namesrv": cluster.namesrv},
        dry_run=True,
    )
    assert [one.topic for one in looked.topics] == ["orders", "other"]
    assert not is_ordinary("SCHEDULE_TOPIC_XXXX")
    assert not is_ordinary("%DLQ%g")


class Dying:
    """Dies with the process, before or after the send of some batch."""

    def __init__(self, real: Callable[..., None], batch: int, *, after: bool) -> None:
        self._real = real
        self._batch = batch
        self._after = after

    def __call__(self, messages: DataFrame, batch: int, order: str, plan: SendPlan) -> None:
        if batch == self._batch and not self._after:
            raise KeyboardInterrupt
        self._real(messages, batch, order, plan)
        if batch == self._batch:
            raise KeyboardInterrupt


def test_a_replay_that_died_goes_on_and_repeats_are_told(
    session: SparkSession,
    cluster: EmbeddedCluster,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = ReplayRequest(sources=(str(store),), topics={"orders": "dying"}, part_size=PART_SIZE)
    target = {"namesrv": cluster.namesrv}
    for batch, after in ((0, True), (1, False), (1, True)):
        with monkeypatch.context() as patch:
            dying = Dying(send_on, batch, after=after)
            patch.setattr("flintmq.spark.jobs.replay.message_replay.send_on", dying)
            with pytest.raises(KeyboardInterrupt):
                replay(session, request, target, state=tmp_path)
    report = replay(session, request, target, state=tmp_path)
    assert report.is_resumed
    wanted = [number for number in range(COUNT) if number not in (7, 8)]
    assert len(stored(cluster.namesrv, "dying")) > len(wanted)
    once = first_copies(cluster.namesrv, "dying", maxRecordsPerPartition="7")
    assert in_order(once) == {
        queue: [number for number in wanted if number % 2 == queue] for queue in (0, 1)
    }
    assert replay(session, request, target, state=tmp_path).batch_count == 0


def die_in_batch(
    session: SparkSession, request: ReplayRequest, target: dict[str, str], state: Path, batch: int
) -> None:
    """Begin a replay, and end it before a batch is sent."""
    with pytest.MonkeyPatch.context() as patch:
        dying = Dying(send_on, batch, after=False)
        patch.setattr("flintmq.spark.jobs.replay.message_replay.send_on", dying)
        with pytest.raises(KeyboardInterrupt):
            replay(session, request, target, state=state)


def cut_back(log: LogWriter) -> None:
    log.cut_back(5)
    grow(log, 10)


def make_anew(log: LogWriter) -> None:
    log.make_anew()
    grow(log, 60)


def expire(log: LogWriter) -> None:
    log.expire()
    log.expire()


def expire_all(log: LogWriter) -> None:
    """Let all expire that was there, and as much as that follow."""
    grow(log, 40)
    for _ in range(6):
        log.expire()


def grow(log: LogWriter, count: int) -> None:
    for _ in range(count):
        log.append("orders", 200)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut_back, "is not the log that the replay began with: it was cut back"),
        (make_anew, "is not the log that the replay began with: it was cut back"),
        (expire, "is not in the log any more"),
        (expire_all, "is not in the log any more"),
    ],
)
def test_a_replay_goes_on_only_with_the_log_that_it_began_with(
    session: SparkSession,
    cluster: EmbeddedCluster,
    tmp_path: Path,
    change: Callable[[LogWriter], None],
    words: str,
) -> None:
    log = LogWriter(tmp_path / "store")
    grow(log, 30)
    target = {"namesrv": cluster.namesrv}
    request = ReplayRequest(
        sources=(str(log.root),),
        topics={"orders": f"began-{change.__name__.replace('_', '-')}"},
        part_size=1500,
        on_corrupt=OnCorrupt.SKIP,
    )
    die_in_batch(session, request, target, tmp_path / "state", 1)
    change(log)
    with pytest.raises(ReplayLossError, match=words):
        replay(session, request, target, state=tmp_path / "state")


def test_a_replay_goes_on_only_with_the_runs_that_it_began_with(
    session: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    log = LogWriter(tmp_path / "store")
    grow(log, 20)
    source = tmp_path / "archive"
    archive(session, [str(log.root)], source)
    target = {"namesrv": cluster.namesrv}
    request = ReplayRequest(
        sources=(str(source),), topics={"orders": "began-archive"}, part_size=1500
    )
    for state in ("state", "other"):
        die_in_batch(session, request, target, tmp_path / state, 1)
    grow(log, 3)
    archive(session, [str(log.root)], source)
    assert replay(session, request, target, state=tmp_path / "state").message_count == 20
    shutil.rmtree(source)
    archive(session, [str(log.root)], source)
    with pytest.raises(ReplayLossError, match="is another archive"):
        replay(session, request, target, state=tmp_path / "other")


def test_a_directory_serves_one_replay_only(
    session: SparkSession, cluster: EmbeddedCluster, store: Path, tmp_path: Path
) -> None:
    target = {"namesrv": cluster.namesrv}
    request = ReplayRequest(sources=(str(store),), topics={"other": "single"})
    replay(session, request, target, state=tmp_path)
    other = ReplayRequest(sources=(str(store),), topics={"other": "single"}, where="true")
    with pytest.raises(ResumeError, match="was begun for another replay: where differ"):
        replay(session, other, target, state=tmp_path)
    with hold_directory(tmp_path), pytest.raises(StoreInUseError):
        replay(session, request, target, state=tmp_path)
    (tmp_path / FILE_NAME).write_text('{"version": 1}')
    with pytest.raises(ResumeError, match="cannot be understood"):
        replay(session, request, target, state=tmp_path)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"where": "nix = 1"}, SqlError, "nix"),
        ({"where": "tags ="}, SqlError, "Syntax error"),
        ({"topics": {"orders": "a b"}}, JobError, "characters other than"),
    ],
)
def test_what_cannot_be_replayed_is_told(
    session: SparkSession, store: Path, fields: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        replay(
            session,
            ReplayRequest(sources=(str(store),), **fields),
            {"namesrv": "127.0.0.1:1"},
            dry_run=True,
        )


def test_the_command_tells_what_it_would_send(
    session: SparkSession,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_session(monkeypatch, session)
    command = ["pipeline", "replay", str(store), "--to", "127.0.0.1:1", "--dry-run"]
    assert run([*command, "--topic", "orders=again", "--from", "2023-11-14"]) == 0
    said = capsys.readouterr().out
    assert ["orders", "again", str(COUNT - 2), "2"] in [
        line.split()[:4] for line in said.splitlines()
    ]
    assert said.endswith(f"{COUNT - 2} messages would be sent\n")
    assert run([*command, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["messageCount"] == COUNT - 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "a", "--topic", "a=b"], "given twice"),
        (["--topic", "a="], "TOPIC or TOPIC=NEW"),
        (["--from", "soon"], "an ISO time"),
        (["--sink-option", "topik=t"], "did you mean topic"),
    ],
)
def test_wrong_usage_is_told_before_spark_starts(
    store: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "replay", str(store), "--to", "127.0.0.1:1", *arguments]) in (2, 3)
    assert words in capsys.readouterr().err
