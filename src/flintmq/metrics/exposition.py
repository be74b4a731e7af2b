"""Families as Prometheus reads them, written in pieces so that nobody waits long for a scrape.

The text is made by ``prometheus_client``, which is loaded with this module: only a server that
shows metrics needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import Metric

from flintmq.metrics.families import FamilyKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flintmq.metrics.families import Family, FamilyMaker, FamilySource

SERIES_PER_PIECE: Final = 100
"""Series that are written at once: about a millisecond."""

LEFT_OUT: Final = "flintmq_metrics_left_out_series"


def exposition(sources: Iterable[FamilySource], maker: FamilyMaker) -> Iterator[bytes]:
    """Yield the families of all sources as text, piece by piece; empty pieces are only pauses.

    Two sources may not have families of one name.  Last comes what the families left out.
    """
    left_out = maker.gauge(
        LEFT_OUT, "Series that are not shown because a metric has too many.", ["metric"]
    )
    for source in sources:
        for family in source(maker):
            if family is None:
                yield b""
                continue
            if family.left_out_count:
                left_out.add(family.left_out_count, family.name)
            yield from _pieces(family)
    yield from _pieces(left_out)
    for metric in _PROCESS.collect():
        yield generate_latest(_Only(metric))


_PROCESS: Final = ProcessCollector(registry=None)
"""Memory, processor time and open files of this process, by Prometheus' own names."""


class _Only:
    """A registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """Return the metric."""
        return (self._metric,)


def _pieces(family: Family) -> Iterator[bytes]:
    # The library takes the suffix off the names of counters, and puts it on again.
    is_counter = family.kind is FamilyKind.COUNTER
    name = family.name.removesuffix("_total") if is_counter else family.name
    for first in range(0, max(len(family), 1), SERIES_PER_PIECE):
        metric = Metric(name, family.text, family.kind.value)
        for sample in family.samples(first, first + SERIES_PER_PIECE):
            metric.add_sample(*sample)
        text = generate_latest(_Only(metric))
        # Two lines say what a family is; only the first piece has them.
        yield text if first == 0 else text.split(b"\n", 2)[2]
