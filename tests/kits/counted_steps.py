"""Work in steps that is done in one go, with the number of its interruptions."""

from typing import TypeVar

from flintmq.model.steps import Steps

_T = TypeVar("_T")


def counted(steps: Steps[_T]) -> tuple[_T, int]:
    """Return the result of some work, and how often it could have been interrupted."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value, count
        count += 1
