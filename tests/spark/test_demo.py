"""The tour of ``make demo``, with a smaller shop."""

import contextlib
import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from examples.tour import __main__ as tour
from examples.tour.shown import Answer, run_as_process
from flintmq.cli.main import run as flintmq
from tests.kits.spark.pipeline_kit import light_session, use_session

ROOT = Path(__file__).parents[2]
ORDER_COUNT = 3000
PAYMENT_COUNT = 2000


def run_here(arguments: Sequence[str]) -> Answer:
    """Run a command in this process, where all commands share a session of Spark."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = flintmq(arguments)
    return Answer(code, output.getvalue(), errors.getvalue())


def test_the_tour_does_all_that_it_shows(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_session(monkeypatch, light_session(spark))
    work = tmp_path / "demo"
    tour.run(work, ORDER_COUNT, PAYMENT_COUNT, run_command=run_here)
    shown = capsys.readouterr().out
    assert f"{ORDER_COUNT:,} orders packed" in shown
    assert "1 payments failed 3 times and are dead letters now" in shown
    assert "%DLQ%accounting  order-1999" in shown
    assert "sound" in shown
    assert "<svg" in (work / "stats.html").read_text()
    # One payment of five is a voucher, which the stream leaves out.
    assert pq.read_table(work / "stream").num_rows == PAYMENT_COUNT * 4 // 5
    # Orders, payments, their second and third try in the retry topic, and so on: more than these.
    assert pq.read_table(work / "archive" / "messages").num_rows > ORDER_COUNT + PAYMENT_COUNT


def test_a_command_of_the_tour_is_a_process() -> None:
    answer = run_as_process(["--version"])
    assert (answer.code, answer.errors) == (0, "")
    assert answer.output.startswith("flintmq, version ")


def test_the_tour_leaves_the_folders_of_others_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = subprocess.run(
        [sys.executable, "-m", "examples.tour", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "not of a tour" in done.stderr
    assert (tmp_path / "mine").read_text() == "precious"
