"""``flintmq config check``."""

from __future__ import annotations

from pathlib import Path

import click

from flintmq.cli.configs.config_check import ConfigCheck, ServerKind, Verdict, check_config
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.output.console import write_line
from flintmq.cli.output.json_output import to_json, with_members
from flintmq.cli.output.text import printable
from flintmq.cli.servers.running import read_settings_file


@click.group("config")
def config_group() -> None:
    """Look at files of settings."""


@config_group.command("check")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in ServerKind]),
    help="Whose file it is; unless given, that is seen by its keys.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def check_command(file: Path, kind: str | None, form: str) -> int:
    """Tell all that is wrong with the file of a broker or name server, without starting it.

    A refused value keeps a server from starting, an unknown key is left out with a warning, and a
    key without meaning is taken and changes nothing.  Exit code 1 for the first two.
    """
    properties = read_settings_file(file, ())
    found = check_config(properties, None if kind is None else ServerKind(kind))
    if form == "json":
        write_line(to_json(with_members(found, file=str(file), sound=found.is_sound)))
    else:
        for line in _lines(file, found):
            write_line(line)
    return EXIT_FINE if found.is_sound else EXIT_PROBLEMS


def _lines(file: Path, found: ConfigCheck) -> list[str]:
    lines = [
        f"{one.verdict.value}: {printable(one.key)}={printable(one.value)} ({one.reason})"
        for one in found.settings
    ]
    counts = [
        f"{count} {verdict.value}"
        for verdict in Verdict
        if (count := sum(one.verdict is verdict for one in found.settings))
    ]
    told = ", ".join(counts) or "nothing to say"
    return [*lines, f"{file}: a file of a {found.kind.value}, {found.key_count} keys: {told}"]
