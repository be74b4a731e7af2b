"""``flintmq pipeline archive``, ``restore`` and ``check-archive``."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintmq.cli.option_types import delay_levels_option
from flintmq.cli.output.text import plural, printable, size_text
from flintmq.cli.pipeline.input_options import (
    check_paths,
    check_source,
    namesrv_option,
    source_option,
)
from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_frame import JobOutcome, job_command
from flintmq.cli.pipeline.job_options import absolute, accept_loss_option, on_corrupt_option
from flintmq.cli.pipeline.report_text import damage_lines
from flintmq.format.delay_levels import DelayLevels

if TYPE_CHECKING:
    from flintmq.spark.jobs.archive.archive_check import ArchiveCheck
    from flintmq.spark.jobs.archive.archive_manifest import StoreRun
    from flintmq.spark.jobs.archive.archive_run import ArchiveReport
    from flintmq.spark.jobs.archive.store_restore import RestoreReport

archive_argument = click.argument(
    "source", metavar="ARCHIVE", type=click.Path(path_type=Path, exists=True, file_okay=False)
)


@job_command("archive")
@click.argument("directories", metavar="[DIR...]", nargs=-1, callback=absolute)
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
    job: Job,
    directories: tuple[str, ...],
    namesrv: str | None,
    extra: dict[str, str],
    on_corrupt: str,
    target: Path,
    topics: tuple[str, ...],
    allow_gap: bool,
) -> JobOutcome:
    """Keep messages as Parquet, by topic and day; run it again to add what is new.

    They come from store directories, or from live topics (--namesrv, --topic).  A store can be
    restored from either.
    """
    from flintmq.spark.jobs.archive.archive_run import ArchiveRules
    from flintmq.spark.jobs.archive.live_archive import LiveArchiveRequest, archive_live_topics
    from flintmq.spark.jobs.archive.store_archive import (
        SPLIT_SIZE,
        StoreArchiveRequest,
        archive_stores,
    )
    from flintmq.spark.options.store_options import OnCorrupt

    live = check_source(directories, namesrv, topics, extra, zone=job.zone)
    rules = ArchiveRules(
        to=target.absolute(), on_corrupt=OnCorrupt(on_corrupt), allow_gap=allow_gap
    )
    if live is not None:
        live_request = LiveArchiveRequest(source=live, rules=rules)
        with job.tasks() as spark:
            report = archive_live_topics(spark, live_request)
    else:
        check_paths(directories)
        request = StoreArchiveRequest(
            directories=directories,
            rules=rules,
            topics=topics or None,
            split_size=job.split_size(directories, default=SPLIT_SIZE),
        )
        with job.tasks() as spark:
            report = archive_stores(spark, request)
    return JobOutcome(
        report=report, lines=_archive_lines(report), has_losses=bool(report.damages.count)
    )


def _archive_lines(report: "ArchiveReport") -> Iterator[str]:
    if report.run is None:
        yield f"nothing new for {printable(str(report.archive))}"
        yield from damage_lines(report.damages)
        return
    for store in report.stores:
        yield _store_text(store)
    yield (
        f"run {report.run}: {plural(report.record_count, 'record')} of "
        f"{size_text(report.record_bytes)} in {plural(report.file_count, 'file')} of "
        f"{size_text(report.file_bytes)}"
    )
    yield from damage_lines(report.damages)


def _store_text(store: "StoreRun") -> str:
    """Return what a run has archived of a store, or of a broker."""
    head = f"{printable(store.name)}: {plural(store.record_count, 'record')}"
    if store.queues is None:
        return f"{head} from {store.start} to {store.end} of {printable(store.path)}"
    moved = [queue for queue in store.queues if queue.start < queue.end]
    of_all = f"{len(moved)} of {plural(len(store.queues), 'queue')}"
    missing = sum(queue.end - queue.start - queue.record_count for queue in moved)
    gone = f"; {plural(missing, 'message')} missing" if missing else ""
    return f"{head} from {of_all} of {printable(store.cluster or store.path)}{gone}"


@job_command("restore")
@archive_argument
@accept_loss_option
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
    job: Job,
    source: Path,
    delay_levels: DelayLevels,
    output: Path,
    store_name: str | None,
) -> JobOutcome:
    """Make a store directory of an archive, which brokers open."""
    from flintmq.spark.jobs.archive.store_restore import RestoreRequest, restore_store

    request = RestoreRequest(
        archive=source.absolute(),
        out=output.absolute(),
        store=store_name,
        delay_levels=delay_levels,
    )
    with job.tasks() as spark:
        report = restore_store(spark, request)
    return JobOutcome(
        report=report, lines=_restore_lines(report), has_losses=bool(report.damages.count)
    )


def _restore_lines(report: "RestoreReport") -> Iterator[str]:
    how = "byte for byte" if report.is_exact else "at new physical offsets"
    yield (
        f"{printable(report.store)}: {plural(report.record_count, 'record')} {how} in "
        f"{plural(report.log_file_count, 'file')}, {plural(report.queue_count, 'queue')}, "
        f"{plural(report.index_file_count, 'index file')}, now in {printable(str(report.output))}"
    )
    yield from map(printable, report.problems)
    yield from damage_lines(report.damages)


@job_command("check-archive")
@archive_argument
@click.option(
    "--recover",
    is_flag=True,
    help="First make current.json, which is lost or too old, again from the manifests.",
)
def check_archive_command(job: Job, source: Path, recover: bool) -> JobOutcome:
    """Read a whole archive and compare it with its manifests."""
    from flintmq.spark.jobs.archive.archive_check import check_archive

    with job.tasks() as spark:
        report = check_archive(spark, source.absolute(), recover=recover)
    return JobOutcome(report=report, lines=_check_lines(report), has_problems=not report.ok)


def _check_lines(report: "ArchiveCheck") -> Iterator[str]:
    yield from map(printable, report.problems)
    yield (
        f"{plural(report.run_count, 'run')}, {plural(report.file_count, 'file')}, "
        f"{plural(report.record_count, 'record')}: "
        f"{plural(len(report.problems), 'problem') if report.problems else 'sound'}"
    )
    yield from damage_lines(report.damages)
