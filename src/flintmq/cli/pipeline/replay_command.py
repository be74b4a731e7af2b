"""``flintmq pipeline replay``: stored messages, sent to a cluster again."""

from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintmq.cli.output.text import plural, printable, time_text
from flintmq.cli.pipeline.input_options import check_paths, secrets
from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_frame import JobOutcome, job_command
from flintmq.cli.pipeline.job_options import absolute, on_corrupt_option, parse_pairs, rate_option
from flintmq.cli.pipeline.report_tables import table_texts
from flintmq.cli.pipeline.report_text import damage_lines
from flintmq.spark.jobs.query.sql_shape import check_condition_shape

if TYPE_CHECKING:
    from flintmq.spark.jobs.replay.message_replay import ReplayReport

target_option = click.option(
    "--to",
    "target",
    required=True,
    metavar="NAMESRV",
    help="The name servers of the cluster to send to; several with ';'.",
)
sink_option = click.option(
    "--sink-option",
    "sink",
    multiple=True,
    callback=parse_pairs,
    metavar="NAME=VALUE",
    help="An option of the sink, such as sendTimeoutMs; repeatable.",
)
rename_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[=NEW]",
    help="Only this topic, maybe under another name; repeatable.",
)


@job_command("replay")
@click.argument("sources", metavar="ARCHIVE|DIR...", nargs=-1, required=True, callback=absolute)
@on_corrupt_option
@target_option
@rename_option
@sink_option
@click.option("--from", "start", metavar="TIME", help="Stored then or later: ISO, or ms.")
@click.option("--until", "end", metavar="TIME", help="Stored before.")
@click.option("--where", metavar="SQL", help="A condition over the columns of messages.")
@rate_option
@click.option(
    "--state",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to keep how far it has come: started again, it goes on.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be sent, and send nothing.")
def replay_command(
    job: Job,
    sources: tuple[str, ...],
    on_corrupt: str,
    target: str,
    topics: tuple[str, ...],
    sink: dict[str, str],
    start: str | None,
    end: str | None,
    where: str | None,
    rate: int | None,
    state: Path | None,
    dry_run: bool,
) -> JobOutcome:
    """Send the messages of an archive or of stores to a cluster, in the order of each queue.

    Topics that the cluster does not have are made.  Without --topic all topics are sent but
    those of retries, dead letters, delays and transactions.
    """
    from flintmq.spark.jobs.replay.message_replay import ReplayRequest, replay
    from flintmq.spark.options.store_options import OnCorrupt
    from flintmq.spark.sink.sink_options import parse_sink_options

    check_paths(sources, allows_archive=True)
    if where is not None:
        check_condition_shape(where)
    request = ReplayRequest(
        sources=sources,
        topics=renamed(topics),
        start_ms=_time("--from", start, job.zone),
        end_ms=_time("--until", end, job.zone),
        where=where,
        rate=rate,
        on_corrupt=OnCorrupt(on_corrupt),
    )
    cluster = {"namesrv": target, **secrets(), **sink}
    # A wrong option of the sink is told before Spark is started.
    parse_sink_options(cluster)
    with job.session() as spark:
        report = replay(
            spark,
            request,
            cluster,
            state=None if state is None else state.absolute(),
            dry_run=dry_run,
        )
    return JobOutcome(
        report=report, lines=_replay_lines(report, job.zone), has_losses=report.damages.is_loss
    )


def renamed(texts: tuple[str, ...]) -> dict[str, str]:
    """Return topics with the names that they get; UsageError if one is named twice."""
    found: dict[str, str] = {}
    for text in texts:
        topic, sign, new = text.partition("=")
        if topic in found:
            raise click.UsageError(f"--topic {printable(topic)} is given twice")
        if not topic or (sign and not new):
            raise click.UsageError(f"--topic is TOPIC or TOPIC=NEW, not {printable(text)!r}")
        found[topic] = new or topic
    return found


def _time(name: str, text: str | None, zone: tzinfo) -> int | None:
    from flintmq.spark.errors import OptionError
    from flintmq.spark.options.option_values import parse_time

    if text is None:
        return None
    try:
        return parse_time(name, {name: text}, zone)
    except OptionError as error:
        raise click.UsageError(printable(str(error))) from error


def _replay_lines(report: "ReplayReport", zone: tzinfo) -> Iterator[str]:
    rows = [
        (
            one.topic,
            one.target,
            str(one.message_count),
            str(one.queue_count),
            time_text(one.first_ms, zone),
            time_text(one.last_ms, zone),
        )
        for one in report.topics
    ]
    heads = ("topic", "to", ">messages", ">queues", "first", "last")
    yield from table_texts("topics", heads, rows, len(rows))
    yield from damage_lines(report.damages)
    words = plural(report.message_count, "message")
    if report.is_dry_run:
        yield f"{words} would be sent"
        return
    for topic in report.made_topics:
        yield f"made topic {printable(topic)}"
    how = "went on: " if report.is_resumed else ""
    batches = "batch" if report.batch_count == 1 else "batches"
    yield f"{how}{words}, {report.batch_count} {batches} sent now, all acknowledged"
