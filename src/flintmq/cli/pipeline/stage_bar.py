"""The progress bar of a job: a line for each stage, with its rate and the time that is left."""

from collections.abc import Iterable
from typing import Final, Protocol

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class Stage(Protocol):
    """A stage of Spark that runs."""

    @property
    def number(self) -> int:
        """Which stage it is."""
        ...

    @property
    def name(self) -> str | None:
        """What the job calls it."""
        ...

    @property
    def done(self) -> int:
        """How many tasks are done."""
        ...

    @property
    def total(self) -> int:
        """How many tasks there are."""
        ...


def rate_text(tasks_per_second: float | None) -> str:
    """Return a rate in the unit that leaves a number above one."""
    if not tasks_per_second:
        return ""
    if tasks_per_second >= 1:
        return f"{tasks_per_second:.1f}/s"
    return f"{1 / tasks_per_second:.1f} s each"


class _RateColumn(ProgressColumn):
    """How fast tasks are done."""

    def render(self, task: Task) -> Text:
        return Text(rate_text(task.finished_speed or task.speed), style="progress.data.speed")


# Narrow enough for a terminal of 80 columns, with the name of a stage.
STAGE_COLUMNS: Final = (
    TextColumn("{task.description}"),
    BarColumn(bar_width=12),
    MofNCompleteColumn(),
    TextColumn("tasks"),
    _RateColumn(),
    TimeElapsedColumn(),
    TextColumn("left"),
    TimeRemainingColumn(),
)


class RichStages:
    """One line for each stage that runs."""

    def __init__(self, bar: Progress, label: str) -> None:
        self._bar = bar
        self._label = label
        self._lines: dict[int, TaskID] = {}

    def show(self, stages: Iterable[Stage]) -> None:
        """Show the stages that run now, and no others."""
        running = {stage.number: stage for stage in stages}
        for number in self._lines.keys() - running.keys():
            self._bar.remove_task(self._lines.pop(number))
        for number, stage in running.items():
            if number not in self._lines:
                name = f"{self._label}: {stage.name or f'stage {number}'}"
                self._lines[number] = self._bar.add_task(name, total=stage.total)
            self._bar.update(self._lines[number], completed=stage.done)
