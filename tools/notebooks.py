"""Runs the notebooks of docs/notebooks and writes what they show into them.

    python -m tools.notebooks [NAME ...]

A test runs them too, and compares: what a notebook shows is what its code gives today.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

NOTEBOOKS: Final = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
CELL_TIMEOUT_S: Final = 300
LIGHT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


# These two have no type hints.
_read: Final[Any] = nbformat.read
_write: Final[Any] = nbformat.write


def read_notebook(path: Path) -> Any:
    """Return a notebook as it is written."""
    return _read(path, as_version=4)


def run_notebook(path: Path, **environment: str) -> Any:
    """Return a notebook with what its cells show when they are run now; the file stays as it is.

    ``environment`` is added to that of this process.
    """
    notebook = read_notebook(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
    )
    # Sessions that are this short are over before Java has compiled anything well.
    client.execute(env=os.environ | {"JAVA_TOOL_OPTIONS": LIGHT_JAVA} | environment)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # There Spark greets, with the name of the machine.
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    # The version of the Python that has run it is of no interest, and would change with each.
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return notebook


def shown_texts(notebook: Any) -> list[str]:
    """Return what the cells of a notebook show as text, in order; pictures are left out."""
    texts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" not in data:
                texts.append(output.get("text") or data.get("text/plain", ""))
    return texts


def main(names: list[str]) -> int:
    """Run notebooks, all of them if none is named, and write them."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.stem in names:
            _write(run_notebook(path), path)
            print(f"notebooks: {path.name}  {path.stat().st_size / 1024:.0f} KiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
