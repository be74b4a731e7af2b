"""The commands as a user sees them: what goes where, and the exit codes.  See the tour, too."""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import click
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from flintmq.cli.main import run
from flintmq.cli.pipeline.diff_command import diff_command
from flintmq.cli.pipeline.stats_command import stats_command
from flintmq.spark.jobs.diff.diff_report import DETAILS, DETAILS_MAX
from flintmq.spark.jobs.stats.stats_report import TOP, TOP_MAX
from flintmq.spark.runtime.session_settings import (
    DEFAULT_MASTER,
    PARALLELISM_MAX,
    SessionSettings,
)
from tests.kits.golden.golden_sets import damaged_set, golden_set
from tests.kits.spark.pipeline_kit import (
    light_session,
    numbered,
    shared_session,
    use_session,
    write_store,
)
from tests.kits.store.offline_stores import content, overwrite

BASIC = golden_set("basic").store
DAMAGED = damaged_set("body-byte-flipped-first-file").store


@pytest.fixture(autouse=True)
def _session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    use_session(monkeypatch, light_session(spark))


def test_the_command_line_knows_the_limits_of_the_jobs() -> None:
    options = {one.name: one for command in (stats_command, diff_command) for one in command.params}
    for name, most in (
        ("top", TOP_MAX),
        ("details", DETAILS_MAX),
        ("parallelism", PARALLELISM_MAX),
    ):
        kind = options[name].type
        assert isinstance(kind, click.IntRange)
        assert kind.max == most
    for name, usual in (("top", TOP), ("details", DETAILS), ("master", DEFAULT_MASTER)):
        assert options[name].default == usual


def outputs(
    capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0
) -> tuple[str, str]:
    """Run ``flintmq pipeline`` and return what went to stdout and to stderr."""
    capsys.readouterr()
    assert run(["pipeline", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    # Outside of a test the bars of Spark itself are off.
    told = re.sub(r"\r?\[Stage [^\r]*|\r", "", captured.err).strip()
    return captured.out, told


def test_rows_go_to_stdout_and_words_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT topic, count(*) AS n FROM messages GROUP BY topic ORDER BY topic LIMIT 1"
    out, told = outputs(capsys, "query", BASIC, sql)
    assert out.splitlines()[0].split() == ["topic", "n"]
    assert out.splitlines()[2].split()[0] == "GoldenPlain"
    assert told == "1 row; 53 scanned, 1 matched\nthe answer is complete"


def test_a_limit_makes_an_answer_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = outputs(
        capsys, "query", BASIC, "SELECT topic FROM messages", "--limit", 2, "--format", "json"
    )
    report = json.loads(out)
    assert (report["rowCount"], report["matchedCount"], report["complete"]) == (2, None, False)
    assert [sorted(row) for row in report["rows"]] == [["topic"], ["topic"]]
    assert report["columnsRead"] == {"messages": ["topic"]}


def test_wrong_sql_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    out, told = outputs(capsys, "query", BASIC, "SELECT topik FROM messages", code=2)
    assert out == ""
    assert re.fullmatch(r"Error: A column, .* `topik` cannot be .*", told)
    sql = "SELECT topic, topic FROM messages"
    _, told = outputs(capsys, "query", BASIC, sql, "--output-format", "jsonl", code=2)
    assert "two columns are named topic" in told


def test_damage_is_an_error_or_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT count(*) FROM messages"
    _, told = outputs(capsys, "query", DAMAGED, sql, code=3)
    assert "damaged from 15178 to 15768" in told
    assert told.endswith("(Spark's log: the-log)")
    out, told = outputs(capsys, "query", DAMAGED, sql, "--on-corrupt", "skip", code=1)
    assert out.split()[-1] == "384"
    assert "not complete: the log is damaged\n1 damaged range left out, 590 bytes:" in told


def test_what_is_no_store_is_said_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for arguments in (
        ("query", tmp_path, "SELECT 1"),
        ("stats", tmp_path),
        ("diff", BASIC, tmp_path),
        ("verify", tmp_path),
        ("archive", tmp_path, "--to", tmp_path / "archive"),
    ):
        out, told = outputs(capsys, *arguments, code=3)
        assert out == ""
        assert told.startswith(f"flintmq: {tmp_path}: not a store")


def test_parquet_is_written_for_others(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "x.parquet"
    out, _ = outputs(capsys, "query", BASIC, "SELECT topic FROM messages", "--output", target)
    assert out == ""
    assert spark.read.parquet(str(target)).count() == 53


def test_arrow_is_one_file_with_the_types_of_the_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "rows.arrow"
    sql = "SELECT topic, storeTimestamp AS t, body FROM messages ORDER BY physicalOffset"
    said = outputs(capsys, "query", BASIC, sql, "--limit", "2", "--output", str(target))[1]
    assert said.startswith("2 rows; ")
    with pa.OSFile(str(target)) as file:
        table = pa.ipc.open_file(file).read_all()
    assert [str(field.type) for field in table.schema] == [
        "string",
        "timestamp[us, tz=UTC]",
        "binary",
    ]
    assert table.num_rows == 2
    assert [path.name for path in tmp_path.iterdir()] == ["rows.arrow"]


def test_rows_stand_below_each_other_with_times_of_the_zone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sql = "SELECT TIMESTAMP '2023-11-14 22:13:20Z' AS moment, repeat('x', 70) AS body"
    zone = ("--zone", "+02:00")
    rows = outputs(capsys, "query", BASIC, sql, *zone, "--output-format", "vertical")[0]
    assert rows.splitlines()[1:] == ["moment  2023-11-15T00:13:20.000+02:00", f"body    {'x' * 70}"]
    wide = outputs(capsys, "query", BASIC, sql, *zone, "--full-width")[0]
    assert wide.splitlines()[2] == f"2023-11-15T00:13:20.000+02:00  {'x' * 70}"


def test_stores_that_differ_make_the_exit_code_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    left = write_store(tmp_path / "left", numbered(6))
    right = write_store(tmp_path / "right", numbered(6, n3={"flag": 7})[:5])
    out, _ = outputs(capsys, "diff", left, right, code=1)
    lines = out.splitlines()
    assert lines[0] == f"left   {left}: 6 messages, log from 0"
    assert lines[-1].startswith("different: 1 missing, 1 changed; first is changed orders/1 at 1")
    out, _ = outputs(capsys, "diff", left, right, "--format", "json", code=1)
    report = json.loads(out)
    assert (report["equal"], report["first"]["parts"]) == (False, ["flags"])


def test_damaged_stores_make_verify_end_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = outputs(capsys, "verify", BASIC, DAMAGED, "--format", "json", code=1)
    assert [report["sound"] for report in json.loads(out)] == [True, False]


def test_sizes_that_no_file_tells_can_be_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = write_store(tmp_path / "store", numbered(20))
    shutil.rmtree(store / "index")
    sizes = ("--hash-slots", 7, "--index-entries", 9, "--queue-file-size", 100)
    out, _ = outputs(capsys, "rebuild", store, "--out", tmp_path / "out", *sizes)
    assert "20 units in" in out
    assert (
        run(["store", "rebuild", str(store), "--out", str(tmp_path / "serial"), *map(str, sizes)])
        == 0
    )
    assert content(tmp_path / "out") == content(tmp_path / "serial")
    for kind in ("consumequeue", "index"):
        shutil.rmtree(store / kind, ignore_errors=True)
        shutil.copytree(tmp_path / "out" / kind, store / kind)
    outputs(capsys, "verify", store, *sizes)
    outputs(capsys, "verify", store, "--hash-slots", 6, "--index-entries", 9, code=1)


def test_a_shape_that_no_file_tells_is_asked_for_by_its_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = write_store(tmp_path / "store", numbered(20))
    path = min((store / "index").iterdir())
    overwrite(path, 40, bytes(number * 37 % 251 for number in range(path.stat().st_size - 40)))
    _, told = outputs(capsys, "rebuild", store, "--out", tmp_path / "out", code=2)
    assert told.endswith("is unknown; give --hash-slots and --index-entries")


def test_jobs_without_sql_do_not_start_it(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    shared = shared_session(light_session(spark))

    def starter(name: str) -> Callable[..., AbstractContextManager[SparkSession]]:
        def start(settings: SessionSettings) -> AbstractContextManager[SparkSession]:
            started.append(f"{settings.app_name}: {name}")
            return shared(settings)

        return start

    for name in ("job_session", "task_session"):
        monkeypatch.setattr(f"flintmq.spark.runtime.spark_session.{name}", starter(name))
    outputs(capsys, "verify", BASIC)
    outputs(capsys, "query", BASIC, "SELECT 1")
    assert started == ["flintmq verify: task_session", "flintmq query: job_session"]
