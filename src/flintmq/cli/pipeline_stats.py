"""``flintmq pipeline stats``: what is in stores or topics, as tables and as pictures."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.json_output import to_json
from flintmq.cli.output import write_line
from flintmq.cli.pipeline_live import check_source, live_options
from flintmq.cli.pipeline_options import (
    JobOptions,
    absolute,
    job_options,
    load_extra,
    on_corrupt_mode,
    on_corrupt_option,
    quick_check,
)
from flintmq.cli.pipeline_tables import Heads, table_texts
from flintmq.cli.pipeline_text import damage_lines
from flintmq.cli.text import printable, size_text, time_text

if TYPE_CHECKING:
    from flintmq.spark.jobs.stats_report import RepeatedText, StatsReport, Top, Volume

TOP: Final = 20
TOP_MAX: Final = 10_000
HOURS_SHOWN: Final = 24


@click.command("stats")
@click.argument("directories", metavar="[DIR...]", nargs=-1, callback=absolute)
@job_options
@live_options
@on_corrupt_option
@click.option(
    "--top",
    type=click.IntRange(1, TOP_MAX),
    default=TOP,
    show_default=True,
    help="How many topics, queues, tags, groups and keys to list.",
)
@click.option(
    "--without-keys",
    is_flag=True,
    help="Count neither keys nor unique ids: saves a scan and a shuffle of all of them.",
)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw them too: .png, or .html for a page that needs no other file.",
)
def stats_command(
    job: JobOptions,
    directories: tuple[str, ...],
    namesrv: str | None,
    topics: tuple[str, ...],
    extra: dict[str, str],
    on_corrupt: str,
    top: int,
    without_keys: bool,
    plot: Path | None,
) -> int:
    """Measure topics, queues, tags, hours, sizes, lag, hot keys and duplicate ids.

    Either of store directories, or of live topics (--namesrv, --topic) as they are at the start.
    """
    live = check_source(directories, namesrv, topics, extra)
    jobs = load_extra("flintmq.spark.jobs.stats")
    if live is None:
        quick_check(directories)
    if plot is not None:
        _check_plot(plot)
    with job.session("stats") as spark:
        report: StatsReport
        if live is not None:
            report = jobs.live_stats(spark, live, top=top, keys=not without_keys)
        else:
            report = jobs.stats(
                spark,
                directories,
                top=top,
                keys=not without_keys,
                on_corrupt=on_corrupt_mode(on_corrupt),
                splits_min=job.parallelism,
            )
    if plot is not None:
        load_extra("flintmq.spark.jobs.stats_plot").plot_stats(report, plot)
    if job.is_json:
        write_line(to_json(report))
    else:
        for text in stats_lines(report):
            write_line(text)
    return EXIT_PROBLEMS if report.damages.count else EXIT_FINE


def _check_plot(path: Path) -> None:
    """Refuse what could only fail after the work is done."""
    plots = load_extra("flintmq.spark.jobs.stats_plot")
    try:
        plots.check_plot_path(path)
    except plots.PlotError as error:
        raise click.UsageError(printable(str(error))) from error
    if not path.absolute().parent.is_dir():
        raise click.UsageError(f"there is no {printable(str(path.absolute().parent))}")


def stats_lines(report: "StatsReport") -> Iterator[str]:
    """Yield the report as tables."""
    total = report.total
    for path in report.directories:
        yield f"store     {printable(path)}"
    yield f"messages  {total.message_count}, {size_text(total.byte_count)}{_rate(total)}"
    yield f"stored    {time_text(total.first_time)} to {time_text(total.last_time)}"
    yield (
        f"sizes     {total.size_min} to {total.size_max} bytes, median {total.size_median}, "
        f"mean {total.size_mean:.0f}"
    )
    yield from damage_lines(report.damages)
    for title, heads, rows, count in _tables(report):
        yield from table_texts(title, heads, rows, count)


_VOLUME: Final[Heads] = (
    ">messages",
    ">bytes",
    ">min",
    ">median",
    ">mean",
    ">max",
    ">per second",
)


def _volume_cells(volume: "Volume") -> list[str]:
    rate = volume.rate
    return [
        str(volume.message_count),
        size_text(volume.byte_count),
        str(volume.size_min),
        str(volume.size_median),
        f"{volume.size_mean:.0f}",
        str(volume.size_max),
        "-" if rate is None else _plain(rate),
    ]


def _plain(rate: float) -> str:
    """Write a rate without an exponent: large ones as whole numbers."""
    return f"{rate:.0f}" if rate >= 1000 else f"{rate:.4g}"


def _rate(volume: "Volume") -> str:
    return "" if volume.rate is None else f", {_plain(volume.rate)} a second"


def _tables(report: "StatsReport") -> Iterator[tuple[str, Heads, list[list[str]], int]]:
    """Yield title, heads, rows and the number of rows there are in all, table by table."""
    kinds = [
        [one.kind.value, str(one.topic_count), str(one.message_count), size_text(one.byte_count)]
        for one in report.kinds
    ]
    yield "kinds of topics", ("kind", ">topics", ">messages", ">bytes"), kinds, len(kinds)
    topics = [
        [one.topic, str(one.queue_count), str(one.peak_hour_count), *_volume_cells(one.volume)]
        for one in report.topics.items
    ]
    yield "topics", ("topic", ">queues", ">in peak hour", *_VOLUME), topics, report.topics.count
    queues = [
        [one.path, one.topic, str(one.queue_id), *_volume_cells(one.volume)]
        for one in report.queues.items
    ]
    yield "queues", ("store", "topic", ">queue", *_VOLUME), queues, report.queues.count
    tags = [
        [one.topic, "-" if one.tag is None else one.tag, *_volume_cells(one.volume)]
        for one in report.tags.items
    ]
    yield "tags", ("topic", "tag", *_VOLUME), tags, report.tags.count
    last = report.hours.items[-HOURS_SHOWN:]
    hours = [
        [time_text(one.hour), str(one.message_count), size_text(one.byte_count)] for one in last
    ]
    yield "last hours", ("hour", ">messages", ">bytes"), hours, report.hours.count
    lags = [
        [one.path, one.group, one.topic, str(one.queue_count), str(one.lag)]
        for one in report.lags.items
    ]
    yield "groups", ("store", "group", "topic", ">queues", ">lag"), lags, report.lags.count
    yield from _repeated_table("keys of several messages", report.hot_keys)
    yield from _repeated_table("duplicate unique ids", report.duplicate_ids)


def _repeated_table(
    title: str, texts: "Top[RepeatedText] | None"
) -> Iterator[tuple[str, Heads, list[list[Any]], int]]:
    if texts is None:
        return
    rows = [[one.topic, one.text, str(one.message_count)] for one in texts.items]
    yield title, ("topic", "text", ">messages"), rows, texts.count
