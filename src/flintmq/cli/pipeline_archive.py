"""``flintmq pipeline archive``, ``restore`` and ``check-archive``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.json_output import to_json
from flintmq.cli.options import delay_levels_option
from flintmq.cli.output import write_line
from flintmq.cli.pipeline_live import check_source, namesrv_option, source_option
from flintmq.cli.pipeline_options import (
    JobOptions,
    absolute,
    job_options,
    load_extra,
    on_corrupt_mode,
    on_corrupt_option,
    quick_check,
)
from flintmq.cli.text import plural, printable, size_text
from flintmq.format.delay_levels import DelayLevels
from flintmq.offline import OutputError

if TYPE_CHECKING:
    from flintmq.spark.jobs.archive_check import ArchiveCheck
    from flintmq.spark.jobs.archive_manifest import StoreRun
    from flintmq.spark.jobs.archive_run import ArchiveReport
    from flintmq.spark.jobs.restore import RestoreReport

archive_argument = click.argument(
    "source", metavar="ARCHIVE", type=click.Path(path_type=Path, exists=True, file_okay=False)
)


@click.command("archive")
@click.argument("directories", metavar="[DIR...]", nargs=-1, callback=absolute)
@job_options
@namesrv_option
@source_option
@on_corrupt_option
@click.option(
    "--to",
    "target",
    required=True,
    metavar="ARCHIVE",
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory of the archive; what is new since its last run is added.",
)
@click.option("--topic", "topics", multiple=True, help="Only this topic; repeatable.")
@click.option(
    "--allow-gap", is_flag=True, help="Go on although a part that was not archived is deleted."
)
def archive_command(
    job: JobOptions,
    directories: tuple[str, ...],
    namesrv: str | None,
    extra: dict[str, str],
    on_corrupt: str,
    target: Path,
    topics: tuple[str, ...],
    allow_gap: bool,
) -> int:
    """Keep messages as Parquet, by topic and day; run it again to add what is new.

    They come from store directories, or from live topics (--namesrv, --topic).  A store can be
    restored from either.
    """
    live = check_source(directories, namesrv, topics, extra)
    name = "archive" if live is None else "live_archive"
    jobs = load_extra(f"flintmq.spark.jobs.{name}")
    rules: dict[str, Any] = {"on_corrupt": on_corrupt_mode(on_corrupt), "allow_gap": allow_gap}
    report: ArchiveReport
    if live is None:
        quick_check(directories)
        rules |= {"topics": topics or None, **job.split_options(directories)}
        with job.tasks("archive") as spark:
            report = jobs.archive(spark, directories, target.absolute(), **rules)
    else:
        with job.tasks("archive") as spark:
            report = jobs.archive_topics(spark, live, target.absolute(), **rules)
    if job.is_json:
        write_line(to_json(report))
        return EXIT_FINE
    if report.run is None:
        write_line(f"nothing new for {printable(str(report.archive))}")
        return EXIT_FINE
    for store in report.stores:
        write_line(_store_text(store))
    write_line(
        f"run {report.run}: {plural(report.record_count, 'record')} of "
        f"{size_text(report.record_bytes)} in {plural(report.file_count, 'file')} of "
        f"{size_text(report.file_bytes)}"
    )
    return EXIT_FINE


def _store_text(store: "StoreRun") -> str:
    """Return what a run has taken of a store, or of a broker."""
    taken = f"{printable(store.name)}: {plural(store.record_count, 'record')}"
    if store.queues is None:
        return f"{taken} from {store.start} to {store.end} of {printable(store.path)}"
    moved = [queue for queue in store.queues if queue.start < queue.end]
    of_all = f"{len(moved)} of {plural(len(store.queues), 'queue')}"
    missing = sum(queue.end - queue.start - queue.record_count for queue in moved)
    gone = f"; {plural(missing, 'message')} missing" if missing else ""
    return f"{taken} from {of_all} of {printable(store.cluster or store.path)}{gone}"


@click.command("restore")
@archive_argument
@job_options
@delay_levels_option
@click.option(
    "--out",
    "output",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The store directory to make: new or empty.",
)
@click.option("--store", "store_name", metavar="NAME", help="Which store of the archive.")
def restore_command(
    job: JobOptions,
    source: Path,
    delay_levels: DelayLevels,
    output: Path,
    store_name: str | None,
) -> int:
    """Make a store directory of an archive, which brokers open."""
    jobs = load_extra("flintmq.spark.jobs.restore")
    with job.tasks("restore") as spark:
        try:
            report: RestoreReport = jobs.restore(
                spark,
                source.absolute(),
                output.absolute(),
                store=store_name,
                delay_levels=delay_levels,
            )
        except OutputError as error:
            raise click.UsageError(printable(str(error))) from error
    if job.is_json:
        write_line(to_json(report))
        return EXIT_FINE
    how = "byte for byte" if report.is_exact else "at new physical offsets"
    write_line(
        f"{printable(report.store)}: {plural(report.record_count, 'record')} {how} in "
        f"{plural(report.log_file_count, 'file')}, {plural(report.queue_count, 'queue')}, "
        f"{plural(report.index_file_count, 'index file')}, now in {printable(str(report.output))}"
    )
    for problem in report.problems:
        write_line(printable(problem))
    return EXIT_FINE


@click.command("check-archive")
@archive_argument
@job_options
def check_archive_command(job: JobOptions, source: Path) -> int:
    """Read a whole archive and compare it with its manifests."""
    jobs = load_extra("flintmq.spark.jobs.archive_check")
    with job.tasks("check-archive") as spark:
        report: ArchiveCheck = jobs.check_archive(spark, source.absolute())
    if job.is_json:
        write_line(to_json(report))
    else:
        for problem in report.problems:
            write_line(printable(problem))
        write_line(
            f"{plural(report.run_count, 'run')}, {plural(report.file_count, 'file')}, "
            f"{plural(report.record_count, 'record')}: "
            f"{plural(len(report.problems), 'problem') if report.problems else 'sound'}"
        )
    return EXIT_PROBLEMS if report.problems else EXIT_FINE
