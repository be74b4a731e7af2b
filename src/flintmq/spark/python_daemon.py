"""The process from which Spark forks the Python workers of this machine.

Spark puts a zip of PySpark first on the path of its workers.  The zip holds no compiled modules,
so every worker compiles PySpark anew, about a second of processor time.  Here the installed
PySpark, which is the same, goes first.  What tasks need is loaded before the first worker is forked
rather than in each of them, and PySpark's look for garbage after each task passes it over.

The processes in which Spark plans a read of a Python source are not started from here: Spark
(4.3.0) knows no setting for them.

Run by Spark: ``python -m flintmq.spark.python_daemon MODULE`` (``spark.python.daemon.module``).
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

_ZIP_PLACE: Final = Path("python", "lib", "pyspark.zip")
"""Where an installed PySpark has the zip."""


def installed_first(path: list[str]) -> list[str]:
    """Return a module path without the zip of PySpark, if the package it was made of is there."""
    others = [entry for entry in path if Path(entry).name != _ZIP_PLACE.name]
    spec = PathFinder.find_spec("pyspark", others)
    if spec is None or spec.origin is None:
        return path
    own_zip = str(Path(spec.origin).parent / _ZIP_PLACE)
    return [entry for entry in path if entry != own_zip]


def load_ahead() -> None:
    """Load what tasks need into the process that workers are forked from."""
    from flintmq.kernels.background_load import freeze_loaded
    from flintmq.kernels.compiled import as_bytes
    from flintmq.kernels.records import skip_records
    from flintmq.spark.source import load_readers

    load_readers()
    # The first kernel has numba make itself ready, which takes longer than to load the kernel.
    skip_records(as_bytes(b""), 0, 0, 0, 0)
    freeze_loaded()


def main() -> None:
    """Fork workers until Spark closes the standard input."""
    sys.path[:] = installed_first(sys.path)
    from pyspark.daemon import manager

    load_ahead()
    manager()


if __name__ == "__main__":
    main()
