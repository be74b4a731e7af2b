"""``flintmq namesrv``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.servers.running import (
    announce,
    changes_beside,
    host_option,
    log_format_option,
    log_level_option,
    metrics_option,
    print_settings,
    properties_option,
    read_settings_file,
    refuse_unknown,
    run_until_stopped,
    set_option,
    start_logging,
    warn_of,
)
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.namesrv.config import SETTINGS
from flintmq.settings import refusals, refuse, unknown_keys
from flintmq.settings.metrics_settings import metrics_at

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path


@click.command("namesrv")
@properties_option
@host_option
@click.option("-p", "print_all", is_flag=True, help="Print all settings and exit.")
@click.option("-n", "ignored", hidden=True, help="Taken for the sake of scripts; not used.")
@set_option
@metrics_option
@log_level_option
@log_format_option
def namesrv_command(
    config_file: Path | None,
    host: str | None,
    print_all: bool,
    ignored: str | None,
    changes: tuple[str, ...],
    metrics_port: int | None,
    log_level: str,
    log_format: str,
) -> int:
    """Run a name server."""
    start_logging(log_level, log_format)
    properties = read_settings_file(config_file, changes)
    if host is not None:
        properties["bindAddress"] = host
    if metrics_port is not None:
        properties |= metrics_at(metrics_port)
    unknown = unknown_keys(properties, [SETTINGS])
    refuse_unknown(changes, unknown)
    warn_of(unknown)
    refuse(refusals(SETTINGS, properties))
    config = NamesrvConfig.from_properties(properties)
    if config_file is not None and "configStorePath" not in properties:
        overlay = changes_beside(config_file)
        config = NamesrvConfig.from_properties(properties | {"configStorePath": str(overlay)})
    if print_all:
        print_settings(config.to_properties())
        return EXIT_FINE

    async def serve(stopped: asyncio.Event) -> None:
        async with run_namesrv(config) as running:
            announce(
                "The Name Server boot success. "
                f"serializeType={config.serialize_type.value}, address={running.address}",
                metrics=running.metrics_address,
            )
            await stopped.wait()

    run_until_stopped(serve)
    return EXIT_FINE
