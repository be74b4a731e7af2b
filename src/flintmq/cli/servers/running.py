"""What commands that run until they are stopped share: options, log, signals, announcement."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import uvloop

from flintmq.cli.servers.log_lines import JsonFormatter, OneLineFormatter
from flintmq.kernels.background_load import freeze_loaded
from flintmq.settings import read_properties
from flintmq.settings.log_levels import LEVELS
from flintmq.settings.tls_settings import PASSWORD_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

COLLECT_EVERY: Final = (5000, 2, 5000)
"""When the garbage collector looks at the youngest objects, the younger ones, and all.

It looks when so many objects were made, less those gone; at the younger ones every third time, and
at all of them every 5,000th of those times.  A look at 50,000 objects took 15 to 50 ms, which holds
every client; one at 15,000 takes less than a turn of the loop may.
"""
SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread may keep the interpreter from another one that waits for it.

The loop lets go of it at every look at its sockets.  While a thread encodes state, or loads machine
code, it would get it back only after Python's usual 5 ms, each time.
"""
METRICS_LINE: Final = "metrics: "
"""Begins the line that tells where metrics are; it comes before the one of a start."""
TEXT_FORMAT, JSON_FORMAT = "text", "json"
SERIALIZE_TYPE: Final = "rocketmq.serialize.type"
SERIALIZE_TYPE_ENVIRONMENT: Final = "ROCKETMQ_SERIALIZE_TYPE"
NAMESRV_ENVIRONMENT: Final = "NAMESRV_ADDR"

properties_option = click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A properties file with RocketMQ's keys.",
)
host_option = click.option(
    "--host",
    metavar="ADDRESS",
    help="The address to listen on: bindAddress. 0.0.0.0 for all; loopback unless given.",
)
log_level_option = click.option(
    "--log-level", type=click.Choice(LEVELS), default="info", show_default=True
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice([TEXT_FORMAT, JSON_FORMAT]),
    default=TEXT_FORMAT,
    show_default=True,
    help="How the lines of the log are written.",
)
metrics_option = click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Show metrics and health by HTTP, on loopback unless metricsPromExporterHost is set.",
)
set_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, by RocketMQ's name; repeatable.",
)


def run_until_stopped(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run until SIGINT or SIGTERM."""

    async def run() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        await serve(stopped)

    uvloop.run(run())


def announce(line: str, *, metrics: str | None = None) -> None:
    """Say that clients can connect, and where metrics are; do the rest afterwards."""
    if metrics is not None:
        click.echo(f"{METRICS_LINE}http://{metrics}/metrics")
    click.echo(line)
    sys.stdout.flush()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _calm_collector()


def _calm_collector() -> None:
    """Let the garbage collector look more rarely: what a message leaves behind has no cycles.

    At its usual pace it would take an eighth of the time of a send.  It never looks at what the
    start has left: that stays, and one look at it would hold clients for 20 to 40 ms.
    """
    freeze_loaded()
    gc.set_threshold(*COLLECT_EVERY)


def start_logging(level: str, log_format: str = TEXT_FORMAT) -> None:
    """Send the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == JSON_FORMAT else OneLineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def read_settings_file(path: Path | None, changes: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of a file, where there is one, with changes on top.

    What RocketMQ takes from the environment counts where neither says anything.
    """
    properties: dict[str, str] = {}
    serialize_type = os.environ.get(SERIALIZE_TYPE_ENVIRONMENT)
    if serialize_type:
        properties[SERIALIZE_TYPE] = serialize_type
    if path is not None:
        try:
            properties |= read_properties(path.read_bytes())
        except OSError as error:
            raise click.UsageError(f"{path}: {error.strerror}") from error
    return properties | parse_changes(changes)


def changes_beside(config_file: Path) -> Path:
    """Return where changes are kept that are made while a server runs on a file of settings."""
    return config_file.with_name(config_file.name + ".changes")


def parse_changes(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the settings that ``--set`` brought."""
    changes = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"--set is KEY=VALUE, not {text!r}")
        changes[key.strip()] = value.strip()
    return changes


def refuse_unknown(changes: tuple[str, ...], unknown: Mapping[str, str | None]) -> None:
    """Raise UsageError for settings of ``--set`` that nobody knows; a file may have others."""
    wrong = [_suggestion(key, unknown[key]) for key in parse_changes(changes) if key in unknown]
    if wrong:
        raise click.UsageError(f"--set: {'; '.join(wrong)}")


def warn_of(unknown: Mapping[str, str | None]) -> None:
    """Warn of unknown settings, and suggest what they may have been meant to be."""
    for key, nearest in unknown.items():
        click.echo(f"flintmq: {_suggestion(key, nearest)}", err=True)


def _suggestion(key: str, nearest: str | None) -> str:
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"unknown setting {key}{hint}"


def print_settings(properties: Mapping[str, Any]) -> None:
    """Print settings as a properties file has them, passwords left out."""
    for key, value in sorted(properties.items()):
        click.echo(f"{key}={'***' if key.endswith(PASSWORD_SUFFIX) else value}")
