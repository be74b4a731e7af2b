"""The directory in which a rebuild or a restore works: beside its result, gone when it is done.

It lies on the file system that takes the result, so that finished files get there by renaming.
A run that was killed leaves it behind; the next run with the same result removes it first, and
one that meets another run at work is refused.

    lock             held by the run
    RUN/             the store that a restore makes, or of a rebuild:
    RUN/spool/       what tasks leave for tasks
    RUN/tasks/       a directory for each attempt to write files
    RUN/views/       the finished views, complete and synced before anything is done with them
    RUN/old/         what the finished views have replaced

RUN is another name each time: tasks of a driver that was killed may still be at work for a
moment, and must not meet those of the next run.
"""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flintmq.offline.store_lock import hold_directory
from flintmq.spark.jobs.rebuild.rebuild_stages import spool_directory, task_directory

IN_PLACE_NAME: Final = ".rebuild"
REBUILD_SUFFIX: Final = ".rebuild"
RESTORE_SUFFIX: Final = ".restoring"


def beside(output: Path, suffix: str = REBUILD_SUFFIX) -> Path:
    """Return where the result ``output`` is built."""
    output = output.resolve()
    return output.with_name(output.name + suffix)


def within(root: Path) -> Path:
    """Return where the views of the store ``root`` are built to be switched in place."""
    return root.resolve() / IN_PLACE_NAME


def views_directory(build: Path) -> Path:
    """Return where finished views are."""
    return build / "views"


def old_directory(build: Path) -> Path:
    """Return where replaced views are."""
    return build / "old"


def earlier_builds(parent: Path) -> list[Path]:
    """Return what runs that were killed have left in the directory for builds."""
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.exists() else []


@contextmanager
def open_run(parent: Path) -> Iterator[Path]:
    """Yield a fresh directory in ``parent``; in the end both are removed.

    Raises:
        StoreInUseError: another run is at work there.
    """
    with hold_directory(parent):
        for leftover in earlier_builds(parent):
            shutil.rmtree(leftover, ignore_errors=True)
        run = parent / uuid.uuid4().hex
        try:
            run.mkdir()
            yield run
        finally:
            shutil.rmtree(parent, ignore_errors=True)


@contextmanager
def open_build(parent: Path) -> Iterator[Path]:
    """Yield a fresh build directory of a rebuild in ``parent``."""
    with open_run(parent) as build:
        for directory in (spool_directory, task_directory, views_directory, old_directory):
            directory(build).mkdir()
        yield build
