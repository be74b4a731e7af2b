"""``flintmq pipeline diff``: what is different between two stores."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.json_output import plain, to_json
from flintmq.cli.output import write_line
from flintmq.cli.pipeline_options import (
    JobOptions,
    absolute,
    job_options,
    load_extra,
    on_corrupt_mode,
    on_corrupt_option,
    quick_check,
)
from flintmq.cli.pipeline_tables import table_texts
from flintmq.cli.pipeline_text import damage_lines
from flintmq.cli.text import plural, printable

if TYPE_CHECKING:
    from flintmq.spark.jobs.diff_report import Difference, DiffReport

DETAILS: Final = 10
DETAILS_MAX: Final = 10_000
QUEUES_SHOWN: Final = 50


@click.command("diff")
@click.argument("left", metavar="DIR", callback=absolute)
@click.argument("right", metavar="DIR", callback=absolute)
@job_options
@on_corrupt_option
@click.option(
    "--details",
    type=click.IntRange(0, DETAILS_MAX),
    default=DETAILS,
    show_default=True,
    help="How many differences of each kind to describe; the counts are always exact.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="What one store has deleted, and other physical offsets, are differences too.",
)
def diff_command(
    job: JobOptions, left: str, right: str, on_corrupt: str, details: int, strict: bool
) -> int:
    """Compare two stores, such as a master and its slave, message by message.

    Missing is what only the first store has, extra what only the second one has.  The exit code
    is 1 when they differ.
    """
    jobs = load_extra("flintmq.spark.jobs.diff")
    quick_check((left,))
    quick_check((right,))
    with job.session("diff") as spark:
        report: DiffReport = jobs.diff(
            spark,
            left,
            right,
            details=details,
            strict=strict,
            on_corrupt=on_corrupt_mode(on_corrupt),
            splits_min=job.parallelism,
        )
    if job.is_json:
        write_line(to_json(plain(report) | {"equal": report.is_equal}))
    else:
        for text in diff_lines(report):
            write_line(text)
    return EXIT_FINE if report.is_equal else EXIT_PROBLEMS


def diff_lines(report: "DiffReport") -> Iterator[str]:
    """Yield the lines of the report, the verdict last."""
    for name, side in (("left ", report.left), ("right", report.right)):
        yield (
            f"{name}  {printable(side.path)}: {plural(side.message_count, 'message')}, "
            f"log from {side.log_start}"
        )
        yield from damage_lines(side.damages)
    yield f"same   {plural(report.same_count, 'message')}{_moved(report)}"
    if report.outside_count:
        yield f"note   {plural(report.outside_count, 'message')} kept by one store only:"
        for one in report.outside[:QUEUES_SHOWN]:
            yield (
                f"  {one.side.value}: {printable(one.topic)}/{one.queue_id}, queue offsets "
                f"{one.first_offset} to {one.last_offset}"
            )
        if report.outside_range_count > QUEUES_SHOWN:
            yield f"  and of {report.outside_range_count - QUEUES_SHOWN} more queues"
    yield from _queue_lines(report)
    if report.examples:
        yield ""
        yield "examples:"
        for difference in report.examples:
            yield f"  {_difference(difference)}"
    yield ""
    yield _verdict(report)


def _moved(report: "DiffReport") -> str:
    if not report.moved_count:
        return ""
    return f", {report.moved_count} of them at other physical offsets"


def _queue_lines(report: "DiffReport") -> Iterator[str]:
    heads = ("topic", ">queue", ">first offset", ">missing", ">extra", ">changed", ">moved")
    rows = [
        [
            one.topic,
            str(one.queue_id),
            str(one.first_offset),
            str(one.missing_count),
            str(one.extra_count),
            str(one.changed_count),
            str(one.moved_count),
        ]
        for one in report.queues[:QUEUES_SHOWN]
    ]
    yield from table_texts("differences by queue", heads, rows, report.queue_count)


def _difference(one: "Difference") -> str:
    places = []
    for name, offset in (
        ("left", one.left_physical_offset),
        ("right", one.right_physical_offset),
    ):
        if offset is not None:
            places.append(f"{name} at {offset}")
    parts = f": {', '.join(one.parts)}" if one.parts else ""
    where = f"{printable(one.topic)}/{one.queue_id} at {one.queue_offset}"
    return f"{one.kind.value} {where} ({', '.join(places)}){parts}"


def _verdict(report: "DiffReport") -> str:
    if report.is_equal:
        return "equal" if not report.outside_count else "equal, as far as both stores keep it"
    counts = [
        (report.missing_count, "missing"),
        (report.extra_count, "extra"),
        (report.changed_count, "changed"),
        (report.moved_count if report.is_strict else 0, "moved"),
    ]
    told = ", ".join(f"{count} {word}" for count, word in counts if count)
    first = "" if report.first is None else f"; first is {_difference(report.first)}"
    return f"different: {told}{first}"
