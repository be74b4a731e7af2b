"""Rows of an answer as a table, as CSV, as lines of JSON."""

import base64
import csv
import datetime
import decimal
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TextIO

from flintmq.cli.output.text import printable

CELL_WIDTH_MAX: Final = 60
Row = Sequence[object]


def table_lines(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """Yield the lines of a table whose columns are as wide as what is in them.

    All rows are looked at first: a table is for a limited number of them.
    """
    cells = [[text_cell(value) for value in row] for row in rows]
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


def write_csv(columns: Sequence[str], rows: Iterable[Row], target: TextIO) -> None:
    """Write a head line and the rows; null is nothing, and what is nested is JSON."""
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_csv_cell(value) for value in row])


def write_json_lines(columns: Sequence[str], rows: Iterable[Row], target: TextIO) -> None:
    """Write one object a line."""
    for row in rows:
        target.write(json.dumps(json_object(columns, row), separators=(",", ":")) + "\n")


WRITERS: Final[dict[str, Callable[[Sequence[str], Iterable[Row], TextIO], None]]] = {
    "csv": write_csv,
    "jsonl": write_json_lines,
}


def json_object(columns: Sequence[str], row: Row) -> dict[str, object]:
    """Return a row as an object of JSON."""
    return {name: json_value(value) for name, value in zip(columns, row, strict=True)}


def json_value(value: object) -> object:
    """Return a value of Spark as JSON has it: bytes in base64, times in ISO form and UTC."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case datetime.datetime():
            return _moment(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case dict():
            return {str(key): json_value(item) for key, item in value.items()}
        case tuple() if hasattr(value, "asDict"):
            return {name: json_value(item) for name, item in value.asDict().items()}
        case list() | tuple():
            return [json_value(item) for item in value]
    return str(value)


def text_cell(value: object) -> str:
    """Return a value fit for a terminal, cut to a width that leaves room for others."""
    if value is None:
        text = "-"
    elif isinstance(value, bytes | bytearray):
        text = printable(bytes(value).decode("utf-8", "backslashreplace"))
    elif isinstance(value, str):
        text = printable(value)
    else:
        plain = json_value(value)
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
        text = printable(text)
    return text if len(text) <= CELL_WIDTH_MAX else text[: CELL_WIDTH_MAX - 1] + "…"


def _csv_cell(value: object) -> object:
    plain = json_value(value)
    if isinstance(plain, bool | dict | list):
        return json.dumps(plain)
    return plain


def _moment(value: datetime.datetime) -> str:
    # PySpark hands an instant over in the time of this machine, without saying so.
    moment = value.astimezone(datetime.UTC).isoformat(timespec="microseconds")
    return moment.removesuffix("+00:00").removesuffix("000") + "Z"


def _is_number(text: str) -> bool:
    return text == "-" or text.lstrip("-").replace(".", "", 1).isdigit()
