"""The notebooks work, and show what their code gives."""

from pathlib import Path
from typing import Final

import pytest

from tests.kits.spark.light_spark import light_java, light_python
from tools.notebooks import NOTEBOOKS, read_notebook, run_notebook, shown_texts

PATHS: Final = sorted(NOTEBOOKS.glob("*.ipynb"))
SIZE_MAX: Final = 60_000
PLACES: Final = ("/tmp", "/home/", "/root", "/work", "/Users", "C:\\")
"""Where a machine keeps what is its own."""


def test_there_are_three() -> None:
    assert [path.stem for path in PATHS] == ["broken-store", "live-dashboard", "migration-check"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_is_kept_is_small_and_names_no_place_of_a_machine(path: Path) -> None:
    assert path.stat().st_size < SIZE_MAX
    notebook = read_notebook(path)
    assert shown_texts(notebook)
    for text in [*shown_texts(notebook), *(cell.source for cell in notebook.cells)]:
        assert not [place for place in PLACES if place in text]


@pytest.mark.slow
@pytest.mark.xdist_group("notebooks")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_written_in_it(path: Path) -> None:
    shown = run_notebook(path, JAVA_TOOL_OPTIONS=light_java(), **light_python())
    assert shown_texts(shown) == shown_texts(read_notebook(path))
