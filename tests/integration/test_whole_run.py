"""`make test` runs a few failed tests again, alone, and says which of them are unsteady."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.warm_up import compile_tests
from tools.whole_run import AGAIN_MAX, plain_name

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import os
import pytest

@pytest.mark.xdist_group("some")
@pytest.mark.parametrize("number", range({count}))
def test_alone(number):
    assert not {failing} or {unsteady} and "PYTEST_XDIST_WORKER" not in os.environ
"""


def _run(directory: Path, *, count: int, failing: str, unsteady: bool) -> tuple[int, str]:
    (directory / "test_some.py").write_text(
        TESTS.format(count=count, failing=failing, unsteady=unsteady)
    )
    command = [sys.executable, "-m", "tools.whole_run", "-n", "1", "--dist", "loadgroup", "-q"]
    ended = subprocess.run(
        [*command, "--rootdir", "."],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    return ended.returncode, ended.stdout


def test_a_test_that_passes_alone_is_named_and_does_not_fail_the_run(tmp_path: Path) -> None:
    code, said = _run(tmp_path, count=4, failing="number == 2", unsteady=True)
    assert code == 0
    assert "1 failed, 3 passed" in said
    assert "unsteady" in said
    assert said.index("  test_some.py::test_alone[2]\n") < said.rindex("1 passed")


def test_a_test_that_fails_alone_too_fails_the_run(tmp_path: Path) -> None:
    code, said = _run(tmp_path, count=4, failing="number == 2", unsteady=False)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert said.splitlines()[-1].startswith("1 failed in")


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    count = AGAIN_MAX + 1
    code, said = _run(tmp_path, count=count, failing="True", unsteady=True)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert said.splitlines()[-1].startswith(f"{count} failed in")


def test_tests_are_compiled_once_even_where_no_bytecode_shall_be_kept(tmp_path: Path) -> None:
    _run(tmp_path, count=1, failing="False", unsteady=False)
    assert [path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")] == ["test_some"]


def test_the_group_of_a_test_is_not_a_part_of_its_name() -> None:
    assert plain_name("tests/test_a.py::test_b@group") == "tests/test_a.py::test_b"
    assert plain_name("tests/test_a.py::test_b[c@d]@group") == "tests/test_a.py::test_b[c@d]"
    assert plain_name("tests/test_a.py::test_b[c@d]") == "tests/test_a.py::test_b[c@d]"


def test_tests_are_compiled_ahead_where_one_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    directory = tmp_path / "tests"
    directory.mkdir()
    (directory / "test_one.py").write_text("def test_one(): assert True\n")
    assert compile_tests(tmp_path)
    assert len(list(directory.rglob("test_one.*.pyc"))) == 1
    assert not compile_tests(tmp_path)
    (directory / "test_two.py").write_text("def test_two(): assert True\n")
    assert compile_tests(tmp_path)
    assert len(list(directory.rglob("test_two.*.pyc"))) == 1
