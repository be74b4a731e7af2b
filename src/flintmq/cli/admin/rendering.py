"""Reports in the five forms of output: table, JSON, JSON lines, CSV and YAML."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Final

from flintmq.cli.output.plain_table import cell_text, table_lines
from flintmq.cli.output.plain_values import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flintmq.cli.admin.command_report import CommandReport

FORMS: Final = ("table", "json", "jsonl", "csv", "yaml")


def report_lines(command: str, report: CommandReport, form: str) -> Iterator[str]:
    """Yield the lines of a report in one of FORMS."""
    yield from _WRITERS[form](command, report)


def envelope(command: str, report: CommandReport) -> dict[str, object]:
    """Return a report as the one object that ``json`` and ``yaml`` write."""
    return {
        "command": command,
        "rows": report.plain_rows(),
        "summary": plain(report.summary),
        "failures": [{"where": where, "error": str(error)} for where, error in report.failures],
    }


def _table(command: str, report: CommandReport) -> Iterator[str]:
    flat = report.table_rows
    rows = report.plain_rows() if flat is None else flat
    yield from table_lines(rows, report.columns if flat is None else None)
    summary = plain(report.summary)
    assert isinstance(summary, dict)
    if summary and rows:
        yield ""
    for name, value in summary.items():
        yield f"{name}: {cell_text(value)}"


def _json(command: str, report: CommandReport) -> Iterator[str]:
    yield json.dumps(envelope(command, report), indent=2)


def _json_lines(command: str, report: CommandReport) -> Iterator[str]:
    for row in report.plain_rows():
        yield json.dumps(row, separators=(",", ":"))


def _yaml(command: str, report: CommandReport) -> Iterator[str]:
    import yaml

    text = yaml.safe_dump(envelope(command, report), sort_keys=False, allow_unicode=True)
    yield from text.rstrip("\n").split("\n")


def _csv(command: str, report: CommandReport) -> Iterator[str]:
    rows: list[Mapping[str, object]] = [
        *(report.plain_rows() if report.table_rows is None else report.table_rows)
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    if names:
        writer.writerow(names)
    for row in rows:
        writer.writerow([_csv_cell(row.get(name)) for name in names])
    yield from out.getvalue().rstrip("\n").split("\n") if names else ()


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_WRITERS: Final[dict[str, Callable[[str, CommandReport], Iterator[str]]]] = {
    "table": _table,
    "json": _json,
    "jsonl": _json_lines,
    "csv": _csv,
    "yaml": _yaml,
}
