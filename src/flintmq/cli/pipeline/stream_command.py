"""``flintmq pipeline stream``: a job that goes on, from live topics to files, topics or here."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from flintmq.cli.output.console import write_line
from flintmq.cli.output.json_output import to_json
from flintmq.cli.output.text import plural, printable
from flintmq.cli.pipeline.input_options import live_source, source_option
from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_frame import JobOutcome, job_command
from flintmq.cli.pipeline.job_options import accept_loss_option, available_now_option
from flintmq.cli.pipeline.row_output import WRITERS, table_lines
from flintmq.spark.jobs.query.sql_shape import check_query_shape
from flintmq.spark.runtime.failures import LoggedError

if TYPE_CHECKING:
    from flintmq.spark.jobs.stream.stream_job import StreamJob, StreamProgress, StreamTarget
    from flintmq.spark.runtime.session_types import Table

CONSOLE: Final = "console"
TOPIC_PREFIX: Final = "topic:"
SHOWN_MAX: Final = 1000
"""Rows of one micro-batch that are shown."""

_LOOK_SECONDS: Final = 0.2
_SIGNAL_SECONDS: Final = 0.5
"""So much later this process may be told to end than Spark was."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@job_command("stream")
@click.argument("namesrv", metavar="NAMESRV")
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
@available_now_option
@accept_loss_option
def stream_command(
    job: Job,
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
) -> JobOutcome:
    """Follow live topics: filter, transform, aggregate and land their messages.

    The job goes on until it is interrupted (Ctrl-C, or SIGTERM); started again, it continues
    where it was.  With --window and no --sql, messages and bytes are counted by window and topic.
    """
    from flintmq.spark.jobs.stream.stream_job import StreamJob, StreamSettings, check_target

    settings = StreamSettings(
        sql=sql,
        window=window,
        late=late,
        checkpoint=None if checkpoint is None else str(checkpoint.absolute()),
        trigger_seconds=every,
        available_now=available_now,
    )
    source = live_source(namesrv, topics, extra, zone=job.zone)
    if sql is not None:
        check_query_shape(sql)
    rows_to = _target(target, job.zone, is_json=job.is_json)
    check_target(source, rows_to)
    with (
        stopping() as ended,
        job.session(progress=False) as spark,
        StreamJob(spark, source, rows_to, settings) as made,
    ):
        follow(made, ended, is_json=job.is_json)
    return JobOutcome(has_losses=bool(made.missing_count))


def _target(text: str, zone: tzinfo, *, is_json: bool) -> "StreamTarget":
    from flintmq.spark.jobs.stream.stream_job import StreamTarget

    if text == CONSOLE:
        return StreamTarget(rows=lambda table, _: _show(table, zone, is_json=is_json))
    if text.startswith(TOPIC_PREFIX):
        return StreamTarget(topic=text.removeprefix(TOPIC_PREFIX))
    return StreamTarget(parquet=str(Path(text).absolute()))


def _show(table: "Table", zone: tzinfo, *, is_json: bool) -> None:
    rows = table.limit(SHOWN_MAX).collect()
    if not rows:
        return
    if is_json:
        WRITERS["jsonl"](table.columns, iter(rows), sys.stdout, zone)
    else:
        for text in table_lines(table.columns, iter(rows), zone=zone):
            write_line(text)
    sys.stdout.flush()


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Yield an event that a signal sets: the job then ends in good order.

    A service manager sends the signal to all processes of a job.  So Spark may be gone before this
    process has told it to stop, and what fails then is no failure of the job: a batch that was
    under way is done again at the next start.
    """
    ended = threading.Event()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, lambda *_: ended.set())
    try:
        yield ended
    except LoggedError as error:
        if not ended.wait(_SIGNAL_SECONDS):
            raise
        click.echo(f"stopped: Spark has ended with the same signal ({error.reason})", err=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(job: "StreamJob", ended: threading.Event, *, is_json: bool) -> None:
    """Tell of each micro-batch until the job ends, by itself or by a signal."""
    batches = 0
    is_done = False
    if not is_json:
        click.echo(f"reading from {printable(job.start_text)}; Ctrl-C stops", err=True)
    while not is_done and not ended.is_set():
        is_done = job.wait(_LOOK_SECONDS)
        for one in job.progress():
            batches += 1
            click.echo(to_json(one) if is_json else _progress_text(one), err=True)
    words = (
        f"{plural(job.row_count, 'message')} in {batches} {'batch' if batches == 1 else 'batches'}"
    )
    words += _missing_text(job.missing_count)
    click.echo(f"{'ended' if is_done else 'stopped'}: {words}", err=True)


def _progress_text(one: "StreamProgress") -> str:
    return (
        f"batch {one.batch}: {plural(one.row_count, 'message')}, "
        f"{one.rows_per_second:.0f} a second, {one.behind} behind{_missing_text(one.missing)}"
    )


def _missing_text(count: int) -> str:
    """Return how many messages are missing; nothing if none is."""
    return f", at least {count} missing" if count else ""
