"""``flintmq pipeline copy``: topics of one cluster, copied to another and kept up."""

from pathlib import Path

import click

from flintmq.cli.output.text import printable
from flintmq.cli.pipeline.input_options import live_source, secrets, source_option
from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_frame import JobOutcome, job_command
from flintmq.cli.pipeline.job_options import accept_loss_option, available_now_option, rate_option
from flintmq.cli.pipeline.replay_command import rename_option, renamed, sink_option, target_option
from flintmq.cli.pipeline.stream_command import follow, stopping


@job_command("copy")
@click.argument("namesrv", metavar="NAMESRV")
@target_option
@rename_option
@source_option
@sink_option
@click.option(
    "--state",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to keep how far it has come: started again, it goes on.",
)
@rate_option
@available_now_option
@accept_loss_option
def copy_command(
    job: Job,
    namesrv: str,
    target: str,
    topics: tuple[str, ...],
    extra: dict[str, str],
    sink: dict[str, str],
    state: Path,
    rate: int | None,
    available_now: bool,
) -> JobOutcome:
    """Copy topics to another cluster, in the order of each queue, and go on as they grow.

    Topics that the other cluster does not have are made with as many queues.  The job goes on
    until it is interrupted (Ctrl-C, or SIGTERM).
    """
    from flintmq.spark.jobs.replay.topic_copy import CopyJob, CopyRequest

    if not topics:
        raise click.UsageError("--topic says what is to be copied")
    request = CopyRequest(
        source=live_source(namesrv, (), extra, zone=job.zone),
        target={"namesrv": target, **secrets(), **sink},
        topics=renamed(topics),
        state=state.absolute(),
        rate=rate,
        available_now=available_now,
    )
    with (
        stopping() as ended,
        job.session(progress=False) as spark,
        CopyJob(spark, request) as made,
    ):
        for topic in made.made_topics:
            click.echo(f"made topic {printable(topic)}", err=True)
        follow(made, ended, is_json=job.is_json)
    return JobOutcome(has_losses=bool(made.missing_count))
