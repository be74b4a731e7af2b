"""An answer that has left something out never calls itself complete."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.main import run
from flintmq.cli.pipeline.job_frame import JobOutcome
from flintmq.format.sys_flag import COMPRESSED
from flintmq.model.message import PutMessage
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.archive_manifest import ArchiveDirectory
from flintmq.spark.jobs.archive.store_archive import archive, archived_messages
from flintmq.spark.jobs.archive.store_restore import restore
from flintmq.spark.jobs.damages import Damages, added
from flintmq.spark.jobs.job_input import StoredInput
from flintmq.spark.jobs.query.query_report import QueryReport
from flintmq.spark.jobs.query.sql_query import QueryRequest, QueryRun
from flintmq.spark.jobs.store_tables import StoreTables
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.log_writer import LogWriter
from tests.kits.spark.pipeline_kit import use_session
from tests.kits.store.offline_stores import HOST, START_MS, log_file, make_store, put, small_config


@pytest.fixture(scope="module")
def unreadable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of ten messages and two whose bodies cannot be decompressed."""
    root = tmp_path_factory.mktemp("unreadable") / "store"
    clock = ManualClock(START_MS)
    with MessageStore.open(small_config(root), clock=clock, background=False) as store:
        put(store, clock, 10)
        for number in range(2):
            odd = PutMessage(
                topic="odd",
                body=b"not compressed %d" % number,
                sys_flag=COMPRESSED,
                born_timestamp=START_MS,
                born_host=HOST,
                store_host=HOST,
            )
            assert store.put(odd).ok
        store.dispatch()
    return root


def asked(spark: SparkSession, path: Path, sql: str) -> QueryReport:
    source = StoredInput(paths=(str(path),), on_corrupt=OnCorrupt.SKIP)
    query = QueryRun(spark, QueryRequest(source=source, sql=sql, limit=100))
    assert list(query.rows())
    return query.report()


def test_bodies_that_cannot_be_decompressed_are_missing_where_bodies_are_asked_for(
    spark: SparkSession, unreadable: Path, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    made = archive(spark, [str(unreadable)], to, on_corrupt=OnCorrupt.SKIP)
    assert (made.record_count, made.damages) == (12, Damages(body_count=2))
    # The records are all there, so the archive lacks nothing.
    assert check_archive(spark, to).ok
    assert restore(spark, to, tmp_path / "out").is_exact
    for path in (unreadable, to):
        report = asked(spark, path, "SELECT body FROM messages")
        assert not report.is_complete
        assert report.damages == Damages(body_count=2)
        assert asked(spark, path, "SELECT count(topic) FROM messages").is_complete


def test_what_is_deleted_while_it_is_read_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    root = make_store(tmp_path)
    source = StoredInput(paths=(str(root),), on_corrupt=OnCorrupt.SKIP)
    tables = StoreTables(spark, source)
    table = tables.messages(("topic",))
    log_file(root, 0).unlink()
    assert table.count() < 100
    (gone,) = tables.damages().ranges
    assert gone == (str(root), 0, 8192, "was deleted while it was read")


def test_an_archive_that_has_lost_a_file_or_got_one_gives_no_answer(
    spark: SparkSession, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    for number in range(2):
        archive(spark, [str(make_store(tmp_path / str(number), 20))], to)
    assert archived_messages(spark, to).count() == 40
    (path, *_) = sorted(to.rglob("*.parquet"))
    path.rename(path.with_suffix(".copy.parquet"))
    with pytest.raises(ArchiveError, match="the manifest has no such file, the archive"):
        archived_messages(spark, to)
    path.with_suffix(".copy.parquet").unlink()
    with pytest.raises(ArchiveError, match="bytes, the archive no such file"):
        asked(spark, to, "SELECT count(*) FROM messages")


def test_what_was_deleted_before_it_was_archived_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_session(monkeypatch, inline_spark())
    log, to = LogWriter(tmp_path / "store"), tmp_path / "archive"
    command = ["pipeline", "archive", str(log.root), "--to", str(to), "--format", "json"]

    def grow(count: int) -> None:
        for _ in range(count):
            log.append("orders", 200)

    grow(3)
    assert run(command) == EXIT_FINE
    end = ArchiveDirectory(to).manifests()[0].stores[0].end
    grow(60)
    while log.start <= end:
        log.expire()
    capsys.readouterr()
    assert run([*command, "--allow-gap"]) == EXIT_PROBLEMS
    (gap,) = json.loads(capsys.readouterr().out)["damages"]["ranges"]
    assert (gap["start"], gap["size"]) == (end, log.start - end)
    assert run([*command, "--allow-gap"]) == EXIT_FINE
    # Who reads the archive is told as well.
    restore_it = ["pipeline", "restore", str(to), "--out", str(tmp_path / "out")]
    assert run(restore_it) == EXIT_PROBLEMS
    assert ArchiveDirectory(to).damages().size == log.start - end


def test_a_loss_is_a_problem_unless_it_was_accepted() -> None:
    lossy = JobOutcome(has_losses=True)
    assert [lossy.exit_code(accepts_loss=accepted) for accepted in (False, True)] == [1, 0]
    wrong = JobOutcome(has_problems=True, has_losses=True)
    assert [wrong.exit_code(accepts_loss=accepted) for accepted in (False, True)] == [1, 1]


@pytest.mark.parametrize("command", ["query", "stats", "diff", "archive", "replay", "restore"])
def test_every_job_that_may_leave_something_out_lets_the_user_accept_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", command, "--help"]) == 0
    assert "--accept-loss" in capsys.readouterr().out


def test_sums_and_texts_of_damages_keep_every_count() -> None:
    some = added([Damages(body_count=2), Damages(1, 5, body_count=1)])
    assert (some.count, some.size, some.body_count, some.is_loss) == (1, 5, 3, True)
    known = Damages.from_members(json.loads('{"count": 1, "size": 5, "ranges": []}'))
    assert known == Damages(1, 5)
