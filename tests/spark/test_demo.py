"""The tour of ``make demo``, with a smaller shop."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
ORDER_COUNT = 3000
PAYMENT_COUNT = 2000


def test_the_tour_does_all_that_it_shows(tmp_path: Path) -> None:
    counts = ["--orders", str(ORDER_COUNT), "--payments", str(PAYMENT_COUNT)]
    done = subprocess.run(
        [sys.executable, "-m", "examples.tour", "--out", str(tmp_path / "demo"), *counts],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ORDER_COUNT:,} orders packed" in done.stdout
    assert "1 payments failed 3 times and are dead letters now" in done.stdout
    assert "%DLQ%accounting  order-1999" in done.stdout
    assert "sound" in done.stdout
    work = tmp_path / "demo"
    assert "<svg" in (work / "stats.html").read_text()
    # One payment of five is a voucher, which the stream leaves out.
    assert pq.read_table(work / "stream").num_rows == PAYMENT_COUNT * 4 // 5
    # Orders, payments, their second and third try in the retry topic, and so on: more than these.
    assert pq.read_table(work / "archive" / "messages").num_rows > ORDER_COUNT + PAYMENT_COUNT


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
