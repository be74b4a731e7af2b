"""A workload that runs once and is cut wherever its files change, and between its steps.

The disk is copied at each cut, together with what the workload says then: the same that a run
which stops there would leave, for a fraction of its cost.
"""

from collections.abc import Callable
from copy import copy
from typing import Generic, NamedTuple, TypeVar

from flintmq.testing import SimulatedFiles

T = TypeVar("T")


class Cut(NamedTuple):
    """Where a workload stops: before a file call, after a step, or at its end."""

    call: int | None = None
    step: int | None = None


class Moment(NamedTuple, Generic[T]):
    """What a process leaves that is killed at a cut: the files, and what was said until then."""

    cut: Cut
    files: SimulatedFiles
    said: T


def moments_of(
    files: SimulatedFiles,
    run: Callable[[Callable[[int], None]], None],
    said: Callable[[], T],
) -> list[Moment[T]]:
    """Run a workload on ``files`` and return its cuts: before calls, after steps, at the end.

    ``run`` tells the function it is given the number of each step.  ``said`` returns a copy.
    """
    at_calls: list[Moment[T]] = []
    after_steps: list[Moment[T]] = []

    def moment(cut: Cut) -> Moment[T]:
        image = files.process_crash_image()
        image.clock = copy(files.clock)  # The workload goes on with its own.
        return Moment(cut, image, said())

    files.before_change = lambda number: at_calls.append(moment(Cut(call=number)))
    run(lambda number: after_steps.append(moment(Cut(step=number))))
    files.before_change = None
    return [*at_calls, *after_steps, moment(Cut())]
