"""The tour through the jobs in docs/spark.md: every line of it runs."""

import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flintmq.cli.main import run
from tests.kits.spark.pipeline_kit import (
    copy_store,
    light_session,
    numbered,
    use_session,
    write_store,
)

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
_BLOCK = re.compile(
    r"<!-- tour -->\n```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
OFFSETS = '{"offsetTable":{"orders@readers":{0:2,1:3}}}'


def blocks(kind: str) -> list[str]:
    found = [match["text"] for match in _BLOCK.finditer(PAGE.read_text()) if match["kind"] == kind]
    assert found
    return found


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the stores of the tour, and go where its outputs shall be."""
    master = write_store(tmp_path / "data" / "master", numbered(20))
    (master / "config").mkdir(exist_ok=True)
    (master / "config" / "consumerOffset.json").write_text(OFFSETS)
    copy_store(master, tmp_path / "data" / "slave")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    return tmp_path / "data"


def test_every_command_of_the_tour_runs(
    spark: SparkSession,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_session(monkeypatch, light_session(spark))
    for line in "".join(blocks("console")).splitlines():
        program, *arguments = shlex.split(line.removeprefix("$ ").replace("/data", str(data)))
        assert program == "flintmq"
        code = run(arguments)
        captured = capsys.readouterr()
        assert code == 0, (line, captured.err)
        assert captured.out or "--output" in line, line
    assert (data.parent / "out" / "found.csv").read_text().count("\n") == 8
    assert (data.parent / "out" / "hours.jsonl").read_text().count("\n") == 2
    assert "<svg" in (data.parent / "out" / "stats.html").read_text()


def test_the_python_of_the_tour_runs(
    spark: SparkSession, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in blocks("python"):
        code = compile(text.replace("/data", str(data)), str(PAGE), "exec")
        exec(code, {"spark": light_session(spark)})
    assert capsys.readouterr().out.startswith("orders 20 ")
