"""``flintmq store``: look into store directories, broker running or not."""

import sys
from pathlib import Path

import click

from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.option_types import (
    SHAPE_ADVICE,
    StoreChoice,
    delay_levels_option,
    extension_option,
    parse_bound,
    store_options,
    verify_options,
)
from flintmq.cli.output.console import write_line
from flintmq.cli.output.findings_output import complain, exit_code
from flintmq.cli.output.json_output import line, to_json, with_members
from flintmq.cli.output.progress import progress_bar
from flintmq.cli.output.text import plural, printable
from flintmq.cli.output.verify_text import verify_lines
from flintmq.cli.store.dump_table import body_line, table_head, table_line
from flintmq.cli.store.salvage_text import salvage_lines
from flintmq.cli.store.start_text import start_lines
from flintmq.cli.store.stat_text import stat_lines
from flintmq.format.delay_levels import DelayLevels
from flintmq.offline import (
    BODY_SHOWN_MAX,
    BodyForm,
    Dump,
    Findings,
    OutputError,
    RequestError,
    Selection,
    StoreLayout,
    UnknownIndexShapeError,
    rebuild,
    salvage,
    set_aside_logs,
    stat,
    try_start,
    verify,
)
from flintmq.settings.property_files import ConfigError

_output_option = click.option(
    "--out",
    "output",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where to write: a directory that is new or empty, outside the store.",
)


@click.group("store")
def store_group() -> None:
    """Look into a store directory of FlintMQ or of a RocketMQ broker.

    A broker may be running there; nothing is written into the directory.  The exit code is 0
    when all is well, 1 when problems were found, 2 for wrong usage and 3 when DIR is no store.
    """


@store_group.command("stat")
@store_options
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def stat_command(store: StoreChoice, form: str) -> int:
    """Show files, offsets, queues, index, checkpoint and the sizes that were detected."""
    result = stat(store.open())
    if form == "json":
        write_line(to_json(result))
    else:
        for text in stat_lines(result):
            write_line(text)
    return exit_code(result.findings)


@store_group.command("dump")
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
@click.option("--set-aside", is_flag=True, help="Print what recovery has set aside instead.")
@click.option(
    "--body",
    "body_form",
    type=click.Choice([form.value for form in BodyForm]),
    help="Show bodies, decompressed; auto is JSON or text where it is, else Base64.",
)
@click.option(
    "--body-max",
    "body_shown_max",
    type=click.IntRange(min=1),
    default=BODY_SHOWN_MAX,
    show_default=True,
    metavar="BYTES",
    help="Show so much of a body.",
)
@click.option("--format", "form", type=click.Choice(["table", "jsonl"]), default="table")
def dump_command(
    store: StoreChoice,
    topic: str | None,
    queue_id: int | None,
    start: str | None,
    end: str | None,
    key: str | None,
    limit: int | None,
    scan: bool,
    set_aside: bool,
    body_form: str | None,
    body_shown_max: int,
    form: str,
    delay_levels: DelayLevels,
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
            scan=scan or set_aside,
        )
    except RequestError as error:
        raise click.UsageError(str(error)) from error
    layout = store.open()
    layouts = set_aside_logs(layout) if set_aside else [layout]
    findings = Findings()
    if form == "table":
        write_line(table_head())
    with progress_bar("dump", shown=not sys.stdout.isatty()) as progress:
        for found in layouts:
            dump = Dump(
                found,
                selection,
                delay_levels=delay_levels,
                progress=progress,
                body_form=None if body_form is None else BodyForm(body_form),
                body_shown_max=body_shown_max,
            )
            for message in dump.messages():
                write_line(line(message) if form == "jsonl" else table_line(message))
                if form == "table" and "body" in message:
                    write_line(body_line(message))
            findings.merge(dump.findings)
    complain(findings)
    return exit_code(findings)


@store_group.command("verify")
@store_options
@delay_levels_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@verify_options
@click.option(
    "--start", "start", is_flag=True, help="Show what the next start would do, and nothing else."
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --start: a setting of the broker, by RocketMQ's name; repeatable.",
)
def verify_command(
    store: StoreChoice,
    form: str,
    details_max: int,
    without_index: bool,
    delay_levels: DelayLevels,
    start: bool,
    changes: tuple[str, ...],
) -> int:
    """Check every record, every queue unit and every index entry against each other.

    With --start the next start is tried instead, on files whose changes are private: what it
    would cut, step over, set aside, make again or refuse.
    """
    if changes and not start:
        raise click.UsageError("--set needs --start")
    layout = store.open()
    if start:
        return _show_start(layout, form, changes, with_index=not without_index)
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


def _show_start(
    layout: StoreLayout, form: str, changes: tuple[str, ...], *, with_index: bool
) -> int:
    settings = {}
    for text in changes:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"--set is KEY=VALUE, not {text!r}")
        settings[key.strip()] = value.strip()
    try:
        report = try_start(layout, settings=settings, with_index=with_index)
    except ConfigError as error:
        raise click.UsageError(printable(str(error))) from error
    if form == "json":
        write_line(to_json(with_members(report, whole=report.is_whole)))
    else:
        for text in start_lines(report):
            write_line(text)
    return EXIT_FINE if report.is_whole else EXIT_PROBLEMS


@store_group.command("rebuild")
@store_options
@delay_levels_option
@click.option("--queues", is_flag=True, help="Make the consume queues.")
@click.option("--index", "index", is_flag=True, help="Make the key index.")
@extension_option
@_output_option
def rebuild_command(
    store: StoreChoice,
    queues: bool,
    index: bool,
    extension: bool | None,
    output: Path,
    delay_levels: DelayLevels,
) -> int:
    """Make consume queues and key index anew from the log, both unless one is asked for."""
    layout = store.open()
    both = not queues and not index
    with progress_bar("rebuild") as progress:
        try:
            report = rebuild(
                layout,
                output,
                queues=queues or both,
                index=index or both,
                delay_levels=delay_levels,
                extension=extension,
                progress=progress,
            )
        except UnknownIndexShapeError as error:
            raise click.UsageError(printable(f"{error.path}: {SHAPE_ADVICE}")) from error
        except OutputError as error:
            raise click.UsageError(printable(str(error))) from error
    write_line(
        f"{plural(report.record_count, 'record')}: {plural(report.unit_count, 'unit')} in "
        f"{plural(report.queue_count, 'queue')}, {report.index_entry_count} index entries in "
        f"{plural(report.index_file_count, 'file')}"
    )
    complain(report.findings)
    return exit_code(report.findings)


@store_group.command("salvage")
@store_options
@delay_levels_option
@click.option("--without-index", is_flag=True, help="Make no key index.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@_output_option
def salvage_command(
    store: StoreChoice,
    without_index: bool,
    form: str,
    output: Path,
    delay_levels: DelayLevels,
) -> int:
    """Make a sound store of everything that can be proven, set aside or not.

    Records get other physical offsets, and other queue offsets behind a gap; offsets of consumers
    move along.
    """
    layout = store.open()
    with progress_bar("salvage") as progress:
        try:
            report = salvage(
                layout,
                output,
                delay_levels=delay_levels,
                with_index=not without_index,
                progress=progress,
            )
        except UnknownIndexShapeError as error:
            raise click.UsageError(printable(f"{error.path}: {SHAPE_ADVICE}")) from error
        except OutputError as error:
            raise click.UsageError(printable(str(error))) from error
    if form == "json":
        write_line(to_json(report))
    else:
        for text in salvage_lines(report):
            write_line(text)
        complain(report.findings)
    return exit_code(report.findings)
