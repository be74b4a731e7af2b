"""`make test-quick` works where only `make setup-test` was run: a stranger's first command."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = "tests.kits.processes.heavy_packages_hidden"


def test_all_quick_tests_are_found_without_numba_and_spark_or_listed_as_left_out() -> None:
    pytest = [sys.executable, "-m", "pytest", "-p", HIDDEN, "-p", "tools.light_tests", "-q"]
    ended = subprocess.run(
        [*pytest, "--collect-only", "-m", "not slow", "tests/unit", "tests/property"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-2000:]
    assert "left out: tests/property/test_checked_kernels.py needs numba" in ended.stdout
