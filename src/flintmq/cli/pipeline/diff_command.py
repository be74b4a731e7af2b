"""``flintmq pipeline diff``: what is different between two stores."""

from collections.abc import Iterator
from typing import Final

import click

from flintmq.cli.output.json_output import with_members
from flintmq.cli.output.text import plural, printable
from flintmq.cli.pipeline.input_options import stored_input
from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_frame import JobOutcome, job_command
from flintmq.cli.pipeline.job_options import absolute, on_corrupt_option
from flintmq.cli.pipeline.report_tables import table_texts
from flintmq.cli.pipeline.report_text import damage_lines
from flintmq.spark.jobs.diff.diff_report import DETAILS, DETAILS_MAX, Difference, DiffReport

QUEUES_SHOWN: Final = 50


@job_command("diff")
@click.argument("left", metavar="DIR", callback=absolute)
@click.argument("right", metavar="DIR", callback=absolute)
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
    job: Job, left: str, right: str, on_corrupt: str, details: int, strict: bool
) -> JobOutcome:
    """Compare two stores, such as a master and its slave, message by message.

    Missing is what only the first store has, extra what only the second one has.  The exit code
    is 1 when they differ, or when damage was left out.
    """
    from flintmq.spark.jobs.diff.store_diff import DiffRequest, compare

    request = DiffRequest(
        left=stored_input(job, (left,), on_corrupt),
        right=stored_input(job, (right,), on_corrupt),
        details=details,
        strict=strict,
    )
    with job.session() as spark:
        report = compare(spark, request)
    return JobOutcome(
        report=with_members(report, equal=report.is_equal),
        lines=diff_lines(report),
        has_problems=not report.is_equal,
        has_losses=report.has_damage,
    )


def diff_lines(report: DiffReport) -> Iterator[str]:
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


def _moved(report: DiffReport) -> str:
    if not report.moved_count:
        return ""
    return f", {report.moved_count} of them at other physical offsets"


def _queue_lines(report: DiffReport) -> Iterator[str]:
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


def _difference(one: Difference) -> str:
    offsets = []
    for name, offset in (
        ("left", one.left_physical_offset),
        ("right", one.right_physical_offset),
    ):
        if offset is not None:
            offsets.append(f"{name} at {offset}")
    parts = f": {', '.join(one.parts)}" if one.parts else ""
    where = f"{printable(one.topic)}/{one.queue_id} at {one.queue_offset}"
    return f"{one.kind.value} {where} ({', '.join(offsets)}){parts}"


def _verdict(report: DiffReport) -> str:
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
