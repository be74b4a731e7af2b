"""``flintmq pipeline copy``: topics of one cluster, copied to another and kept up."""

from pathlib import Path

import click

from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.pipeline_live import live_source, secrets, source_option
from flintmq.cli.pipeline_options import JobOptions, job_options, load_extra
from flintmq.cli.pipeline_replay import rename_option, renamed, sink_option, target_option
from flintmq.cli.pipeline_stream import follow, stopping
from flintmq.cli.text import printable


@click.command("copy")
@click.argument("namesrv", metavar="NAMESRV")
@job_options
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
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="Messages a second, at most.")
@click.option("--available-now", is_flag=True, help="End with what is there at the start.")
def copy_command(
    job: JobOptions,
    namesrv: str,
    target: str,
    topics: tuple[str, ...],
    extra: dict[str, str],
    sink: dict[str, str],
    state: Path,
    rate: int | None,
    available_now: bool,
) -> int:
    """Copy topics to another cluster, in the order of each queue, and go on as they grow.

    Topics that the other cluster does not have are made with as many queues.  The job goes on
    until it is interrupted (Ctrl-C, or SIGTERM).
    """
    if not topics:
        raise click.UsageError("--topic says what is to be copied")
    jobs = load_extra("flintmq.spark.jobs.copy")
    cluster = {"namesrv": target, **secrets(), **sink}
    # A wrong option of the sink is told before Spark is started.
    load_extra("flintmq.spark.live.sink_options").parse_sink_options(cluster)
    request = jobs.CopyRequest(
        source=live_source(namesrv, (), extra),
        target=cluster,
        topics=renamed(topics),
        state=state.absolute(),
        rate=rate,
        available_now=available_now,
    )
    with (
        stopping() as ended,
        job.session("copy", progress=False) as spark,
        jobs.CopyJob(spark, request) as made,
    ):
        for topic in made.made_topics:
            click.echo(f"made topic {printable(topic)}", err=True)
        follow(made, ended, is_json=job.is_json)
    return EXIT_FINE
