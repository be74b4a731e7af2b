"""A group of commands whose modules are loaded when they are asked for.

Loading all that any command may need takes longer than a broker needs to start.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from flintmq.cli.collector_pause import collector_paused


class LazyGroup(click.Group):
    """Has commands by name, each as ``module:attribute``."""

    def __init__(self, *args: Any, commands_at: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order they were given."""
        return [*self._commands_at, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; its module is loaded now."""
        location = self._commands_at.get(cmd_name)
        if location is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = location.partition(":")
        with collector_paused():
            command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), location
        return command
