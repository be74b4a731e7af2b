"""Tells pytest which tests the light environment cannot run (`make setup-test`).

`make test-quick` loads this plugin with ``-p tools.light_tests``.  A test that stands in the list
is left out where the package that it needs is not installed, and a line at the end of the report
says so.  Where the package is installed, as after `make setup-dev`, the test is run.  `make test`
does not load this plugin: there a missing package is a failure.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]


class Need(NamedTuple):
    """A test, or all tests of a module, and the package without which it cannot run."""

    path: str
    test: str | None
    package: str

    @property
    def name(self) -> str:
        """What pytest calls it."""
        return self.path if self.test is None else f"{self.path}::{self.test}"

    @property
    def exists(self) -> bool:
        """Whether there is such a test."""
        file = ROOT / self.path
        return file.is_file() and (self.test is None or f"def {self.test}(" in file.read_text())


NEEDS: Final = (
    Need("tests/property/test_append_group.py", None, "numba"),
    Need("tests/property/test_bulk_recovery.py", None, "numba"),
    Need("tests/property/test_bulk_tools.py", None, "numba"),
    Need("tests/property/test_checked_kernels.py", None, "numba"),
    Need("tests/property/test_contiguous_read.py", None, "numba"),
    Need("tests/property/test_pulled_heads.py", None, "numba"),
    Need("tests/property/test_two_engines.py", None, "pyspark"),
    Need("tests/property/test_send_fast_path.py", None, "numba"),
    Need("tests/property/test_walked_pulls.py", None, "numba"),
    Need(
        "tests/unit/kernels/test_background_load.py",
        "test_a_real_process_compiles_and_is_not_asked_again",
        "numba",
    ),
    Need("tests/unit/offline/test_derive.py", None, "numba"),
    Need(
        "tests/unit/store/test_key_index.py",
        "test_many_keys_that_a_full_disk_stops_leave_the_chains_as_they_were",
        "numba",
    ),
    Need(
        "tests/unit/store/test_space_ahead.py",
        "test_what_is_written_by_system_calls_asks_for_no_pages",
        "numba",
    ),
    # It makes PySpark unfindable, and expects to hear of that rather than of PyArrow.
    Need(
        "tests/unit/cli/test_pipeline_commands.py",
        "test_without_the_extra_one_line_tells_how_to_get_it",
        "pyarrow",
    ),
    # Without PySpark a command says just that, whatever else is wrong with its arguments.
    Need(
        "tests/unit/cli/test_pipeline_commands.py",
        "test_wrong_usage_is_told_before_anything_starts",
        "pyspark",
    ),
    Need(
        "tests/unit/cli/test_pipeline_commands.py",
        "test_an_output_that_is_there_is_not_written_over",
        "pyspark",
    ),
)
MISSING: Final = [need for need in NEEDS if find_spec(need.package) is None]
"""What cannot run here."""


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a list that names what does not exist, and a test asked for that cannot run."""
    for need in NEEDS:
        if not need.exists:
            raise pytest.UsageError(f"tools/light_tests.py: there is no {need.name}")
    for need in MISSING:
        asked_for = (str(Path(argument).resolve()) for argument in config.args)
        if any(asked.startswith(str(ROOT / need.name)) for asked in asked_for):
            raise pytest.UsageError(f"{need.name} needs {need.package}: make setup-dev")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules that cannot even be imported."""
    left_out = {ROOT / need.path for need in MISSING if need.test is None}
    return True if collection_path in left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out single tests."""
    left_out = {(ROOT / need.path, need.test) for need in MISSING}
    dropped = [
        item for item in items if (item.path, getattr(item, "originalname", item.name)) in left_out
    ]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say in clear words what was left out; the header of a report is not shown with -q."""
    asked_for = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    for need in MISSING:
        if any((ROOT / need.path).is_relative_to(asked) for asked in asked_for):
            terminalreporter.write_line(
                f"left out: {need.name} needs {need.package} (make setup-dev)"
            )
