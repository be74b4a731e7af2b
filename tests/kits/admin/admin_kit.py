"""Runs commands of ``flintmq admin`` in this process, and reads what they print."""

import contextlib
import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flintmq.cli.main import run


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command has printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def envelope(self) -> dict[str, Any]:
        """The object that the command has written as JSON."""
        value = json.loads(self.out)
        assert set(value) == {"command", "rows", "summary", "failures"}
        assert isinstance(value, dict)
        return value


@dataclass(frozen=True, slots=True)
class AdminCli:
    """The command line of an operator of one cluster."""

    namesrv: str

    def run(self, *arguments: str) -> Ran:
        """Run ``flintmq admin`` with the name server of the cluster."""
        return run_flintmq("admin", "-n", self.namesrv, *arguments)

    def json(self, command: str, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Run a command that ends with ``code``; return what it writes as JSON."""
        done = self.run(command, *arguments, "--output", "json")
        assert done.code == code, f"{command} ended with {done.code}:\n{done.err}{done.out}"
        found = done.envelope
        assert found["command"] == command
        return found

    def rows(self, command: str, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """Return the rows that a command writes as JSON."""
        rows = self.json(command, *arguments, code=code)["rows"]
        assert isinstance(rows, list)
        return rows

    def change(self, command: str, *arguments: str) -> list[dict[str, Any]]:
        """Run a command that changes something; first it shows the same change without doing it.

        Returns the rows of the change itself.
        """
        planned = self.rows(command, *arguments, "--dry-run")
        done = self.rows(command, *arguments, "--yes")
        assert [_subject(one) for one in planned] == [_subject(one) for one in done]
        assert {one["outcome"] for one in planned} <= {"planned", "unchanged"}
        assert {one["outcome"] for one in done} <= {"done", "unchanged"}
        return done


def _subject(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["target"], row["subject"], row["old"], row["new"]


def run_flintmq(*arguments: str) -> Ran:
    """Run ``flintmq`` and return what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return Ran(code, out.getvalue(), err.getvalue())


def wait_until(is_so: Callable[[], bool], *, seconds: float = 30) -> None:
    """Wait for a condition; a test fails if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
