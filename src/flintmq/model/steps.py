"""Work in steps: a generator that yields wherever others may have their turn.

`flintmq.remoting.fair_turns` runs it in turn with connections, `finish` runs it in one go.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

Steps: TypeAlias = Generator[None, None, _T]
"""Work that may be interrupted where it yields, and returns its result."""


def finish(steps: Steps[_T]) -> _T:
    """Do work in one go, where nobody else has to be served."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: _T = finished.value
            return result
