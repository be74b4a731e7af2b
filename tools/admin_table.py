"""The table of ``flintmq admin``, made from the code: ``python -m tools.admin_table``.

`tests/unit/admin/test_admin_page.py` fails when the document is not the table.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from flintmq.cli.admin.admin_group import admin_group
from flintmq.cli.admin.command_frame import frame_options
from flintmq.cli.admin.command_table import COMMANDS

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "operating" / "admin.md"
BEGIN, END = "<!-- generated: commands -->", "<!-- end -->"


def lines() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| Command | Options of its own (needed ones in bold) | What it does |"
    yield "| --- | --- | --- |"
    family = ""
    for row in COMMANDS:
        if row.family != family:
            family = row.family
            yield f"| *{family}* | | |"
        yield f"| `{row.name}` | {_options(row.name)} | {row.summary} |"


def _options(name: str) -> str:
    with click.Context(admin_group) as context:
        command = admin_group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            return ", ".join(f"`{one}`" for one in command.list_commands(context))
        shared = [one.opts for kind in (True, False) for one in _shared(changes=kind)]
        own = [one for one in command.params if not any(set(one.opts) <= set(o) for o in shared)]
    return ", ".join(map(_option, own)) or "—"


def _shared(*, changes: bool) -> list[click.Option]:
    return frame_options(has_output_letter=True, changes=changes)


def _option(option: click.Parameter) -> str:
    text = f"`{' '.join(option.opts)}`"
    return f"**{text}**" if option.required else text


def written(page: str) -> str:
    """Return the page with the table as it has to be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n" + "\n".join(lines()) + f"\n{END}{after}"


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
