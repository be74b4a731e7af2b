"""``flintmq pipeline verify`` and ``rebuild``: as in ``flintmq store``, but in parallel."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.findings_output import complain, exit_code
from flintmq.cli.json_output import plain, to_json
from flintmq.cli.options import delay_levels_option, size_options, verify_options
from flintmq.cli.output import write_line
from flintmq.cli.pipeline_options import (
    JobOptions,
    directories_argument,
    expanded,
    job_options,
    load_extra,
    quick_check,
)
from flintmq.cli.pipeline_tables import Heads, table_texts
from flintmq.cli.text import plural, printable, size_text
from flintmq.cli.verify_text import verify_lines
from flintmq.format.delay_levels import DelayLevels
from flintmq.offline import OutputError, SizeOptions

if TYPE_CHECKING:
    from flintmq.spark.jobs.rebuild import RebuildReport
    from flintmq.spark.jobs.verify import StoreReport

SECTIONS_SHOWN: Final = 50


@click.command("verify")
@directories_argument
@job_options
@size_options
@delay_levels_option
@verify_options
def verify_command(
    job: JobOptions,
    directories: tuple[str, ...],
    delay_levels: DelayLevels,
    details_max: int,
    without_index: bool,
    **sizes: Any,
) -> int:
    """Check every record, every queue unit and every index entry of many stores at once."""
    jobs = load_extra("flintmq.spark.jobs.verify")
    quick_check(directories)
    with job.tasks("verify") as spark:
        reports: list[StoreReport] = jobs.verify_stores(
            spark,
            expanded(directories),
            delay_levels=delay_levels,
            check_index=not without_index,
            details_max=details_max,
            sizes=SizeOptions(**sizes),
            **job.split_options(directories),
        )
    if job.is_json:
        write_line(to_json([plain(report) | {"sound": report.is_sound} for report in reports]))
    else:
        for text in _verify_lines(reports):
            write_line(text)
    return EXIT_FINE if all(report.is_sound for report in reports) else EXIT_PROBLEMS


def _verify_lines(reports: "list[StoreReport]") -> Iterator[str]:
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


@click.command("rebuild")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@job_options
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
@click.option("--queues", is_flag=True, help="Make the consume queues, without extensions.")
@click.option("--index", "index", is_flag=True, help="Make the key index.")
def rebuild_command(
    job: JobOptions,
    directory: Path,
    delay_levels: DelayLevels,
    output: Path | None,
    in_place: bool,
    queues: bool,
    index: bool,
    **sizes: Any,
) -> int:
    """Make consume queues and key index anew from the log, both unless one is asked for.

    A store that a broker runs in is refused.  Until the new files are whole, the old ones stay.
    """
    if (output is None) is not in_place:
        raise click.UsageError("either --out DIR or --in-place")
    jobs = load_extra("flintmq.spark.jobs.rebuild")
    quick_check((str(directory),))
    both = not queues and not index
    with job.tasks("rebuild") as spark:
        try:
            report: RebuildReport = jobs.rebuild(
                spark,
                directory.absolute(),
                out=None if output is None else output.absolute(),
                in_place=in_place,
                queues=queues or both,
                index=index or both,
                delay_levels=delay_levels,
                sizes=SizeOptions(**sizes),
                **job.split_options((str(directory),)),
            )
        except OutputError as error:
            raise click.UsageError(printable(str(error))) from error
    if job.is_json:
        write_line(to_json(report))
    else:
        write_line(
            f"{plural(report.record_count, 'record')}: {plural(report.unit_count, 'unit')} in "
            f"{plural(report.queue_count, 'queue')}, {report.index_entry_count} index entries in "
            f"{plural(report.index_file_count, 'file')}, now in {printable(str(report.output))}"
        )
        complain(report.findings)
    return exit_code(report.findings)
