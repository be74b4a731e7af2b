"""Draws a run as SVG: rate, latency, memory and descriptors over time, with the faults behind."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from soak.measures import Fault, Measures

WIDTH: Final = 1000
_LEFT, _RIGHT, _TOP = 70, 20, 58
_PANEL_HEIGHT, _GAP = 130, 34
_POINT_COUNT_MAX: Final = 600
"""Points of one line; of more, the highest of each group is drawn."""

Points = Sequence[tuple[float, float]]

FAULT_COLOURS: Final = {
    "kill": "#d62728",
    "stop": "#ff7f0e",
    "restart": "#8c564b",
    "full disk": "#9467bd",
    "slow disk": "#17becf",
    "cut": "#bcbd22",
    "name server": "#7f7f7f",
    "admin": "#2ca02c",
}
_LINE_COLOURS: Final = ("#1f77b4", "#e377c2", "#444444", "#2ca02c")


class Panel(NamedTuple):
    """One diagram of the picture."""

    title: str
    lines: Mapping[str, Points]
    is_log: bool = False
    budget: float | None = None


def panels(measures: Measures, *, memory_mib: float, descriptors: float) -> list[Panel]:
    """Return what is drawn of a run."""
    ours, java = measures.latencies("ours"), measures.latencies("java")
    broker = measures.samples["broker"]
    return [
        Panel(
            "acknowledged sends in 10 s",
            {
                "ours": [(one.middle, one.sent_count) for one in ours],
                "Java": [(one.middle, one.sent_count) for one in java],
                "not acknowledged": [(one.middle, one.failed_count) for one in ours],
            },
        ),
        Panel(
            "latency of our sends, ms",
            {
                "p50": [(one.middle, one.p50_ms) for one in ours if one.sent_count],
                "p99": [(one.middle, one.p99_ms) for one in ours if one.sent_count],
                "worst": [(one.middle, one.worst_ms) for one in ours if one.sent_count],
            },
            is_log=True,
        ),
        Panel(
            "memory of the broker, MiB without mapped files",
            {"broker": [(one.second, one.own_mib) for one in broker]},
            budget=memory_mib,
        ),
        Panel(
            "descriptors of the broker",
            {"broker": [(one.second, one.descriptor_count) for one in broker]},
            budget=descriptors,
        ),
    ]


def draw(path: Path, title: str, drawn: Sequence[Panel], faults: Iterable[Fault]) -> None:
    """Write the picture."""
    listed = list(faults)
    seconds = max(
        [x for panel in drawn for points in panel.lines.values() for x, _ in points]
        + [fault.end for fault in listed],
        default=1,
    )
    height = _TOP + len(drawn) * (_PANEL_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
        *_legend(listed),
    ]
    for number, panel in enumerate(drawn):
        top = _TOP + number * (_PANEL_HEIGHT + _GAP) + 14
        parts += _panel(panel, top, max(seconds, 1), listed)
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def _legend(faults: list[Fault]) -> Iterable[str]:
    kinds = [kind for kind in FAULT_COLOURS if any(fault.kind == kind for fault in faults)]
    for number, kind in enumerate(kinds):
        x = _LEFT + number * 110
        yield f'<rect x="{x}" y="32" width="12" height="12" fill="{FAULT_COLOURS[kind]}"/>'
        yield f'<text x="{x + 17}" y="42">{escape(kind)}</text>'


def _panel(panel: Panel, top: float, seconds: float, faults: list[Fault]) -> Iterable[str]:
    width = WIDTH - _LEFT - _RIGHT

    def place_x(second: float) -> float:
        return _LEFT + width * second / seconds

    values = [value for points in panel.lines.values() for _, value in points]
    highest = max([*values, panel.budget or 0, 1])
    place_y, ticks = _scale(highest, top, is_log=panel.is_log)
    for fault in faults:
        x, end = place_x(fault.begin), place_x(fault.end)
        colour = FAULT_COLOURS.get(fault.kind, "#000000")
        yield (
            f'<rect x="{x:.1f}" y="{top}" width="{max(end - x, 1):.1f}" '
            f'height="{_PANEL_HEIGHT}" fill="{colour}" opacity="0.25"/>'
        )
    yield f'<text x="{_LEFT}" y="{top - 5}" font-weight="bold">{escape(panel.title)}</text>'
    for tick in ticks:
        y = place_y(tick)
        yield f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" stroke="#dddddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    for share in range(5):
        second = seconds * share / 4
        text = f"{second / 60:.1f} min" if share == 4 else f"{second / 60:.1f}"
        anchor = "end" if share == 4 else "middle"
        y = top + _PANEL_HEIGHT + 13
        yield f'<text x="{place_x(second):.1f}" y="{y}" text-anchor="{anchor}">{text}</text>'
    if panel.budget is not None:
        y = place_y(panel.budget)
        dashed = 'stroke="#d62728" stroke-dasharray="4 3"'
        yield f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" {dashed}/>'
    for number, (name, points) in enumerate(panel.lines.items()):
        colour = _LINE_COLOURS[number % len(_LINE_COLOURS)]
        path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in thinned(points))
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
        x = WIDTH - _RIGHT - 110 * (len(panel.lines) - number)
        yield f'<text x="{x}" y="{top - 5}" fill="{colour}">{escape(name)}</text>'


def thinned(points: Points) -> Points:
    """Return at most about _POINT_COUNT_MAX points: the highest of each group."""
    step = math.ceil(len(points) / _POINT_COUNT_MAX)
    if step <= 1:
        return points
    groups = (points[at : at + step] for at in range(0, len(points), step))
    return [max(group, key=lambda point: point[1]) for group in groups]


def _scale(
    highest: float, top: float, *, is_log: bool
) -> tuple[Callable[[float], float], list[float]]:
    """Return where a value stands, and the values that are written beside the axis."""
    bottom = top + _PANEL_HEIGHT
    if is_log:
        decades = max(math.ceil(math.log10(highest)), 1) + 1

        def place(value: float) -> float:
            return bottom - _PANEL_HEIGHT * (math.log10(max(value, 0.1)) + 1) / decades

        return place, [10.0**power for power in range(-1, decades)]
    step = _round_step(highest / 4)
    limit = step * math.ceil(highest / step)
    ticks = [step * number for number in range(round(limit / step) + 1)]
    return (lambda value: bottom - _PANEL_HEIGHT * value / limit), ticks


def _round_step(wanted: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least as large as wanted."""
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted)
