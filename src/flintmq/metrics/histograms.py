"""Histograms: how often something was how large, in a fixed number of buckets."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

SYNC_BOUNDS_US: Final = (
    *(step * 10**power for power in range(1, 7) for step in range(1, 10)),
    *(10_000_000, 20_000_000, 30_000_000, 60_000_000),
)
"""Buckets for syncs: from 10 µs to a minute, nine to each power of ten."""


class Histogram:
    """How often something was how large, in a fixed number of buckets.

    Bucket ``i`` holds what was more than ``bounds[i - 1]`` and at most ``bounds[i]``; the last one
    has no end.  One thread records; others may read at any time.
    """

    __slots__ = ("bounds", "counts", "max", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        assert all(low < high for low, high in pairwise((0, *bounds))), bounds
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0
        self.max = 0

    def record(self, value: int, count: int = 1) -> None:
        """Add a value, so many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += count * value
        if value > self.max:
            self.max = value

    @property
    def count(self) -> int:
        """How many values were added."""
        return sum(self.counts)


class LatencyHistogram(Histogram):
    """How often something took how long, in microseconds."""

    __slots__ = ()

    def __init__(self, bounds_us: Sequence[int] = SYNC_BOUNDS_US) -> None:
        super().__init__(bounds_us)

    @property
    def max_us(self) -> int:
        """The longest duration."""
        return self.max

    @property
    def mean_us(self) -> float:
        """The average duration; 0 when nothing was recorded."""
        count = self.count
        return self.total / count if count else 0.0

    def percentile_us(self, fraction: float) -> float:
        """Return below which duration ``fraction`` of them lie, interpolated in its bucket."""
        return percentile_us(self.bounds, self.counts, self.max, fraction)


def percentile_us(
    bounds_us: Sequence[int], counts: Sequence[int], max_us: int, fraction: float
) -> float:
    """Return below which duration ``fraction`` of what buckets hold lies; 0 if they are empty."""
    assert 0.0 < fraction <= 1.0, fraction
    rank = math.ceil(fraction * sum(counts))
    below = 0
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            low = bounds_us[index - 1] if index else 0
            high = bounds_us[index] if index < len(bounds_us) else max(max_us, low)
            return low + (high - low) * (rank - below) / count
        below += count
    return 0.0
