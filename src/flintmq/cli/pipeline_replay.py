"""``flintmq pipeline replay``: stored messages, sent to a cluster again."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.json_output import to_json
from flintmq.cli.output import write_line
from flintmq.cli.pipeline_live import secrets
from flintmq.cli.pipeline_options import (
    JobOptions,
    absolute,
    job_options,
    load_extra,
    on_corrupt_mode,
    on_corrupt_option,
    parse_pairs,
    quick_check,
)
from flintmq.cli.pipeline_query import SqlUsageError
from flintmq.cli.pipeline_tables import table_texts
from flintmq.cli.text import plural, printable

if TYPE_CHECKING:
    from flintmq.spark.jobs.replay import ReplayReport

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


@click.command("replay")
@click.argument("sources", metavar="ARCHIVE|DIR...", nargs=-1, required=True, callback=absolute)
@job_options
@on_corrupt_option
@target_option
@rename_option
@sink_option
@click.option("--from", "start", metavar="TIME", help="Stored then or later: ISO, or ms.")
@click.option("--until", "end", metavar="TIME", help="Stored before.")
@click.option("--where", metavar="SQL", help="A condition over the columns of messages.")
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="Messages a second, at most.")
@click.option(
    "--state",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to keep how far it has come: started again, it goes on.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be sent, and send nothing.")
def replay_command(
    job: JobOptions,
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
) -> int:
    """Send the messages of an archive or of stores to a cluster, in the order of each queue.

    Topics that the cluster does not have are made.  Without --topic all topics are sent but
    those of retries, dead letters, delays and transactions.
    """
    jobs = load_extra("flintmq.spark.jobs.replay")
    failures = load_extra("flintmq.spark.failures")
    is_archive = load_extra("flintmq.spark.jobs.query_views").is_archive
    if not any(map(is_archive, sources)):
        quick_check(sources)
    request = jobs.ReplayRequest(
        sources=sources,
        topics=renamed(topics),
        start_ms=_time("--from", start),
        end_ms=_time("--until", end),
        where=where,
        rate=rate,
        on_corrupt=on_corrupt_mode(on_corrupt),
    )
    cluster = {"namesrv": target, **secrets(), **sink}
    # A wrong option of the sink is told before Spark is started.
    load_extra("flintmq.spark.live.sink_options").parse_sink_options(cluster)
    with job.session("replay") as spark:
        try:
            report: ReplayReport = jobs.replay(
                spark,
                request,
                cluster,
                state=None if state is None else state.absolute(),
                dry_run=dry_run,
            )
        except failures.SqlError as error:
            raise SqlUsageError(printable(str(error))) from error
    _tell(report, is_json=job.is_json)
    return EXIT_FINE


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


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    values = load_extra("flintmq.spark.option_values")
    errors = load_extra("flintmq.spark.errors")
    try:
        moment: int | None = values.parse_time(name, {name: text})
    except errors.OptionError as error:
        raise click.UsageError(printable(str(error))) from error
    return moment


def _tell(report: "ReplayReport", *, is_json: bool) -> None:
    if is_json:
        write_line(to_json(report))
        return
    rows = [
        (
            one.topic,
            one.target,
            str(one.message_count),
            str(one.queue_count),
            _moment(one.first_ms),
            _moment(one.last_ms),
        )
        for one in report.topics
    ]
    heads = ("topic", "to", ">messages", ">queues", "first", "last")
    for line in table_texts("topics", heads, rows, len(rows)):
        write_line(line)
    words = plural(report.message_count, "message")
    if report.is_dry_run:
        write_line(f"{words} would be sent")
        return
    for topic in report.made_topics:
        write_line(f"made topic {printable(topic)}")
    how = "went on: " if report.is_resumed else ""
    batches = "batch" if report.batch_count == 1 else "batches"
    write_line(f"{how}{words}, {report.batch_count} {batches} sent now, all acknowledged")


def _moment(ms: int | None) -> str:
    if ms is None:
        return ""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
