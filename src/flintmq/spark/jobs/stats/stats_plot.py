"""Pictures of a stats report: one PNG, or one HTML page that needs no other file.

The page is as wide as its window, light or dark as its reader wants it, and tells the value of a
bar when the mouse is over it.
"""

import html
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, NullFormatter

from flintmq.spark.jobs.stats.stats_report import StatsReport, Timeline
from flintmq.spark.jobs.stats.time_bins import HOUR_MS, bin_width, join_bins, width_text
from flintmq.spark.runtime.failures import JobError

BARS_MAX: Final = 20
"""So many bars have readable labels; the others are one bar together."""

LABEL_LENGTH_MAX: Final = 34
SUFFIXES: Final = (".png", ".html")
_BARS_ROOM: Final = 6
_SIZES_ROOM: Final = 1.5
_PANEL_SIZE: Final = (7.6, 4.4)
_DPI: Final = 110
_MORE_FONTS: Final = (
    "Noto Sans CJK SC",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Microsoft YaHei",
    "Arial Unicode MS",
)
_MESSAGES_COLOR: Final = "#2563a8"
_BYTES_COLOR: Final = "#2a8c6e"
_LAG_COLOR: Final = "#b8542a"
_REST_COLOR: Final = "#5f6b78"
_RC: Final[dict[Any, Any]] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "font.size": 9,
    "grid.color": "#e3e7eb",
    # Text stays text: it can be searched for, and is small.
    "svg.fonttype": "none",
    "svg.hashsalt": "flintmq",
    # A topic may hold a dollar sign; it is no formula.
    "text.parse_math": False,
}

# These two have no type hints.
_locator: Final[Any] = AutoDateLocator
_formatter: Final[Any] = ConciseDateFormatter

Panel = tuple[str, Callable[[Axes], None]]
Bars = Sequence[tuple[str, float]]


class PlotError(JobError):
    """A picture cannot be drawn as it was asked for."""


def check_plot_path(path: Path) -> None:
    """Raise PlotError unless the ending of ``path`` says what to draw."""
    if path.suffix.lower() not in SUFFIXES:
        raise PlotError(f"a plot is one of {', '.join(SUFFIXES)}, not {path.name!r}")


def plot_stats(report: StatsReport, path: Path, zone: tzinfo = UTC) -> None:
    """Draw a report; the ending of ``path`` says whether it becomes PNG or HTML."""
    check_plot_path(path)
    with mpl.rc_context(_RC | {"font.family": _fonts()}), warnings.catch_warnings():
        # A letter that no font has becomes a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        is_png = path.suffix.lower() == ".png"
        content = _png(report, zone) if is_png else _page(report, zone).encode()
    path.write_bytes(content)


def _fonts() -> list[str]:
    """Return the fonts to use one after the other: topics and tags come in all scripts."""
    installed = {font.name for font in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _MORE_FONTS if name in installed)]


def panels(report: StatsReport, zone: tzinfo = UTC) -> list[Panel]:
    """Return the pictures that a report has something for, with their titles."""
    topics, total, timeline = report.topics, report.total, _timeline_of(report)
    counts = [(one.topic, one.volume.message_count) for one in topics.items]
    sizes = sorted(
        ((one.topic, one.volume.byte_count) for one in topics.items), key=lambda one: -one[1]
    )
    found: list[Panel] = [
        (
            f"Messages stored per {width_text(timeline.width_ms)}",
            partial(_draw_timeline, timeline=timeline, zone=zone),
        ),
        (
            f"Messages by topic ({_of(topics.count, 'topic')})",
            partial(
                _draw_bars,
                values=counts,
                unit="messages",
                color=_MESSAGES_COLOR,
                total=total.message_count,
                count=topics.count,
            ),
        ),
        (
            "Bytes by topic",
            partial(
                _draw_bars,
                values=sizes,
                unit="bytes",
                color=_BYTES_COLOR,
                total=total.byte_count,
                count=topics.count,
            ),
        ),
        ("Size of records", partial(_draw_sizes, report=report)),
    ]
    return found + [
        (title, partial(_draw_bars, values=values, unit="messages", color=color))
        for title, values, color in _message_counts(report)
        if values
    ]


def _message_counts(report: StatsReport) -> Iterator[tuple[str, Bars, str]]:
    """Yield what else counts messages; what there is nothing of has no values."""
    tags = [
        (f"{one.topic}: {one.tag}", one.volume.message_count)
        for one in report.tags.items
        if one.tag is not None
    ]
    yield "Messages by tag", tags, _MESSAGES_COLOR
    lags = [(f"{one.group} on {one.topic}", one.lag) for one in report.lags.items if one.lag]
    yield "Lag of consumer groups", lags, _LAG_COLOR
    kinds = [(one.kind.value, one.message_count) for one in report.kinds]
    yield "Messages by kind of topic", kinds if len(kinds) > 1 else [], _MESSAGES_COLOR
    hot = report.hot_keys.items if report.hot_keys is not None else ()
    keys = [(f"{one.topic}: {one.text}", one.message_count) for one in hot]
    yield "Keys of several messages", keys, _LAG_COLOR


def _png(report: StatsReport, zone: tzinfo) -> bytes:
    found = panels(report, zone)
    rows = -(-len(found) // 2)
    width, height = _PANEL_SIZE
    figure = Figure(figsize=(2 * width, rows * height + 0.7), layout="constrained", dpi=_DPI)
    figure.suptitle(_heading(report, zone), fontsize=13, x=0.01, ha="left")
    grid = figure.subplots(rows, 2, squeeze=False)
    for axes, panel in zip(grid.flat, found, strict=False):
        _draw(axes, panel)
    for axes in list(grid.flat)[len(found) :]:
        axes.set_axis_off()
    return _saved(figure, "png")


_STYLE: Final = """
:root{color-scheme:light dark}
body{font-family:sans-serif;margin:1.5em;background:#fff;color:#1f2933}
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34em),1fr));gap:1em}
figure{margin:0;border:1px solid #8884;border-radius:6px;padding:.5em}
svg{display:block;width:100%;height:auto}
svg g:has(>title):hover path{opacity:.6}
@media (prefers-color-scheme:dark){
body{background:#14181d;color:#dde3ea}
svg{filter:invert(.92) hue-rotate(180deg)}
}
"""


def _page(report: StatsReport, zone: tzinfo) -> str:
    figures = "\n".join(f"<figure>{svg}</figure>" for svg in _svgs(report, zone))
    directories = "".join(f"<li>{html.escape(path)}</li>" for path in report.directories)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(_heading(report, zone))}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{html.escape(_heading(report, zone))}</h1><ul>{directories}</ul>"
        f"<main>\n{figures}\n</main></body></html>\n"
    )


def _svgs(report: StatsReport, zone: tzinfo) -> Iterator[str]:
    for panel in panels(report, zone):
        figure = Figure(figsize=_PANEL_SIZE, layout="constrained")
        _draw(figure.subplots(), panel)
        text = _saved(figure, "svg").decode()
        # What comes before the element belongs to a file of its own.
        yield _HOVER.sub(_titled, text[text.index("<svg") :])


_HOVER: Final = re.compile(r'<g id="hover-([0-9a-f]*)">')


def _hover(patch: Any, text: str) -> None:
    """Have a bar of a page tell a text when the mouse is over it; its id carries the text."""
    patch.set_gid(f"hover-{text.encode().hex()}")


def _titled(match: re.Match[str]) -> str:
    return f"<g><title>{html.escape(bytes.fromhex(match[1]).decode())}</title>"


def _saved(figure: Figure, form: str) -> bytes:
    target = io.BytesIO()
    # Without a date the same report gives the same bytes.
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    # The page has the background, light or dark.
    figure.savefig(target, format=form, metadata=metadata, transparent=form == "svg")
    return target.getvalue()


def _heading(report: StatsReport, zone: tzinfo) -> str:
    total = report.total
    count = _of(len(report.directories), "store", "stores")
    return (
        f"{total.message_count:,} messages, {_bytes(total.byte_count)} in {count}, "
        f"stored {_moment(total.first_time, zone)} to {_moment(total.last_time, zone)} {zone}"
    )


def _draw(axes: Axes, panel: Panel) -> None:
    title, draw = panel
    axes.set_title(title)
    draw(axes)


def _timeline_of(report: StatsReport) -> Timeline:
    """Return messages by time; a report that was not made for a picture has only hours."""
    if report.timeline is not None:
        return report.timeline
    hours = [(one.hour, one.message_count) for one in report.hours.items]
    width = max(HOUR_MS, bin_width(hours[0][0], hours[-1][0])) if hours else HOUR_MS
    return join_bins(hours, width)


def _draw_timeline(axes: Axes, timeline: Timeline, zone: tzinfo) -> None:
    axes.set_ylabel(f"messages per {width_text(timeline.width_ms)}")
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if not timeline.bins:
        return
    starts = [datetime.fromtimestamp(start / 1000, zone) for start, _ in timeline.bins]
    values, width = [count for _, count in timeline.bins], timedelta(milliseconds=timeline.width_ms)
    draw: Any = axes.bar
    bars = draw(starts, values, width, align="edge", color=_MESSAGES_COLOR)
    for bar, start, count in zip(bars, starts, values, strict=True):
        _hover(bar, f"{start.isoformat(timespec='seconds')}: {count:,} messages")
    axes.set_ylim(bottom=0)
    locator = _locator(tz=zone, minticks=2, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_formatter(locator, tz=zone))
    axes.set_xlabel(f"store time, {zone}")


def _draw_bars(
    axes: Axes, values: Bars, unit: str, color: str, *, total: float | None = None, count: int = 0
) -> None:
    """Draw bars from the top down.

    With a total, of ``count`` topics, it is said how much of it no bar shows.
    """
    shown = values[:BARS_MAX]
    scale, unit = _unit_of(max((value for _, value in shown), default=0), unit)
    bars = axes.barh(range(len(shown)), [value / scale for _, value in shown], 0.72, color=color)
    for bar, (name, value) in zip(bars, shown, strict=True):
        _hover(bar, f"{_label(name, None)}: {value:,.0f} {'bytes' if scale != 1 else unit}")
    # A few bars shall not fill the whole picture.
    axes.set_ylim(max(len(shown), _BARS_ROOM) - 0.4, -0.6)
    axes.set_yticks(range(len(shown)), [_label(name) for name, _ in shown], fontsize=8)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(unit)
    axes.xaxis.set_major_formatter(EngFormatter() if scale == 1 else FuncFormatter(_plain_tick))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=scale == 1))
    text = _bytes if unit.endswith("B") or unit == "bytes" else _count
    axes.bar_label(bars, [text(value) for _, value in shown], padding=3, fontsize=8)
    axes.margins(x=0.14)
    rest = 0 if total is None else total - sum(value for _, value in shown)
    if rest > 0:
        words = f"{_of(count - len(shown), 'other topic')}: {text(rest)}"
        axes.annotate(
            words, (0.99, 0.03), xycoords="axes fraction", ha="right", fontsize=9, color=_REST_COLOR
        )


def _unit_of(largest: float, unit: str) -> tuple[float, str]:
    """Return by what to divide, and what an axis counts then: ticks shall be round numbers."""
    if unit != "bytes":
        return 1, unit
    scale = 1.0
    for name in ("bytes", "KiB", "MiB", "GiB"):
        if largest < 1024 * scale:
            return scale, name
        scale *= 1024
    return scale, "TiB"


def _plain_tick(value: float, _position: int) -> str:
    return f"{value:g}"


def _draw_sizes(axes: Axes, report: StatsReport) -> None:
    sizes = report.sizes
    axes.set_xlabel("bytes of a whole record")
    axes.set_ylabel("messages")
    axes.yaxis.set_major_formatter(EngFormatter())
    if not sizes:
        return
    low, high = sizes[0].size_from, sizes[-1].size_to
    if high < _SIZES_ROOM * low:
        # Records of nearly one size: a bar in its surroundings says more than a bar alone.
        low, high = round(low / _SIZES_ROOM), round(high * _SIZES_ROOM)
    # About sixteen steps from a size to its double, and never finer than the classes are.
    steps = max(8, min(120, round(16 * np.log2(high / low))))
    edges = np.unique(np.round(np.geomspace(low, high, steps + 1)))
    middles = [(one.size_from + one.size_to - 1) / 2 for one in sizes]
    counts, _ = np.histogram(middles, edges, weights=[one.message_count for one in sizes])
    bars = axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=_BYTES_COLOR)
    for bar, start, end, count in zip(bars, edges[:-1], edges[1:], counts, strict=True):
        _hover(bar, f"{start:,.0f} to {end - 1:,.0f} bytes: {count:,.0f} messages")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _bytes(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(bottom=0)
    median = report.total.size_median
    axes.axvline(median, color=_LAG_COLOR, linewidth=1.2)
    axes.annotate(
        f" median {_bytes(median)}",
        (median, 1),
        xycoords=("data", "axes fraction"),
        va="top",
        fontsize=8,
        color=_LAG_COLOR,
    )


def _label(name: str, length_max: int | None = LABEL_LENGTH_MAX) -> str:
    plain = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name
    )
    if length_max is None or len(plain) <= length_max:
        return plain
    # Long names mostly differ at their ends.
    half = (length_max - 1) // 2
    return f"{plain[:half]}…{plain[-half:]}"


def _of(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def _count(value: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == ' k' else size):.3g}{unit}"
    return f"{value:,.0f}"


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.3g} {unit}" if unit != "B" else f"{value:.0f} B"
        value /= 1024
    return f"{value:.3g} TiB"


def _moment(milliseconds: int | None, zone: tzinfo) -> str:
    if milliseconds is None:
        return "-"
    return f"{datetime.fromtimestamp(milliseconds / 1000, zone):%Y-%m-%d %H:%M}"
