"""A progress bar on the terminal; none where the errors go into a pipe or a file."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from flintmq.offline import Progress as ProgressCallback


@contextmanager
def progress_bar(label: str, *, shown: bool = True) -> Iterator[ProgressCallback | None]:
    """Yield a function that is told of progress; None without a terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    # Most runs have no terminal and need not load this.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance
