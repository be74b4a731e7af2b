"""What users import from the packages of jobs: documented names, loaded when they are used."""

import importlib
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs"
JOBS = ("archive", "diff", "query", "rebuild", "replay", "stats", "stream", "verify")


@pytest.mark.parametrize("job", JOBS)
def test_every_exported_name_is_there(job: str) -> None:
    package = importlib.import_module(f"flintmq.spark.jobs.{job}")
    for name in package.__all__:
        if find_spec(f"{package.__name__}.{name}") is not None:
            continue  # A module that other packages may import; users have no need of it.
        assert getattr(package, name).__module__.startswith(f"{package.__name__}.")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def test_the_documented_functions_are_exported() -> None:
    pages = (PAGES / "spark.md").read_text() + (PAGES / "spark-sink.md").read_text()
    named = re.findall(rf"`(?:flintmq\.spark\.jobs\.)?({'|'.join(JOBS)})\.(\w+)`", pages)
    assert len(named) > len(JOBS)
    for job, name in named:
        assert callable(getattr(importlib.import_module(f"flintmq.spark.jobs.{job}"), name))


def test_the_packages_load_neither_pyspark_nor_pyarrow() -> None:
    names = ", ".join(f"flintmq.spark.jobs.{job}" for job in JOBS)
    program = f"import sys, {names}; print({{'pyspark', 'pyarrow', 'numpy'}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
