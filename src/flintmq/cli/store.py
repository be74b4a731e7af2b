"""``flintmq store``: look into store directories, broker running or not."""

import sys
from pathlib import Path
from typing import Any

import click

from flintmq.cli.dump_table import table_head, table_line
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.findings_output import complain, exit_code
from flintmq.cli.json_output import line, to_json
from flintmq.cli.options import (
    delay_levels_option,
    open_store,
    parse_bound,
    store_options,
    verify_options,
)
from flintmq.cli.output import write_line
from flintmq.cli.progress import progress_bar
from flintmq.cli.stat_text import stat_lines
from flintmq.cli.text import plural, printable
from flintmq.cli.verify_text import verify_lines
from flintmq.format.delay_levels import DelayLevels
from flintmq.offline import (
    Dump,
    OutputError,
    RequestError,
    Selection,
    rebuild,
    stat,
    verify,
)


@click.group()
def store() -> None:
    """Look into a store directory of FlintMQ or of a RocketMQ broker.

    A broker may be running there; nothing is written into the directory.  The exit code is 0
    when all is well, 1 when problems were found, 2 for wrong usage and 3 when DIR is no store.
    """


@store.command("stat")
@store_options
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def stat_command(directory: Path, form: str, **sizes: Any) -> int:
    """Show files, offsets, queues, index, checkpoint and the sizes that were detected."""
    result = stat(open_store(directory, **sizes))
    if form == "json":
        write_line(to_json(result))
    else:
        for text in stat_lines(result):
            write_line(text)
    return exit_code(result.findings)


@store.command("dump")
@store_options
@delay_levels_option
@click.option("--topic", help="Only messages of this topic.")
@click.option("--queue", "queue_id", type=int, help="Only messages of this queue of --topic.")
@click.option(
    "--from", "start", metavar="BOUND", help="The first queue offset with --queue, else store time."
)
@click.option("--to", "end", metavar="BOUND", help="The queue offset or store time to stop before.")
@click.option("--key", help="Only messages with this key or unique key.")
@click.option("--limit", type=click.IntRange(min=0), help="Stop after so many messages.")
@click.option("--scan", is_flag=True, help="Read the log; do not trust queues and index.")
@click.option("--format", "form", type=click.Choice(["table", "jsonl"]), default="table")
def dump_command(
    directory: Path,
    topic: str | None,
    queue_id: int | None,
    start: str | None,
    end: str | None,
    key: str | None,
    limit: int | None,
    scan: bool,
    form: str,
    delay_levels: DelayLevels,
    **sizes: Any,
) -> int:
    """Print stored messages in log order.

    BOUND is a queue offset where --queue is given.  Otherwise it is a store time: milliseconds
    since 1970, or ISO 8601 such as 2026-11-15T19:13:25.395Z (UTC unless a zone is named).
    """
    is_offset = queue_id is not None
    try:
        selection = Selection(
            topic=topic,
            queue_id=queue_id,
            start=parse_bound(start, "--from", is_offset=is_offset),
            end=parse_bound(end, "--to", is_offset=is_offset),
            key=key,
            limit=limit,
            scan=scan,
        )
    except RequestError as error:
        raise click.UsageError(str(error)) from error
    layout = open_store(directory, **sizes)
    with progress_bar("dump", shown=not sys.stdout.isatty()) as progress:
        dump = Dump(layout, selection, delay_levels=delay_levels, progress=progress)
        if form == "table":
            write_line(table_head())
        for message in dump.messages():
            write_line(line(message) if form == "jsonl" else table_line(message))
    complain(dump.findings)
    return exit_code(dump.findings)


@store.command("verify")
@store_options
@delay_levels_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@verify_options
def verify_command(
    directory: Path,
    form: str,
    details_max: int,
    without_index: bool,
    delay_levels: DelayLevels,
    **sizes: Any,
) -> int:
    """Check every record, every queue unit and every index entry against each other."""
    layout = open_store(directory, **sizes)
    with progress_bar("verify") as progress:
        report = verify(
            layout,
            delay_levels=delay_levels,
            check_index=not without_index,
            details_max=details_max,
            progress=progress,
        )
    if form == "json":
        write_line(to_json(report))
    else:
        for text in verify_lines(report):
            write_line(text)
    return EXIT_FINE if report.is_sound else EXIT_PROBLEMS


@store.command("rebuild")
@store_options
@delay_levels_option
@click.option("--queues", is_flag=True, help="Make the consume queues, without extensions.")
@click.option("--index", "index", is_flag=True, help="Make the key index.")
@click.option(
    "--out",
    "output",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where to write: a directory that is new or empty, outside the store.",
)
def rebuild_command(
    directory: Path,
    queues: bool,
    index: bool,
    output: Path,
    delay_levels: DelayLevels,
    **sizes: Any,
) -> int:
    """Make consume queues and key index anew from the log, both unless one is asked for."""
    layout = open_store(directory, **sizes)
    both = not queues and not index
    with progress_bar("rebuild") as progress:
        try:
            report = rebuild(
                layout,
                output,
                queues=queues or both,
                index=index or both,
                delay_levels=delay_levels,
                progress=progress,
            )
        except OutputError as error:
            raise click.UsageError(printable(str(error))) from error
    write_line(
        f"{plural(report.record_count, 'record')}: {plural(report.unit_count, 'unit')} in "
        f"{plural(report.queue_count, 'queue')}, {report.index_entry_count} index entries in "
        f"{plural(report.index_file_count, 'file')}"
    )
    complain(report.findings)
    return exit_code(report.findings)
