"""``flintmq admin``: the group of all commands; their help is shown without loading them."""

from __future__ import annotations

import logging
from typing import Any, Final

import click

from flintmq.cli.admin.command_table import COMMANDS
from flintmq.cli.lazy_group import LazyGroup

ALIASES: Final = {"deleteaccessconfig": "deleteAclConfig"}
"""Names that some releases of mqadmin have for a command."""


class AdminGroup(LazyGroup):
    """Shows its commands by family."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command does, from the table."""
        for family in dict.fromkeys(row.family for row in COMMANDS):
            with formatter.section(family):
                rows = [(row.name, row.summary) for row in COMMANDS if row.family == family]
                formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; as with mqadmin, upper and lower case are alike."""
        known = {row.name.lower(): row.name for row in COMMANDS} | ALIASES
        return super().get_command(ctx, known.get(cmd_name.lower(), cmd_name))


@click.group(
    "admin",
    cls=AdminGroup,
    commands_at={row.name: row.location for row in COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("-n", "--namesrv", metavar="ADDRS", help="Name servers, ; between them.")
@click.option("--context", "context_name", metavar="NAME", help="A cluster of `flintmq context`.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json", "jsonl", "csv", "yaml")),
    help="Form of the output; table unless given.",
)
@click.option("--timeout", type=click.FloatRange(min=0.1, max=3600), metavar="SECONDS")
@click.option("--debug", is_flag=True, help="Show where in the code an error arose.")
@click.pass_context
def admin_group(
    context: click.Context,
    namesrv: str | None,
    context_name: str | None,
    output: str | None,
    timeout: float | None,
    debug: bool,
) -> None:
    """Look after a cluster: all commands of mqadmin, by their names and letters, and more.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 denied, 5 partly done.
    """
    from flintmq.cli.admin.command_frame import CommandFrame

    if not debug:
        # An operator is told what a command says, not what parts of it write to the log.
        logging.getLogger("flintmq").addHandler(logging.NullHandler())
    frame = CommandFrame()
    said: dict[str, Any] = {
        "namesrv": namesrv,
        "context": context_name,
        "output": output,
        "timeout_s": timeout,
        "debug": debug,
    }
    context.obj = frame.taken_over(said)
