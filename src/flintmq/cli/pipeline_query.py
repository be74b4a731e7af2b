"""``flintmq pipeline query``: SQL over store directories, an archive or live topics."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS, EXIT_USAGE
from flintmq.cli.json_output import plain, to_json
from flintmq.cli.output import OutputClosedError, write_line
from flintmq.cli.pipeline_live import check_source, live_options
from flintmq.cli.pipeline_options import (
    JobOptions,
    absolute,
    job_options,
    load_extra,
    on_corrupt_mode,
    on_corrupt_option,
    quick_check,
)
from flintmq.cli.pipeline_rows import WRITERS, json_value, table_lines
from flintmq.cli.pipeline_text import damage_lines
from flintmq.cli.text import plural, printable

if TYPE_CHECKING:
    from flintmq.spark.jobs.query import QueryReport, QueryRun

TABLE_ROWS: Final = 1000
LIMIT_MAX: Final = 2_000_000_000
"""Spark counts the rows of a limit in 32 bits."""

_SUFFIXES: Final = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}


class SqlUsageError(click.ClickException):
    """The query is wrong; the way it was given is not."""

    exit_code = EXIT_USAGE


@click.command("query")
@click.argument("sources", metavar="[DIR...|ARCHIVE]", nargs=-1, callback=absolute)
@click.argument("sql", metavar="SQL")
@job_options
@live_options
@on_corrupt_option
@click.option("--limit", type=click.IntRange(0, LIMIT_MAX), help="Give so many rows at most.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the rows there: a new file, a new directory for Parquet.",
)
@click.option(
    "--output-format",
    type=click.Choice(["table", "csv", "jsonl", "parquet"]),
    help="Else by the ending of --output; without one a table.",
)
def query_command(
    job: JobOptions,
    sources: tuple[str, ...],
    sql: str,
    namesrv: str | None,
    topics: tuple[str, ...],
    extra: dict[str, str],
    on_corrupt: str,
    limit: int | None,
    output: Path | None,
    output_format: str | None,
) -> int:
    """Answer SQL over the views messages, queues, offsets, index, topics and groups.

    Live topics (--namesrv, --topic) have messages and offsets, as they are at the start.
    A table shows 1000 rows unless --limit says otherwise.  How many rows were scanned and
    matched, and whether the answer is complete, is told on stderr.
    """
    live = check_source(sources, namesrv, topics, extra)
    form = output_format or _form_of(output)
    _check_output(output, form)
    if limit is None and form == "table":
        limit = TABLE_ROWS
    jobs = load_extra("flintmq.spark.jobs.query")
    failures = load_extra("flintmq.spark.failures")
    views = load_extra("flintmq.spark.jobs.query_views")
    if live is None and not any(map(views.is_archive, sources)):
        quick_check(sources)
    # A bar would be in the way of rows that come while Spark still works.
    is_row_by_row = form in WRITERS and output is None and not job.is_json
    progress = not (is_row_by_row and sys.stdout.isatty())
    with job.session("query", progress=progress) as spark:
        try:
            run: QueryRun = jobs.QueryRun(
                spark,
                sources,
                sql,
                limit=limit,
                on_corrupt=on_corrupt_mode(on_corrupt),
                splits_min=job.parallelism,
                live=live,
            )
            report = _give(run, form, output, is_json=job.is_json)
        except failures.SqlError as error:
            raise SqlUsageError(printable(str(error))) from error
    return EXIT_PROBLEMS if report.damages.count else EXIT_FINE


def _form_of(output: Path | None) -> str:
    return "table" if output is None else _SUFFIXES.get(output.suffix.lower(), "table")


def _check_output(output: Path | None, form: str) -> None:
    """Refuse what could only fail after the work is done."""
    if output is None:
        if form == "parquet":
            raise click.UsageError("Parquet needs --output, a new directory")
    elif output.exists():
        raise click.UsageError(f"there is a {printable(str(output))} already")
    elif not output.absolute().parent.is_dir():
        raise click.UsageError(f"there is no {printable(str(output.absolute().parent))}")


def _give(run: "QueryRun", form: str, output: Path | None, *, is_json: bool) -> "QueryReport":
    """Write the rows, then what there is to say about them."""
    columns = run.table.columns
    if form in ("jsonl", "parquet") or is_json:
        _refuse_twins(columns)
    rows: list[object] | None = None
    if form == "parquet":
        assert output is not None
        run.write_parquet(str(output.absolute()))
    elif is_json and output is None:
        rows = [
            {name: json_value(value) for name, value in zip(columns, row, strict=True)}
            for row in run.rows()
        ]
    else:
        with _target(output) as target:
            _write_rows(run, form, target)
    report = run.report()
    if is_json:
        members = plain(report) | {"complete": report.is_complete}
        write_line(to_json(members if rows is None else members | {"rows": rows}))
    else:
        for text in report_lines(report):
            click.echo(text, err=True)
    return report


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


def _write_rows(run: "QueryRun", form: str, target: TextIO) -> None:
    columns = run.table.columns
    if form in WRITERS:
        WRITERS[form](columns, run.rows(), target)
        return
    for text in table_lines(columns, run.rows()):
        target.write(f"{text}\n")


def report_lines(report: "QueryReport") -> Iterator[str]:
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
    if report.damages.count:
        yield "not complete: the log is damaged"
        yield from damage_lines(report.damages)
