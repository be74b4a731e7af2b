"""``flintmq pipeline verify`` and ``rebuild``: as in ``flintmq store``, but in parallel."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from flintmq.cli.option_types import (
    delay_levels_option,
    extension_option,
    size_options,
    verify_options,
)
from flintmq.cli.output.findings_output import complaints
from flintmq.cli.output.json_output import with_members
from flintmq.cli.output.text import plural, printable, size_text
from flintmq.cli.output.verify_text import verify_lines
from flintmq.cli.pipeline.input_options import check_paths
from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_frame import JobOutcome, job_command
from flintmq.cli.pipeline.job_options import directories_argument
from flintmq.cli.pipeline.report_tables import Heads, table_texts
from flintmq.format.delay_levels import DelayLevels
from flintmq.offline import Severity, SizeOptions

if TYPE_CHECKING:
    from flintmq.spark.jobs.rebuild.parallel_rebuild import ParallelRebuildReport
    from flintmq.spark.jobs.verify.parallel_verify import StoreReport

SECTIONS_SHOWN: Final = 50


@job_command("verify")
@directories_argument
@size_options
@delay_levels_option
@verify_options
def verify_command(
    job: Job,
    directories: tuple[str, ...],
    sizes: SizeOptions,
    delay_levels: DelayLevels,
    details_max: int,
    without_index: bool,
) -> JobOutcome:
    """Check every record, every queue unit and every index entry of many stores at once."""
    from flintmq.spark.jobs.verify.parallel_verify import VerifyRequest, verify
    from flintmq.spark.parallel_log.range_planning import RANGE_SIZE
    from flintmq.spark.stored.split_plan import store_directories

    check_paths(directories)
    request = VerifyRequest(
        directories=tuple(store_directories(directories)),
        delay_levels=delay_levels,
        check_index=not without_index,
        details_max=details_max,
        sizes=sizes,
        split_size=job.split_size(directories, default=RANGE_SIZE),
    )
    with job.tasks() as spark:
        reports = verify(spark, request)
    return JobOutcome(
        report=[with_members(report, sound=report.is_sound) for report in reports],
        lines=_verify_lines(reports),
        has_problems=not all(report.is_sound for report in reports),
    )


def _verify_lines(reports: "Sequence[StoreReport]") -> Iterator[str]:
    for number, report in enumerate(reports):
        if number:
            yield ""
        yield from verify_lines(report)
        yield from _sections(report)


def _sections(report: "StoreReport") -> Iterator[str]:
    heads: Heads = ("file", ">records", ">bytes", ">damaged ranges", ">damaged bytes")
    files = [
        [
            one.name,
            str(one.record_count),
            size_text(one.record_bytes),
            str(one.damage_count),
            str(one.damage_bytes),
        ]
        for one in report.files[:SECTIONS_SHOWN]
    ]
    yield from table_texts("files of the log", heads, files, len(report.files))
    topics = [
        [
            one.topic,
            str(one.record_count),
            size_text(one.record_bytes),
            str(one.problem_count),
        ]
        for one in report.topics[:SECTIONS_SHOWN]
    ]
    heads = ("topic", ">records", ">bytes", ">problems")
    yield from table_texts("topics", heads, topics, len(report.topics))


@job_command("rebuild")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@size_options
@delay_levels_option
@click.option(
    "--out",
    "output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where to write: a directory that is new or empty, outside the store.",
)
@click.option("--in-place", is_flag=True, help="Take the place of the old files, at the end.")
@click.option("--queues", is_flag=True, help="Make the consume queues.")
@click.option("--index", "index", is_flag=True, help="Make the key index.")
@extension_option
def rebuild_command(
    job: Job,
    directory: Path,
    sizes: SizeOptions,
    delay_levels: DelayLevels,
    output: Path | None,
    in_place: bool,
    queues: bool,
    index: bool,
    extension: bool | None,
) -> JobOutcome:
    """Make consume queues and key index anew from the log, both unless one is asked for.

    A store that a broker runs in is refused.  Until the new files are whole, the old ones stay.
    """
    from flintmq.spark.jobs.rebuild.parallel_rebuild import RebuildRequest, rebuild_store
    from flintmq.spark.parallel_log.range_planning import RANGE_SIZE

    if (output is None) is not in_place:
        raise click.UsageError("either --out DIR or --in-place")
    check_paths((str(directory),))
    both = not queues and not index
    request = RebuildRequest(
        directory=directory.absolute(),
        out=None if output is None else output.absolute(),
        in_place=in_place,
        queues=queues or both,
        index=index or both,
        delay_levels=delay_levels,
        sizes=sizes,
        extension=extension,
        split_size=job.split_size((str(directory),), default=RANGE_SIZE),
    )
    with job.tasks() as spark:
        report = rebuild_store(spark, request)
    return JobOutcome(
        report=report,
        lines=_rebuild_lines(report),
        notes=complaints(report.findings),
        has_problems=bool(report.findings.total(Severity.PROBLEM)),
    )


def _rebuild_lines(report: "ParallelRebuildReport") -> Iterator[str]:
    yield (
        f"{plural(report.record_count, 'record')}: {plural(report.unit_count, 'unit')} in "
        f"{plural(report.queue_count, 'queue')}, {report.index_entry_count} index entries in "
        f"{plural(report.index_file_count, 'file')}, now in {printable(str(report.output))}"
    )
