"""``flintmq pipeline query``: SQL over store directories, an archive or live topics."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

from flintmq.cli.output.console import OutputClosedError
from flintmq.cli.output.json_output import with_members
from flintmq.cli.output.text import plural, printable
from flintmq.cli.pipeline.input_options import (
    check_source,
    live_options,
    refuse_set_aside,
    stored_input,
)
from flintmq.cli.pipeline.job import Job
from flintmq.cli.pipeline.job_frame import JobOutcome, job_command
from flintmq.cli.pipeline.job_options import (
    absolute,
    on_corrupt_option,
    set_aside_option,
)
from flintmq.cli.pipeline.report_text import damage_lines
from flintmq.cli.pipeline.row_output import CELL_WIDTH_MAX, WRITERS, json_object, table_lines
from flintmq.spark.jobs.query.query_report import LIMIT_MAX, QueryReport
from flintmq.spark.jobs.query.sql_shape import check_query_shape

if TYPE_CHECKING:
    from flintmq.spark.jobs.query.sql_query import QueryRun

TABLE_ROWS: Final = 1000
_SUFFIXES: Final = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "table",
}
_BY_SPARK: Final = {"parquet": "a new directory", "arrow": "a new file"}
"""Forms that are no text, and what is made for them."""


@job_command("query")
@click.argument("sources", metavar="[DIR...|ARCHIVE]", nargs=-1, callback=absolute)
@click.argument("sql", metavar="SQL")
@live_options
@on_corrupt_option
@set_aside_option
@click.option("--limit", type=click.IntRange(0, LIMIT_MAX), help="Give so many rows at most.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the rows there: a new file, a new directory for Parquet.",
)
@click.option(
    "--output-format",
    type=click.Choice(["table", "vertical", "csv", "json", "jsonl", "parquet", "arrow"]),
    help="Else by the ending of --output; without --output a table.",
)
@click.option("--full-width", is_flag=True, help="Do not cut the cells of a table.")
def query_command(
    job: Job,
    sources: tuple[str, ...],
    sql: str,
    namesrv: str | None,
    topics: tuple[str, ...],
    extra: dict[str, str],
    on_corrupt: str,
    set_aside: bool,
    limit: int | None,
    output: Path | None,
    output_format: str | None,
    full_width: bool,
) -> JobOutcome:
    """Answer SQL over the views messages, queues, offsets, index, topics and groups.

    Live topics (--namesrv, --topic) have messages and offsets, as they are at the start.
    A table shows 1000 rows unless --limit says otherwise; vertical writes one column a line.
    How many rows were scanned and
    matched, and whether the answer is complete, is told on stderr.
    """
    from flintmq.spark.jobs.job_input import LiveInput
    from flintmq.spark.jobs.query.sql_query import QueryRequest, QueryRun

    if not sql.strip(" \t\r\n;"):
        raise click.UsageError("the query is empty: SQL is the last argument")
    live = check_source(sources, namesrv, topics, extra, zone=job.zone)
    check_query_shape(sql)
    form = output_format or _form_of(output)
    _check_output(output, form)
    if limit is None and form in ("table", "vertical"):
        limit = TABLE_ROWS
    if live is not None:
        refuse_set_aside(set_aside)
        request = QueryRequest(source=LiveInput(live), sql=sql, limit=limit)
    else:
        stored = stored_input(job, sources, on_corrupt, allows_archive=True, set_aside=set_aside)
        request = QueryRequest(source=stored, sql=sql, limit=limit)
    # A bar would be in the way of rows that come while Spark still works.
    is_row_by_row = form in WRITERS and output is None and not job.is_json
    with job.session(progress=not (is_row_by_row and sys.stdout.isatty())) as spark:
        rows = RowForm(form, job.zone, None if full_width else CELL_WIDTH_MAX)
        return _give(QueryRun(spark, request), rows, output, is_json=job.is_json)


def _form_of(output: Path | None) -> str:
    if output is None:
        return "table"
    form = _SUFFIXES.get(output.suffix.lower())
    if form is None:
        raise click.UsageError(
            f"the ending of --output {printable(str(output))} names no format: it is one of "
            f"{', '.join(_SUFFIXES)}, or --output-format says the format"
        )
    return form


def _check_output(output: Path | None, form: str) -> None:
    """Refuse what could only fail after the work is done."""
    if output is None:
        if form in _BY_SPARK:
            raise click.UsageError(f"{form.capitalize()} needs --output, {_BY_SPARK[form]}")
    elif output.exists():
        raise click.UsageError(f"there is a {printable(str(output))} already")
    elif not output.absolute().parent.is_dir():
        raise click.UsageError(f"there is no {printable(str(output.absolute().parent))}")


@dataclass(frozen=True, slots=True)
class RowForm:
    """How rows are written."""

    name: str
    zone: tzinfo
    cell_width_max: int | None


def _give(run: "QueryRun", form: RowForm, output: Path | None, *, is_json: bool) -> JobOutcome:
    """Write the rows; return what there is to say about them."""
    columns = run.table.columns
    if form.name in ("json", "jsonl", "parquet", "arrow") or is_json:
        _refuse_twins(columns)
    more: dict[str, object] = {}
    if form.name in _BY_SPARK:
        assert output is not None
        write = run.write_parquet if form.name == "parquet" else run.write_arrow
        write(str(output.absolute()))
    elif is_json and output is None:
        more["rows"] = [json_object(columns, row, form.zone) for row in run.rows()]
    else:
        with _target(output) as target:
            _write_rows(run, form, target)
    report = run.report()
    return JobOutcome(
        report=with_members(report, complete=report.is_complete, **more),
        notes=report_lines(report),
        has_losses=report.damages.is_loss,
    )


def _refuse_twins(columns: list[str]) -> None:
    for name in columns:
        if columns.count(name) > 1:
            raise click.UsageError(
                f"two columns are named {printable(name)}; give one another name with AS"
            )


@contextmanager
def _target(output: Path | None) -> Iterator[TextIO]:
    """Yield where the rows go; a file appears under its name when it is whole."""
    if output is None:
        try:
            yield sys.stdout
        except BrokenPipeError as error:
            raise OutputClosedError from error
        return
    unfinished = output.with_name(f".{output.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            yield file
        unfinished.rename(output)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_rows(run: "QueryRun", form: RowForm, target: TextIO) -> None:
    columns = run.table.columns
    if form.name in WRITERS:
        WRITERS[form.name](columns, run.rows(), target, form.zone)
        return
    lines = table_lines(columns, run.rows(), zone=form.zone, cell_width_max=form.cell_width_max)
    for text in lines:
        target.write(f"{text}\n")


def report_lines(report: QueryReport) -> Iterator[str]:
    """Yield what an answer rests on."""
    matched = "more than " if report.matched_count is None else ""
    yield (
        f"{plural(report.row_count, 'row')}; {report.scanned_count} scanned, "
        f"{matched}{report.row_count} matched"
    )
    if report.is_complete:
        yield "the answer is complete"
    if report.matched_count is None:
        yield f"not complete: --limit {report.limit} was reached"
    if report.damages.is_loss:
        is_live = bool(report.damages.missing_count)
        yield f"not complete: {'messages are missing' if is_live else 'the log is damaged'}"
    yield from damage_lines(report.damages)
