"""Rows as a table of text, in which no value is ever cut."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from flintmq.cli.output.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_GAP: Final = "  "


def table_lines(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str] | None = None
) -> Iterator[str]:
    """Yield the lines of a table with a heading; numbers stand at the right of their column.

    Without ``columns`` all members are shown, in the order in which they first come.
    """
    names = list(columns or dict.fromkeys(name for row in rows for name in row))
    if not names:
        return
    cells = [[cell_text(row.get(name)) for name in names] for row in rows]
    widths = [
        max([text_width(_heading(name)), *(text_width(line[at]) for line in cells)])
        for at, name in enumerate(names)
    ]
    right = [bool(rows) and all(_is_number(row.get(name)) for row in rows) for name in names]
    for line in ([_heading(name) for name in names], *cells):
        padded = (
            _pad(text, width, is_right=is_right)
            for text, width, is_right in zip(line, widths, right, strict=True)
        )
        yield _GAP.join(padded).rstrip()


def cell_text(value: object) -> str:
    """Return a value as it stands in one cell; objects and lists stand on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, dict):
        return ", ".join(f"{name}={cell_text(one)}" for name, one in value.items()) or "-"
    if isinstance(value, list | tuple):
        between = "; " if any(isinstance(one, dict) for one in value) else ", "
        return between.join(map(cell_text, value)) or "-"
    return printable(str(value))


def text_width(text: str) -> int:
    """Return how many places a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def _heading(name: str) -> str:
    words = "".join(f" {one}" if one.isupper() else one for one in name)
    return words.upper()


def _pad(text: str, width: int, *, is_right: bool) -> str:
    space = " " * (width - text_width(text))
    return space + text if is_right else text + space


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
