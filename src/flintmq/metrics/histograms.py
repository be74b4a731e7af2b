"""Histograms: how often something took how long, in a fixed number of buckets."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

SYNC_BOUNDS_US: Final = (
    *(step * 10**power for power in range(1, 7) for step in range(1, 10)),
    *(10_000_000, 20_000_000, 30_000_000, 60_000_000),
)
"""Buckets for syncs: from 10 µs to a minute, nine to each power of ten."""


class LatencyHistogram:
    """How often something took how long, in a fixed number of buckets.

    Bucket ``i`` holds what took at least ``bounds_us[i - 1]`` and less than ``bounds_us[i]``;
    the last one has no end.  One thread records; others may read at any time.
    """

    __slots__ = ("bounds_us", "count", "counts", "max_us", "total_us")

    def __init__(self, bounds_us: Sequence[int] = SYNC_BOUNDS_US) -> None:
        assert all(low < high for low, high in pairwise((0, *bounds_us))), bounds_us
        self.bounds_us = bounds_us
        self.counts = [0] * (len(bounds_us) + 1)
        self.count = 0
        self.total_us = 0
        self.max_us = 0

    def record(self, elapsed_us: int) -> None:
        """Add one duration."""
        self.counts[bisect_right(self.bounds_us, elapsed_us)] += 1
        self.count += 1
        self.total_us += elapsed_us
        if elapsed_us > self.max_us:
            self.max_us = elapsed_us

    @property
    def mean_us(self) -> float:
        """The average duration; 0 when nothing was recorded."""
        return self.total_us / self.count if self.count else 0.0

    def percentile_us(self, fraction: float) -> float:
        """Return below which duration ``fraction`` of them lie, interpolated in its bucket."""
        return percentile_us(self.bounds_us, self.counts, self.max_us, fraction)


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
