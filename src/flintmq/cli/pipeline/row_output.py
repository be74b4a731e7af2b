"""Rows of an answer as a table, one below the other, as CSV and as JSON."""

import base64
import csv
import datetime
import decimal
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, tzinfo
from typing import Final, TextIO

from flintmq.cli.output.text import moment_text, printable

CELL_WIDTH_MAX: Final = 60
Row = Sequence[object]


def table_lines(
    columns: Sequence[str],
    rows: Iterable[Row],
    *,
    zone: tzinfo = UTC,
    cell_width_max: int | None = CELL_WIDTH_MAX,
) -> Iterator[str]:
    """Yield the lines of a table whose columns are as wide as what is in them.

    Cells are cut to a width that leaves room for others, unless that is None.  All rows are looked
    at first: a table is for a limited number of them.
    """
    cells = [[text_cell(value, zone, cell_width_max) for value in row] for row in rows]
    heads = [printable(name) for name in columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    numeric = [
        bool(cells) and all(_is_number(row[at]) for row in cells) for at in range(len(heads))
    ]

    def line(texts: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if is_numeric else text.ljust(width)
            for text, width, is_numeric in zip(texts, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    yield line(heads)
    yield "  ".join("-" * width for width in widths)
    yield from map(line, cells)


def write_vertical(
    columns: Sequence[str], rows: Iterable[Row], target: TextIO, zone: tzinfo = UTC
) -> None:
    """Write each row as lines of a name and a value, which is not cut."""
    heads = [printable(name) for name in columns]
    width = max(map(len, heads), default=0)
    for number, row in enumerate(rows, start=1):
        target.write(f"-- row {number} {'-' * max(2, width)}\n")
        for head, value in zip(heads, row, strict=True):
            target.write(f"{head.ljust(width)}  {text_cell(value, zone, None)}".rstrip() + "\n")


def write_csv(
    columns: Sequence[str], rows: Iterable[Row], target: TextIO, zone: tzinfo = UTC
) -> None:
    """Write a head line and the rows; null is nothing, and what is nested is JSON."""
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_csv_cell(value, zone) for value in row])


def write_json_lines(
    columns: Sequence[str], rows: Iterable[Row], target: TextIO, zone: tzinfo = UTC
) -> None:
    """Write one object a line."""
    for row in rows:
        target.write(_json_text(columns, row, zone) + "\n")


def write_json(
    columns: Sequence[str], rows: Iterable[Row], target: TextIO, zone: tzinfo = UTC
) -> None:
    """Write one list of objects."""
    target.write("[")
    for number, row in enumerate(rows):
        target.write((",\n" if number else "\n") + _json_text(columns, row, zone))
    target.write("\n]\n")


def _json_text(columns: Sequence[str], row: Row, zone: tzinfo) -> str:
    return json.dumps(json_object(columns, row, zone), separators=(",", ":"))


Writer = Callable[[Sequence[str], Iterable[Row], TextIO, tzinfo], None]
WRITERS: Final[dict[str, Writer]] = {
    "csv": write_csv,
    "json": write_json,
    "jsonl": write_json_lines,
    "vertical": write_vertical,
}
"""The forms in which rows are written one by one, as they come."""


def json_object(columns: Sequence[str], row: Row, zone: tzinfo = UTC) -> dict[str, object]:
    """Return a row as an object of JSON."""
    return {name: json_value(value, zone) for name, value in zip(columns, row, strict=True)}


def json_value(value: object, zone: tzinfo = UTC) -> object:
    """Return a value of Spark as JSON has it: bytes in base64, times in ISO form with offset."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case datetime.datetime():
            # PySpark hands an instant over in the time of this machine, without saying so.
            return moment_text(value, zone)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case dict():
            return {str(key): json_value(item, zone) for key, item in value.items()}
        case tuple() if hasattr(value, "asDict"):
            return {name: json_value(item, zone) for name, item in value.asDict().items()}
        case list() | tuple():
            return [json_value(item, zone) for item in value]
    return str(value)


def text_cell(value: object, zone: tzinfo = UTC, width_max: int | None = CELL_WIDTH_MAX) -> str:
    """Return a value fit for a terminal, cut to a width."""
    if value is None:
        text = "-"
    elif isinstance(value, bytes | bytearray):
        text = printable(bytes(value).decode("utf-8", "backslashreplace"))
    elif isinstance(value, str):
        text = printable(value)
    else:
        plain = json_value(value, zone)
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
        text = printable(text)
    if width_max is None or len(text) <= width_max:
        return text
    return text[: width_max - 1] + "…"


def _csv_cell(value: object, zone: tzinfo) -> object:
    plain = json_value(value, zone)
    if isinstance(plain, bool | dict | list):
        return json.dumps(plain)
    return plain


def _is_number(text: str) -> bool:
    return text == "-" or text.lstrip("-").replace(".", "", 1).isdigit()
