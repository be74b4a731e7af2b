"""Progress of a Spark job on the terminal: its stages by name, as long as they run."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from flintmq.cli.pipeline.stage_bar import RichStages, Stage
    from flintmq.spark.runtime.spark_session import TaskSession

_INTERVAL_SECONDS: Final = 0.25


def say_start() -> None:
    """Say on a terminal that Spark starts: that takes seconds in which nothing else is seen."""
    if sys.stderr.isatty():
        click.echo("starting Spark…", err=True)


@contextmanager
def task_progress(spark: "TaskSession", label: str, *, shown: bool = True) -> Iterator[None]:
    """Show the stages that Spark runs until the block ends; without a terminal show nothing."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    # Most runs have no terminal and need not load these.
    from rich.console import Console
    from rich.progress import Progress

    from flintmq.cli.pipeline.stage_bar import STAGE_COLUMNS, RichStages
    from flintmq.spark.runtime.stage_names import running_stages

    context = spark.sparkContext
    with Progress(*STAGE_COLUMNS, console=Console(stderr=True), transient=True) as bar:
        ended = threading.Event()
        watcher = threading.Thread(
            target=_watch,
            args=(lambda: running_stages(context), RichStages(bar, label), ended),
            name="progress",
            daemon=True,
        )
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(
    stages: "Callable[[], Iterable[Stage]]", bar: "RichStages", ended: threading.Event
) -> None:
    while not ended.wait(_INTERVAL_SECONDS):
        bar.show(stages())
