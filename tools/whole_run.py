"""Runs all tests, and a few that failed once more, alone: ``python -m tools.whole_run ARGUMENTS``.

Thousands of tests use real servers, processes and clocks, on a machine that others may use too.  A
test that failed in that company and passes alone is *unsteady*: a fault of the test, or of the
code, that somebody has to look at.  It is named, with the report of its failure, and does not fail
the run.  More than `AGAIN_MAX` failures are no accident: then nothing is run again.
"""

import os
import subprocess
import sys
from typing import Final

import pytest

AGAIN_MAX: Final = 3


class Failures:
    """A plugin of pytest that keeps the names of tests that failed."""

    def __init__(self) -> None:
        self._reported: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the name of a test that failed in its setup, its call or its teardown."""
        if report.failed:
            self._reported[plain_name(report.nodeid)] = None

    @property
    def names(self) -> list[str]:
        """The tests that failed, in the order in which they did."""
        return list(self._reported)


def plain_name(node_id: str) -> str:
    """Return the name of a test without the group that xdist puts behind it.

    >>> plain_name("tests/test_a.py::test_b@group"), plain_name("tests/test_a.py::test_b[c@d]")
    ('tests/test_a.py::test_b', 'tests/test_a.py::test_b[c@d]')
    """
    name, _, group = node_id.rpartition("@")
    return node_id if not name or "]" in group else name


def keep_compiled() -> None:
    """Have modules compiled once, though the environment may ask for no bytecode to be kept.

    pytest takes five seconds of processor time to compile all tests, and each of its processes
    would do so in each run.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def run(arguments: list[str]) -> int:
    """Run pytest with these arguments; return its exit code, or that of the second run."""
    keep_compiled()
    failures = Failures()
    code = pytest.main(arguments, plugins=[failures])
    # Any other code says that the run did not come to its end.
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(failures.names) <= AGAIN_MAX:
        return int(code)
    print("\nrun again, alone; what passes now is unsteady and has to be looked at:")
    for name in failures.names:
        print(f"  {name}")
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *failures.names]).returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
