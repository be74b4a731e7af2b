"""What Spark does at the moment, by the names that jobs give their stages.

Spark keeps a description for the actions of a thread; its web pages show it, and so does our
progress bar.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no type hints
from pyspark import SparkContext

_DESCRIPTION: Final = "spark.job.description"
_ACTIVE: Final = "ACTIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStage:
    """A stage of Spark that runs: its name, and how many of its tasks are done."""

    number: int
    name: str | None
    done: int
    total: int


@contextmanager
def stage_name(context: SparkContext, name: str) -> Iterator[None]:
    """Give what Spark does for this thread in the block a name."""
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, name)
    try:
        yield
    finally:
        # What was not set is not set again: Spark takes None for that.
        unset: Any = before
        context.setLocalProperty(_DESCRIPTION, unset)


def running_stages(context: SparkContext) -> list[RunningStage]:
    """Return the stages that run now; none if Spark cannot tell.

    Its list may change while it is made, and Java may have been ended by a signal.
    """
    java: Any = context._jsc
    try:
        listed = java.sc().statusStore().activeStages()
        stages = [listed.apply(number) for number in range(listed.size())]
        # A stage that waits for its turn is listed already, and has no name yet.
        return [_running(stage) for stage in stages if str(stage.status()) == _ACTIVE]
    except (Py4JError, OSError):
        return []


def _running(stage: Any) -> RunningStage:
    description = stage.description()
    return RunningStage(
        number=stage.stageId(),
        name=str(description.get()) if description.isDefined() else None,
        done=stage.numCompleteTasks(),
        total=stage.numTasks(),
    )
