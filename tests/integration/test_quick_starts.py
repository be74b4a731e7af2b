"""The quick starts of the README do what they say, word for word.

Only addresses are others, since the usual ports may be taken, and what the first command of each
installs is installed here: `make release-check` tries that.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kits.spark.light_spark import light_java, light_python

README: Final = (Path(__file__).parents[2] / "README.md").read_text()
QUICK_STARTS: Final = README.partition("## Three quick starts")[2].partition("\n## ")[0]
PYTHON, OPERATOR, ENGINEER = QUICK_STARTS.split("\n**A")[1:]
COMMANDS_MAX: Final = 5
SECONDS_MAX: Final = 300


def commands(part: str) -> list[str]:
    """Return the commands of a quick start behind the one that installs."""
    install, *others = re.findall(r"^\$ (.*)$", part, re.MULTILINE)
    assert install.startswith("pip install ")
    assert len(others) < COMMANDS_MAX
    return others


class Shell:
    """Runs commands as a user's shell does, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        binaries = Path(sys.executable).parent
        self._environment = os.environ | {"PATH": f"{binaries}:{os.environ['PATH']}"}

    def run(self, command: str, **environment: str) -> str:
        done = subprocess.run(
            shlex.split(command),
            cwd=self._directory,
            env=self._environment | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            shlex.split(command),
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_python_team(shell: Shell, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PYTHON, re.DOTALL)
    (tmp_path / "test_orders.py").write_text(code)
    (command,) = commands(PYTHON)
    assert "1 passed" in shell.run(f"{command} -p no:cacheprovider")


@pytest.fixture
def served(shell: Shell) -> Iterator[list[str]]:
    """Run what the operator starts; yield the commands that follow, with the real address."""
    serve, *others = commands(OPERATOR)
    assert serve.endswith(" &")
    with shell.start(serve.removesuffix("&") + "--namesrv-port 0 --broker-port 0") as process:
        assert process.stdout is not None
        ready = re.match(r"ready: namesrv=(\S+) ", process.stdout.readline())
        assert ready is not None
        try:
            yield [one.replace("127.0.0.1:9876", ready[1]) for one in others]
        finally:
            process.send_signal(signal.SIGTERM)


def test_an_operator_and_a_data_engineer(shell: Shell, served: list[str]) -> None:
    update, send, doctor = served
    assert "orders" in shell.run(update)
    assert "SEND_OK" in shell.run(send)
    shell.run(doctor)
    query, archive, check = commands(ENGINEER)
    light = {"JAVA_TOOL_OPTIONS": light_java(), **light_python()}
    assert re.search(r"^orders +1$", shell.run(query, **light), re.MULTILINE)
    assert "run 1: 1 record " in shell.run(archive, **light)
    assert "sound" in shell.run(check, **light)
