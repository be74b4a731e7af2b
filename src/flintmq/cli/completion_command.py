"""``flintmq completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from flintmq.cli.exit_codes import EXIT_FINE


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> int:
    """Print a script for a shell; bash: `eval "$(flintmq completion bash)"` in ~/.bashrc."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = context.find_root().command
    click.echo(kind(root, {}, "flintmq", "_FLINTMQ_COMPLETE").source())
    return EXIT_FINE
