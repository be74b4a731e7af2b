"""Progress of a Spark job on the terminal: tasks done and to do, stage by stage."""

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from flintmq.spark.runtime.spark_session import TaskSession

_INTERVAL_SECONDS: Final = 0.25


class StageInfo(Protocol):
    """How far a stage has come, as Spark tells it."""

    @property
    def numCompletedTasks(self) -> int:
        """How many tasks are done."""
        ...

    @property
    def numTasks(self) -> int:
        """How many tasks there are."""
        ...


class StageTracker(Protocol):
    """What Spark's status tracker is asked for."""

    def getActiveStageIds(self) -> Iterable[int]:
        """Return the stages that run now."""
        ...

    def getStageInfo(self, stageId: int, /) -> StageInfo | None:
        """Return how far a stage has come; None if it has ended since."""
        ...


class StageBar(Protocol):
    """Shows the progress of stages."""

    def show(self, stages: dict[int, tuple[int, int]]) -> None:
        """Show, by stage, how many tasks are done, of how many."""
        ...


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
    # Most runs have no terminal and need not load this.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        ended = threading.Event()
        watcher = threading.Thread(
            target=_watch,
            args=(spark.sparkContext.statusTracker(), _RichStages(bar, label), ended),
            name="progress",
            daemon=True,
        )
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(tracker: StageTracker, bar: StageBar, ended: threading.Event) -> None:
    while not ended.wait(_INTERVAL_SECONDS):
        bar.show(running_stages(tracker))


def running_stages(tracker: StageTracker) -> dict[int, tuple[int, int]]:
    """Return, by stage, how many tasks of those that run now are done, of how many."""
    found = {}
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        # A stage may have ended since it was listed.
        if info is not None:
            found[stage] = (info.numCompletedTasks, info.numTasks)
    return found


class _RichStages:
    """One line for each stage that runs."""

    def __init__(self, bar: "Progress", label: str) -> None:
        self._bar = bar
        self._label = label
        self._lines: dict[int, TaskID] = {}

    def show(self, stages: dict[int, tuple[int, int]]) -> None:
        for stage in self._lines.keys() - stages.keys():
            self._bar.remove_task(self._lines.pop(stage))
        for stage, (done, total) in stages.items():
            if stage not in self._lines:
                name = f"{self._label} stage {stage}"
                self._lines[stage] = self._bar.add_task(name, total=total)
            self._bar.update(self._lines[stage], completed=done)
