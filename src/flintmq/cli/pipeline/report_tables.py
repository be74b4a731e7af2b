"""Tables of reports."""

import io
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from flintmq.cli.output.text import printable

Heads: TypeAlias = tuple[str, ...]
_WIDTH_MAX: Final = 1000
"""Wider than any table: lines are left to the terminal, so that a pipe gets them whole."""


def table_texts(
    title: str, heads: Heads, rows: Sequence[Sequence[str]], count: int
) -> Iterator[str]:
    """Yield the lines of a table; none if it has no rows.

    A head that starts with ``>`` stands over numbers.  ``count`` is how many rows there are in
    all; those that are not shown are told.
    """
    if not rows:
        return
    # Most commands print no table and need not load this.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in heads:
        is_number = head.startswith(">")
        table.add_column(
            Text(head.removeprefix(">")), justify="right" if is_number else "left", no_wrap=True
        )
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    target = io.StringIO()
    Console(file=target, width=_WIDTH_MAX, color_system=None).print(table)
    yield ""
    yield f"{title}:"
    yield from (line.rstrip() for line in target.getvalue().splitlines())
    if count > len(rows):
        yield f"and {count - len(rows)} more"
