"""How a span of time is cut into bins for a picture: seconds for a minute, days for a year."""

from collections.abc import Iterable
from typing import Final

from flintmq.spark.jobs.stats.stats_report import Timeline

BINS_MAX: Final = 120
"""A picture has room for so many bars."""

HOUR_MS: Final = 3_600_000
_SECOND_MS: Final = 1000
_DAY_MS: Final = 24 * HOUR_MS
_WIDTHS_MS: Final = (
    *(count * _SECOND_MS for count in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(count * HOUR_MS for count in (1, 2, 3, 6, 12)),
    *(count * _DAY_MS for count in (1, 2, 7, 30)),
)
_UNITS: Final = ((_DAY_MS, "day"), (HOUR_MS, "hour"), (60_000, "minute"), (_SECOND_MS, "second"))


def bin_width(first_ms: int, last_ms: int) -> int:
    """Return the smallest width by which the bins of a span are few enough; years beyond."""
    for width in _WIDTHS_MS:
        if (last_ms // width) - (first_ms // width) < BINS_MAX:
            return width
    year = 365 * _DAY_MS
    return year * max(1, -(-(last_ms - first_ms) // (year * (BINS_MAX - 1))))


def width_text(width_ms: int) -> str:
    """Return a width in words: ``second``, ``5 minutes``."""
    for size, unit in _UNITS:
        if width_ms % size == 0:
            count = width_ms // size
            return unit if count == 1 else f"{count} {unit}s"
    return f"{width_ms} ms"


def join_bins(bins: Iterable[tuple[int, int]], width_ms: int) -> Timeline:
    """Return bins of a width out of finer ones, each its start and its messages."""
    joined: dict[int, int] = {}
    for start, count in bins:
        wide = start // width_ms * width_ms
        joined[wide] = joined.get(wide, 0) + count
    return Timeline(width_ms=width_ms, bins=tuple(sorted(joined.items())))
