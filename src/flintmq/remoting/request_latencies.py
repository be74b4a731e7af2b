"""How long requests take from the turn of the loop that brought them until they are answered.

Requests of one turn are handled together and answered together, so the time at which their slice
of it began is when they came: nobody has to look at a clock for each.  What is gathered is noted
as one, with its count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.metrics.histograms import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.remoting.fair_turns import FairTurns

BOUNDS_US: Final = (
    *(100, 300, 1000, 3000, 5000, 7000, 10_000, 100_000),
    *(1_000_000, 2_000_000, 3_000_000),
)
"""The buckets of RocketMQ 5, from a millisecond on, and two below them."""

KIND_COUNT_MAX: Final = 1000
"""Kinds of answered requests; there are not so many."""
UNKNOWN_CODE: Final = -1
"""Stands for all codes that nobody handles: peers can make them up."""


class AnsweredKind(NamedTuple):
    """Requests that are counted together."""

    code: int
    answer_code: int
    is_long_polling: bool


class RequestLatencies:
    """Histograms by the code of a request and of its answer."""

    def __init__(self, turns: FairTurns) -> None:
        self._turns = turns
        self._now = turns.now
        self._by_kind: dict[tuple[int, int, bool], LatencyHistogram] = {}

    def __iter__(self) -> Iterator[tuple[AnsweredKind, LatencyHistogram]]:
        for kind, histogram in list(self._by_kind.items()):
            yield AnsweredKind(*kind), histogram

    @property
    def began(self) -> float:
        """When the requests that are handled now have come."""
        return self._turns.slice_began

    def note(
        self,
        code: int,
        answer_code: int,
        began: float,
        count: int = 1,
        is_long_polling: bool = False,
    ) -> None:
        """Note that requests which came at a time are answered now.

        It is done for each group of sends and for each pull, so it does as little as it can.
        """
        key = (code, answer_code, is_long_polling)
        try:
            histogram = self._by_kind[key]
        except KeyError:
            if len(self._by_kind) >= KIND_COUNT_MAX:
                return
            histogram = self._by_kind[key] = LatencyHistogram(BOUNDS_US)
        histogram.record(int((self._now() - began) * 1_000_000), count)
