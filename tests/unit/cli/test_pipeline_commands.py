"""``flintmq pipeline`` up to the point where Spark would start, and what it makes of rows."""

import datetime
import decimal
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from flintmq.cli.main import run
from flintmq.cli.output.text import time_text
from flintmq.cli.pipeline.input_options import live_source
from flintmq.cli.pipeline.report_tables import table_texts
from flintmq.cli.pipeline.row_output import (
    CELL_WIDTH_MAX,
    json_value,
    table_lines,
    text_cell,
    write_csv,
    write_json,
    write_json_lines,
    write_vertical,
)
from flintmq.cli.pipeline.stage_bar import STAGE_COLUMNS, RichStages, rate_text
from flintmq.spark.runtime.session_settings import SessionSettings


def failed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int) -> str:
    """Run ``flintmq pipeline``, which must fail, and return what it said."""
    assert run(["pipeline", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


# -- without Spark ----------------------------------------------------------------------------


def test_help_loads_nothing_of_the_extra() -> None:
    program = (
        "import sys; from flintmq.cli.main import run; run(['pipeline', 'query', '--help']); "
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'numba', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "--on-corrupt" in done.stdout
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "d", "SELECT 1"),
        ("stats", "d"),
        ("diff", "a", "b"),
        ("verify", "d"),
        ("rebuild", "d", "--in-place"),
        ("archive", "d", "--to", "a"),
        ("restore", ".", "--out", "o"),
        ("check-archive", "."),
        ("replay", "d", "--to", "n"),
        ("copy", "n", "--to", "m", "--topic", "t", "--state", "s"),
    ],
)
def test_without_the_extra_one_line_tells_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    said = failed(capsys, *arguments, code=3)
    assert said == "Error: pyspark is not installed: pip install 'flintmq[spark]'\n"


# -- wrong usage ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("query", "only-one"), "give a directory, or --namesrv"),
        (("stats",), "give a directory, or --namesrv"),
        (("stats", "d", "--conf", "novalue"), "NAME=VALUE, not 'novalue'"),
        (("stats", "d", "--parallelism", "0"), "0 is not in the range"),
        (("stats", "d", "--top", "0"), "0 is not in the range"),
        (("query", "d", "SELECT 1", "--output-format", "parquet"), "Parquet needs --output"),
        (("query", "d", "SELECT 1", "--output", "/nowhere/x.csv"), "there is no /nowhere"),
        (
            ("query", "d", "SELECT 1", "--output", "x.xlsx"),
            "one of .csv, .json, .jsonl, .parquet, .arrow",
        ),
        (("query", "d", " ; "), "the query is empty"),
        (("query", "d", "SELECT 1", "--output-format", "arrow"), "Arrow needs --output"),
        (("query", "d", "SELECT 1", "--zone", "Berlin"), "there is no time zone 'Berlin'"),
        (("query", "d", "SELECT 1; SELECT 2"), "several statements"),
        (("query", "d", "SELECT (1"), "a ( that nothing closes (line 1, column 8)"),
        (("query", "d", "DROP TABLE x"), "only a query can be asked"),
        (("stream", "n", "--topic", "t", "--to", "console", "--sql", "SELEC 1"), "not SELEC"),
        (("query", "--namesrv", "127.0.0.1:1", "SELECT 1"), "--topic says which topics"),
        (("rebuild", "d"), "either --out DIR or --in-place"),
        (("rebuild", "d", "--out", "o", "--in-place"), "either --out DIR or --in-place"),
        (("archive", "d"), "Missing option '--to'"),
        (("restore", "/nowhere", "--out", "o"), "does not exist"),
    ],
)
def test_wrong_usage_is_told_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert words in failed(capsys, *arguments, code=2)


def test_an_output_that_is_there_is_not_written_over(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    there = tmp_path / "x.csv"
    there.write_text("mine")
    said = failed(capsys, "query", tmp_path, "SELECT 1", "--output", there, code=2)
    assert f"there is a {there} already" in said
    assert there.read_text() == "mine"


# -- rows -------------------------------------------------------------------------------------

MOMENT = datetime.datetime(2023, 11, 14, 22, 13, 20, 456000, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (b"\x00\xff", "AP8="),
        (bytearray(b"ab"), "YWI="),
        (MOMENT, "2023-11-14T22:13:20.456Z"),
        (MOMENT.astimezone().replace(tzinfo=None), "2023-11-14T22:13:20.456Z"),
        (MOMENT.replace(microsecond=7), "2023-11-14T22:13:20.000007Z"),
        (datetime.date(2023, 11, 14), "2023-11-14"),
        (decimal.Decimal("1.10"), "1.10"),
        ({"a": b"x", 1: None}, {"a": "eA==", "1": None}),
        ([1, (2, "x")], [1, [2, "x"]]),
        (datetime.timedelta(seconds=1), "0:00:01"),
    ],
)
def test_values_have_a_form_in_json(value: object, plain: object) -> None:
    assert json_value(value) == plain


def test_cells_are_fit_for_a_terminal() -> None:
    assert text_cell(None) == "-"
    assert text_cell("a\x1b[2J") == "a\\x1b[2J"
    assert text_cell(b"caf\xc3\xa9\xff\n") == "caf\xe9\\xff\\n"
    assert text_cell({"k": "\xe9"}) == '{"k": "\xe9"}'
    assert text_cell("x" * 100) == "x" * (CELL_WIDTH_MAX - 1) + "…"


def test_a_table_has_columns_as_wide_as_their_cells() -> None:
    lines = [*table_lines(["topic", "n"], [("a", 5), ("longer", 12), (None, None)])]
    assert lines == ["topic    n", "------  --", "a        5", "longer  12", "-        -"]
    assert [*table_lines(["a", "b"], [])] == ["a  b", "-  -"]


def test_csv_and_json_lines_hold_all_of_a_row() -> None:
    rows: list[tuple[Any, ...]] = [("a,b", None, {"k": "v"}), ('"', b"x", True)]
    target = io.StringIO()
    write_csv(["t", "b", "m"], rows, target)
    assert target.getvalue() == 't,b,m\n"a,b",,"{""k"": ""v""}"\n"""",eA==,true\n'
    target = io.StringIO()
    write_json_lines(["t", "b", "m"], rows, target)
    assert target.getvalue() == (
        '{"t":"a,b","b":null,"m":{"k":"v"}}\n{"t":"\\"","b":"eA==","m":true}\n'
    )


def test_json_is_one_list_and_vertical_rows_are_whole() -> None:
    rows: list[tuple[Any, ...]] = [("a", "x" * 100), ("b", None)]
    target = io.StringIO()
    write_json(["topic", "t"], rows, target)
    assert json.loads(target.getvalue()) == [
        {"topic": "a", "t": "x" * 100},
        {"topic": "b", "t": None},
    ]
    target = io.StringIO()
    write_json(["topic"], [], target)
    assert json.loads(target.getvalue()) == []
    target = io.StringIO()
    write_vertical(["topic", "t"], rows, target)
    first, second = "-- row 1 -----", "-- row 2 -----"
    whole = "x" * 100
    assert target.getvalue().splitlines() == [
        *(first, "topic  a", f"t      {whole}"),
        *(second, "topic  b", "t      -"),
    ]
    (*_, line) = table_lines(["t"], [("x" * 100,)], cell_width_max=None)
    assert line == whole


def test_times_are_shown_in_the_zone_of_the_session_with_its_offset() -> None:
    settings = SessionSettings(zone="Europe/Berlin")
    assert settings.spark_conf()["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert json_value(MOMENT, settings.time_zone) == "2023-11-14T23:13:20.456+01:00"
    by_conf = SessionSettings(zone="UTC", conf={"spark.sql.session.timeZone": "-03:30"})
    assert time_text(1_700_000_000_456, by_conf.time_zone) == "2023-11-14T18:43:20.456-03:30"
    for option in ("startingTimestamp", "endingTimestamp"):
        for written, taken in (
            ("2023-11-14T23:13:20", "2023-11-14T23:13:20+01:00"),
            ("2023-11-14T23:13:20Z", "2023-11-14T23:13:20Z"),
            ("1700000000000", "1700000000000"),
        ):
            source = live_source("n:1", ["t"], {option: written}, zone=settings.time_zone)
            assert source[option] == taken


def test_tables_of_reports_tell_what_they_leave_out() -> None:
    lines = [*table_texts("topics", ("topic", ">n"), [["a\x07", "1"], ["[b]", "22"]], 5)]
    assert lines[:2] == ["", "topics:"]
    assert lines[2].split() == ["topic", "n"]
    assert [line.split() for line in lines[4:6]] == [["a\\x07", "1"], ["[b]", "22"]]
    assert lines[-1] == "and 3 more"
    assert [*table_texts("none", ("a",), [], 0)] == []


# -- progress ---------------------------------------------------------------------------------


@dataclass
class FakeStage:
    number: int
    name: str | None
    done: int
    total: int


def test_progress_shows_the_running_stages_by_name_with_rate_and_time_left() -> None:
    terminal = Console(file=io.StringIO(), color_system=None, width=80)
    now = 0.0
    with Progress(
        *STAGE_COLUMNS, console=terminal, get_time=lambda: now, auto_refresh=False
    ) as bar:
        stages = RichStages(bar, "verify")
        stages.show([FakeStage(1, "reading the log", 0, 8), FakeStage(2, None, 0, 9)])
        for now in (1.0, 2.0):
            stages.show([FakeStage(1, "reading the log", 2 * int(now), 8)])
        with terminal.capture() as shown:
            terminal.print(bar.make_tasks_table(bar.tasks))
    (line,) = shown.get().splitlines()
    assert "verify: reading the log" in line
    assert "4/8 tasks" in line
    assert "2.0/s" in line
    assert "left 0:00:02" in line


@pytest.mark.parametrize(
    ("rate", "text"), [(None, ""), (0.0, ""), (12.34, "12.3/s"), (0.25, "4.0 s each")]
)
def test_a_rate_is_in_the_unit_that_leaves_a_number_above_one(
    rate: float | None, text: str
) -> None:
    assert rate_text(rate) == text
