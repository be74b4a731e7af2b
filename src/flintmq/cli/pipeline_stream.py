"""``flintmq pipeline stream``: a job that goes on, from live topics to files, topics or here."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_USAGE
from flintmq.cli.json_output import to_json
from flintmq.cli.output import write_line
from flintmq.cli.pipeline_live import live_source, source_option
from flintmq.cli.pipeline_options import JobOptions, job_options, load_extra
from flintmq.cli.pipeline_rows import WRITERS, table_lines
from flintmq.cli.text import plural, printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flintmq.spark.jobs.stream import StreamJob, StreamProgress

CONSOLE: Final = "console"
TOPIC_PREFIX: Final = "topic:"
SHOWN_MAX: Final = 1000
"""Rows of one micro-batch that are shown."""

_LOOK_SECONDS: Final = 0.2
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StreamUsageError(click.ClickException):
    """The query is wrong; the way it was given is not."""

    exit_code = EXIT_USAGE


@click.command("stream")
@click.argument("namesrv", metavar="NAMESRV")
@job_options
@click.option("--topic", "topics", multiple=True, required=True, help="Repeatable.")
@source_option
@click.option(
    "--to",
    "target",
    required=True,
    metavar="DIR|topic:NAME|console",
    help="A directory for Parquet files, a topic of the same cluster, or this terminal.",
)
@click.option("--sql", metavar="SQL", help="A query over the view messages.")
@click.option(
    "--window",
    metavar="LENGTH",
    help="Give messages a column window of this length, such as '1 minute', to GROUP BY.",
)
@click.option("--late", metavar="LENGTH", help="How late a message may be for its window.")
@click.option(
    "--checkpoint",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to keep how far the job has come; a topic needs one, files have their own.",
)
@click.option("--every", type=click.FloatRange(min=0), metavar="SECONDS", help="Of micro-batches.")
@click.option("--available-now", is_flag=True, help="End with what is there at the start.")
def stream_command(
    job: JobOptions,
    namesrv: str,
    topics: tuple[str, ...],
    extra: dict[str, str],
    target: str,
    sql: str | None,
    window: str | None,
    late: str | None,
    checkpoint: Path | None,
    every: float | None,
    available_now: bool,
) -> int:
    """Follow live topics: filter, transform, aggregate and land their messages.

    The job goes on until it is interrupted (Ctrl-C, or SIGTERM); started again, it continues
    where it was.  With --window and no --sql, messages and bytes are counted by window and topic.
    """
    jobs = load_extra("flintmq.spark.jobs.stream")
    failures = load_extra("flintmq.spark.failures")
    settings = jobs.StreamSettings(
        sql=sql,
        window=window,
        late=late,
        checkpoint=None if checkpoint is None else str(checkpoint.absolute()),
        trigger_seconds=every,
        available_now=available_now,
    )
    source = live_source(namesrv, topics, extra)
    with stopping() as ended, job.session("stream", progress=False) as spark:
        try:
            made = jobs.StreamJob(spark, source, _target(jobs, target, job), settings)
        except failures.SqlError as error:
            raise StreamUsageError(printable(str(error))) from error
        with made:
            follow(made, ended, is_json=job.is_json)
    return EXIT_FINE


def _target(jobs: Any, text: str, job: JobOptions) -> Any:
    if text == CONSOLE:
        return jobs.StreamTarget(rows=lambda table, _: _show(table, is_json=job.is_json))
    if text.startswith(TOPIC_PREFIX):
        return jobs.StreamTarget(topic=text.removeprefix(TOPIC_PREFIX))
    return jobs.StreamTarget(parquet=str(Path(text).absolute()))


def _show(table: "DataFrame", *, is_json: bool) -> None:
    rows = table.limit(SHOWN_MAX).collect()
    if not rows:
        return
    if is_json:
        WRITERS["jsonl"](table.columns, iter(rows), sys.stdout)
    else:
        for text in table_lines(table.columns, iter(rows)):
            write_line(text)
    sys.stdout.flush()


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Yield an event that a signal sets: the job then ends in good order."""
    ended = threading.Event()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, lambda *_: ended.set())
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(job: "StreamJob", ended: threading.Event, *, is_json: bool) -> None:
    """Tell of each micro-batch until the job ends, by itself or by a signal."""
    batches = 0
    is_done = False
    while not is_done and not ended.is_set():
        is_done = job.wait(_LOOK_SECONDS)
        for one in job.progress():
            batches += 1
            click.echo(to_json(one) if is_json else _progress_text(one), err=True)
    words = (
        f"{plural(job.row_count, 'message')} in {batches} {'batch' if batches == 1 else 'batches'}"
    )
    click.echo(f"{'ended' if is_done else 'stopped'}: {words}", err=True)


def _progress_text(one: "StreamProgress") -> str:
    return (
        f"batch {one.batch}: {plural(one.row_count, 'message')}, "
        f"{one.rows_per_second:.0f} a second, {one.behind} behind"
    )
