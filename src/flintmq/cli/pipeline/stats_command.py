"""``flintmq pipeline stats``: what is in stores or topics, as tables and as pictures."""

from collections.abc import Iterator
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final

import click

from flintmq.cli.output.json_output import with_members
from flintmq.cli.output.text import printable, size_text, time_text
from flintmq.cli.pipeline.input_options import (
    check_source,
    live_options,
    refuse_set_aside,
    stored_input,
)
from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_frame import JobOutcome, job_command
from flintmq.cli.pipeline.job_options import (
    absolute,
    on_corrupt_option,
    set_aside_option,
)
from flintmq.cli.pipeline.report_tables import Heads, table_texts
from flintmq.cli.pipeline.report_text import damage_lines
from flintmq.cli.pipeline.spark_extra import PLOT_PACKAGE, require_packages
from flintmq.spark.jobs.stats.stats_report import (
    TOP,
    TOP_MAX,
    RepeatedText,
    StatsReport,
    Top,
    Volume,
)

HOURS_SHOWN: Final = 24


@job_command("stats")
@click.argument("directories", metavar="[DIR...]", nargs=-1, callback=absolute)
@live_options
@on_corrupt_option
@set_aside_option
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
    job: Job,
    directories: tuple[str, ...],
    namesrv: str | None,
    topics: tuple[str, ...],
    extra: dict[str, str],
    on_corrupt: str,
    set_aside: bool,
    top: int,
    without_keys: bool,
    plot: Path | None,
) -> JobOutcome:
    """Measure topics, queues, tags, hours, sizes, lag, hot keys and duplicate ids.

    Either of store directories, or of live topics (--namesrv, --topic) as they are at the start.
    """
    from flintmq.spark.jobs.job_input import LiveInput
    from flintmq.spark.jobs.stats.topic_stats import StatsRequest, measure

    live = check_source(directories, namesrv, topics, extra, zone=job.zone)
    if live is not None:
        refuse_set_aside(set_aside)
        request = StatsRequest(source=LiveInput(live), top=top, keys=not without_keys)
    else:
        stored = stored_input(job, directories, on_corrupt, set_aside=set_aside)
        request = StatsRequest(source=stored, top=top, keys=not without_keys)
    if plot is not None:
        _check_plot(plot)
    with job.session() as spark:
        report = measure(spark, request)
    if plot is not None:
        from flintmq.spark.jobs.stats.stats_plot import plot_stats

        plot_stats(report, plot)
    return JobOutcome(
        report=with_members(report, complete=not report.damages.is_loss),
        lines=stats_lines(report, job.zone),
        has_losses=report.damages.is_loss,
    )


def _check_plot(path: Path) -> None:
    """Refuse what could only fail after the work is done."""
    require_packages(PLOT_PACKAGE)
    from flintmq.spark.jobs.stats.stats_plot import PlotError, check_plot_path

    try:
        check_plot_path(path)
    except PlotError as error:
        raise click.UsageError(printable(str(error))) from error
    if not path.absolute().parent.is_dir():
        raise click.UsageError(f"there is no {printable(str(path.absolute().parent))}")


def stats_lines(report: StatsReport, zone: tzinfo = UTC) -> Iterator[str]:
    """Yield the report as tables."""
    total = report.total
    for path in report.directories:
        yield f"store     {printable(path)}"
    yield f"messages  {total.message_count}, {size_text(total.byte_count)}{_rate(total)}"
    yield f"stored    {time_text(total.first_time, zone)} to {time_text(total.last_time, zone)}"
    yield (
        f"sizes     {total.size_min} to {total.size_max} bytes, median {total.size_median}, "
        f"mean {total.size_mean:.0f}"
    )
    yield from damage_lines(report.damages)
    for title, heads, rows, count in _tables(report, zone):
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


def _volume_cells(volume: Volume) -> list[str]:
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


def _rate(volume: Volume) -> str:
    return "" if volume.rate is None else f", {_plain(volume.rate)} a second"


def _tables(report: StatsReport, zone: tzinfo) -> Iterator[tuple[str, Heads, list[list[str]], int]]:
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
        [time_text(one.hour, zone), str(one.message_count), size_text(one.byte_count)]
        for one in last
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
    title: str, texts: Top[RepeatedText] | None
) -> Iterator[tuple[str, Heads, list[list[str]], int]]:
    if texts is None:
        return
    rows = [[one.topic, one.text, str(one.message_count)] for one in texts.items]
    yield title, ("topic", "text", ">messages"), rows, texts.count
