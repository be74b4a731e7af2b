"""How cost grows: ``python -m bench.scale``, or ``make bench-scale``.

Measures one subject after the other at several amounts (`bench.scale_subjects`), prints a table of
each, draws a picture of each into ``--pictures`` and writes JSON where asked.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import matplotlib as mpl
from rich.console import Console
from rich.table import Table

from bench import scale_namesrv, scale_restart, scale_subjects
from bench.scale_server import Point

mpl.use("svg")


class Subject(NamedTuple):
    """Something whose cost is measured at several amounts."""

    name: str
    axis: str
    amounts: tuple[int, ...]
    measure: Callable[[Path, int], Point]


SUBJECTS: Final = (
    Subject("topics", "topics", (1000, 2500, 5000, 10_000), scale_subjects.topics),
    Subject("queues", "queues", (5000, 10_000, 25_000, 50_000), scale_subjects.queues),
    Subject(
        "connections", "connections", (1000, 2500, 5000, 10_000, 18_000), scale_subjects.connections
    ),
    Subject(
        "bodies",
        "bytes of a body",
        (10, 100, 1000, 10_000, 100_000, 1_000_000, 4_000_000),
        scale_subjects.bodies,
    ),
    Subject("log", "messages", (500_000, 2_000_000, 8_000_000), scale_subjects.log),
    Subject("large-log", "GiB of log", (1, 4, 10), scale_subjects.large_log),
    Subject("restart", "messages", (1_000_000, 3_000_000, 10_000_000), scale_restart.restart),
    Subject("brokers", "brokers", (100, 300, 1000), scale_namesrv.brokers),
)


def measure(subject: Subject, largest: int, console: Console) -> list[Point]:
    """Return the points of a subject, up to the largest amount that is wanted."""
    points = []
    for amount in subject.amounts:
        if amount > largest:
            break
        with tempfile.TemporaryDirectory(prefix="flintmq-scale-") as work:
            points.append(subject.measure(Path(work), amount))
        console.print(f"{subject.name} {amount:,}: {_told(points[-1].measured)}")
    return points


def _told(measured: dict[str, float]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in measured.items())


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(subject: Subject, points: Sequence[Point], console: Console) -> None:
    """Print what was measured, a value a row."""
    table = Table(subject.axis, *(f"{point.amount:,}" for point in points))
    for name in points[0].measured:
        table.add_row(name, *(_short(point.measured[name]) for point in points))
    console.print(table)


def draw(subject: Subject, points: Sequence[Point], path: Path) -> None:
    """Draw a small picture for each measured value; a dashed line is what proportion would give."""
    from matplotlib import pyplot

    names = list(points[0].measured)
    figure, axes = pyplot.subplots(1, len(names), figsize=(3.2 * len(names), 2.8), squeeze=False)
    amounts = [point.amount for point in points]
    for axis, name in zip(axes[0], names, strict=True):
        values = [point.measured[name] for point in points]
        axis.plot(amounts, values, marker="o")
        axis.plot(amounts, [values[0] * each / amounts[0] for each in amounts], "--", lw=0.8)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel(subject.axis, fontsize=8)
        axis.tick_params(labelsize=7)
        axis.set_ylim(0, max(values) * 1.2 or 1)
        if amounts[-1] / amounts[0] > 100:
            axis.set_xscale("log")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Measure, tell and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[subject.name for subject in SUBJECTS])
    parser.add_argument("--largest", type=int, default=1 << 60, help="no larger amounts than this")
    parser.add_argument("--pictures", type=Path, help="a directory for pictures")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console = Console()
    found = {}
    for subject in SUBJECTS:
        if arguments.only in (None, subject.name):
            points = measure(subject, arguments.largest, console)
            show(subject, points, console)
            found[subject.name] = [point._asdict() for point in points]
            if arguments.pictures is not None:
                arguments.pictures.mkdir(parents=True, exist_ok=True)
                draw(subject, points, arguments.pictures / f"scale-{subject.name}.svg")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
