"""Metric families: a name, what it means, and a number for each set of labels.

They are made when somebody asks for metrics, from live state, and thrown away afterwards.  Topics,
groups and clients have names that peers choose, so a family holds a limited number of series and
counts what it left out.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from flintmq.metrics.histograms import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LABEL_LENGTH_MAX: Final = 256
"""Characters of the value of a label; names of topics and groups are shorter."""

SECONDS: Final = 1_000_000
MILLISECONDS: Final = 1000
"""In what the microseconds of a histogram are shown."""


class FamilyKind(Enum):
    """What the numbers of a family are."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class FamilySample(NamedTuple):
    """One number of a family, under the name that it has on the wire."""

    name: str
    labels: dict[str, str]
    value: float


class Family:
    """All series of one metric.

    ``common`` are labels that every series has, ``label_names`` those in which they differ.
    """

    def __init__(
        self,
        name: str,
        kind: FamilyKind,
        text: str,
        label_names: Sequence[str] = (),
        *,
        common: Mapping[str, str],
        series_max: int,
        unit: int = SECONDS,
    ) -> None:
        assert (kind is FamilyKind.COUNTER) <= name.endswith("_total"), name
        self.name = name
        self.kind = kind
        self.text = text
        self.left_out_count = 0
        """Series that had no room."""
        self._label_names = tuple(label_names)
        self._common = common
        self._series_max = series_max
        self._unit = unit
        # Tens of thousands of objects would wake the garbage collector: two lists do not.
        self._label_values: list[tuple[str, ...]] = []
        self._values: list[float | Histogram] = []

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float, *label_values: str) -> None:
        """Add a series with one number."""
        assert self.kind is not FamilyKind.HISTOGRAM
        self._add(value, label_values)

    def add_histogram(self, histogram: Histogram, *label_values: str) -> None:
        """Add a histogram; it is shown as it is when it is written."""
        assert self.kind is FamilyKind.HISTOGRAM
        self._add(histogram, label_values)

    def _add(self, value: float | Histogram, label_values: tuple[str, ...]) -> None:
        assert len(label_values) == len(self._label_names), label_values
        if len(self._values) >= self._series_max:
            self.left_out_count += 1
            return
        self._label_values.append(label_values)
        self._values.append(value)

    def samples(self, first: int, end: int) -> Iterator[FamilySample]:
        """Yield the samples of some of the series."""
        pairs = zip(self._label_values[first:end], self._values[first:end], strict=True)
        for label_values, value in pairs:
            shown = map(_shown, label_values)
            labels = {**self._common, **dict(zip(self._label_names, shown, strict=True))}
            if isinstance(value, Histogram):
                yield from _histogram_samples(self.name, labels, value, self._unit)
            else:
                yield FamilySample(self.name, labels, value)


def _histogram_samples(
    name: str, labels: dict[str, str], histogram: Histogram, unit: int
) -> Iterator[FamilySample]:
    """Yield buckets, sum and count."""
    bucket, total, counts = f"{name}_bucket", 0, list(histogram.counts)
    for end, count in zip(histogram.bounds, counts, strict=False):
        total += count
        bound = {"le": str(end / unit)}
        yield FamilySample(bucket, {**labels, **bound}, total)
    total += counts[-1]
    yield FamilySample(bucket, {**labels, "le": "+Inf"}, total)
    yield FamilySample(f"{name}_sum", labels, histogram.total / unit)
    yield FamilySample(f"{name}_count", labels, total)


def _shown(value: str) -> str:
    """Return a label's value as it can be written: not too long, no halves of characters."""
    value = value[:LABEL_LENGTH_MAX]
    return value if value.isascii() else value.encode(errors="replace").decode()


class FamilyMaker:
    """Makes the families of one server, which share labels and a limit."""

    def __init__(self, common: Mapping[str, str], *, series_max: int) -> None:
        self._common = dict(common)
        self._series_max = series_max

    def gauge(
        self, name: str, text: str, label_names: Sequence[str] = (), *, is_plain: bool = False
    ) -> Family:
        """Return a family of numbers that rise and fall; a plain one lacks the common labels."""
        return self._make(name, FamilyKind.GAUGE, text, label_names, is_plain=is_plain)

    def counter(self, name: str, text: str, label_names: Sequence[str] = ()) -> Family:
        """Return a family of numbers that only grow."""
        return self._make(name, FamilyKind.COUNTER, text, label_names)

    def histogram(
        self, name: str, text: str, label_names: Sequence[str] = (), *, unit: int = SECONDS
    ) -> Family:
        """Return a family of histograms; ``unit`` is how many of theirs are one that is shown."""
        return self._make(name, FamilyKind.HISTOGRAM, text, label_names, unit=unit)

    def one(self, kind: FamilyKind, name: str, text: str, value: float) -> Family:
        """Return a family of one number."""
        family = self._make(name, kind, text, ())
        family.add(value)
        return family

    def _make(
        self,
        name: str,
        kind: FamilyKind,
        text: str,
        label_names: Sequence[str],
        *,
        is_plain: bool = False,
        unit: int = SECONDS,
    ) -> Family:
        common = {} if is_plain else self._common
        most = self._series_max
        return Family(name, kind, text, label_names, common=common, series_max=most, unit=unit)


if TYPE_CHECKING:
    FamilySteps: TypeAlias = Iterator[Family | None]
    """Families as they are made; None where others may have their turn first."""
    FamilySource: TypeAlias = Callable[[FamilyMaker], FamilySteps]
    """Reads live state when somebody asks for metrics."""
