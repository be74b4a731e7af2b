"""``flintmq namesrv``, ``flintmq broker`` and ``flintmq serve``: what runs until it is stopped."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import uvloop

from flintmq.broker import BrokerConfig, misspelt_keys, read_settings, run_broker
from flintmq.cli.exit_codes import EXIT_PROBLEMS
from flintmq.cli.serve_plan import ServePlan
from flintmq.cli.supervision import PartDiedError, supervise
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.namesrv.config import SETTINGS as NAMESRV_SETTINGS
from flintmq.settings import read_properties, unknown_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

COLLECT_EVERY: Final = 50_000
"""Objects made, less those gone, between two looks of the garbage collector."""
_LOG_LEVELS = ["debug", "info", "warning", "error"]

_properties_option = click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A properties file with RocketMQ's keys.",
)
_log_level_option = click.option(
    "--log-level", type=click.Choice(_LOG_LEVELS), default="info", show_default=True
)
_set_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, by RocketMQ's name; repeatable.",
)


@click.command("namesrv")
@_properties_option
@click.option("-p", "print_all", is_flag=True, help="Print all settings and exit.")
@click.option("-n", "ignored", hidden=True, help="Taken for the sake of scripts; not used.")
@_set_option
@_log_level_option
def namesrv_command(
    config_file: Path | None,
    print_all: bool,
    ignored: str | None,
    changes: tuple[str, ...],
    log_level: str,
) -> int:
    """Run a name server."""
    start_logging(log_level)
    properties = _properties(config_file, changes)
    _warn_of(unknown_keys(properties, [NAMESRV_SETTINGS]))
    config = NamesrvConfig.from_properties(properties)
    if config_file is not None and "configStorePath" not in properties:
        overlay = config_file.with_name(config_file.name + ".changes")
        config = NamesrvConfig.from_properties(properties | {"configStorePath": str(overlay)})
    if print_all:
        _print(config.to_properties())
        return 0

    async def serve(stopped: asyncio.Event) -> None:
        async with run_namesrv(config) as running:
            _say(f"The Name Server boot success. serializeType=JSON, address={running.address}")
            await stopped.wait()

    return run_until_stopped(serve)


@click.command("broker")
@_properties_option
@click.option("-n", "namesrv", metavar="ADDRS", help="Name servers, with ; between them.")
@click.option("-p", "print_all", is_flag=True, help="Print all settings and exit.")
@click.option("-m", "print_important", is_flag=True, help="Print the important settings and exit.")
@click.option("--stop-with-stdin", is_flag=True, hidden=True)
@_set_option
@_log_level_option
def broker_command(
    config_file: Path | None,
    namesrv: str | None,
    print_all: bool,
    print_important: bool,
    stop_with_stdin: bool,
    changes: tuple[str, ...],
    log_level: str,
) -> int:
    """Run a broker."""
    start_logging(log_level)
    properties = _properties(config_file, changes)
    if namesrv is not None:
        properties["namesrvAddr"] = namesrv
    _warn_of(misspelt_keys(properties))
    broker, store = read_settings(properties)
    if print_all or print_important:
        shown = broker.to_properties() | store.to_properties(java_only=False)
        _print({k: v for k, v in shown.items() if print_all or k in IMPORTANT_KEYS})
        return 0
    overlay = config_file and config_file.with_name(config_file.name + ".changes")

    async def serve(stopped: asyncio.Event) -> None:
        if stop_with_stdin:
            _stop_at_end_of(sys.stdin.fileno(), stopped)
        async with run_broker(broker, store, overlay=overlay) as running:
            _say(boot_line(broker, running.address))
            await stopped.wait()

    return run_until_stopped(serve)


@click.command("serve")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("flintmq-data"),
    show_default=True,
    metavar="DIR",
    help="Where everything is kept.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--namesrv-port", type=click.IntRange(0, 65535), default=9876, show_default=True)
@click.option("--broker-port", type=click.IntRange(0, 65535), default=10911, show_default=True)
@click.option("--brokers", "count", type=click.IntRange(1, 26), default=1, show_default=True)
@_set_option
@_log_level_option
def serve_command(
    data: Path,
    host: str,
    namesrv_port: int,
    broker_port: int,
    count: int,
    changes: tuple[str, ...],
    log_level: str,
) -> int:
    """Run a name server and one broker or more, as one group.

    Port 0 takes free ports.  One line tells when clients can connect.  Several brokers run as
    processes of their own, each with its own store, to use several cores.
    """
    start_logging(log_level)
    settings = _changes(changes)
    _warn_of(misspelt_keys(settings))
    plan = ServePlan(
        data=data.absolute(),
        host=host,
        namesrv_port=namesrv_port,
        broker_port=broker_port,
        count=count,
        settings=settings,
    )
    plan.broker_settings(0, "")  # A bad value is found before anything starts.

    async def serve(stopped: asyncio.Event) -> None:
        if count > 1:
            await supervise(plan, stopped, ready=_say, log_level=log_level)
        else:
            await _serve_here(plan, stopped)

    return run_until_stopped(serve)


async def _serve_here(plan: ServePlan, stopped: asyncio.Event) -> None:
    """Run name server and broker in this process."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(run_namesrv(plan.namesrv_config()))
        broker, store = plan.broker_settings(0, namesrv.address)
        running = await stack.enter_async_context(run_broker(broker, store))
        plan.keep_settings(0, running.parts.config, store)
        _say(plan.ready_line(namesrv.address, [running.address]))
        await stopped.wait()


def boot_line(config: BrokerConfig, address: str) -> str:
    """Return the line by which scripts know that a broker is up."""
    servers = config.namesrv_addr
    told = f" and name server is {servers}" if servers else ""
    return f"The broker[{config.name}, {address}] boot success. serializeType=JSON{told}"


def run_until_stopped(serve: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run until SIGINT or SIGTERM; return the exit code."""

    async def run() -> None:
        _calm_collector()
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        await serve(stopped)

    try:
        uvloop.run(run())
    except PartDiedError as error:
        click.echo(f"flintmq: {error}", err=True)
        return EXIT_PROBLEMS
    return 0


def _calm_collector() -> None:
    """Let the garbage collector look more rarely: what a message leaves behind has no cycles.

    At its usual pace it would take an eighth of the time of a send.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, 20, 50)


def _stop_at_end_of(descriptor: int, stopped: asyncio.Event) -> None:
    """Stop when whoever started this process is gone: then its end of the pipe closes."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stopped.set()

    loop.add_reader(descriptor, read)


def start_logging(level: str) -> None:
    """Send the log to standard error."""
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )


def _properties(path: Path | None, changes: tuple[str, ...]) -> dict[str, str]:
    properties: dict[str, str] = {}
    if path is not None:
        try:
            properties = read_properties(path.read_bytes())
        except OSError as error:
            raise click.UsageError(f"{path}: {error.strerror}") from error
    return properties | _changes(changes)


def _changes(texts: tuple[str, ...]) -> dict[str, str]:
    changes = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"--set is KEY=VALUE, not {text!r}")
        changes[key.strip()] = value.strip()
    return changes


def _warn_of(unknown: Mapping[str, str | None]) -> None:
    for key, nearest in unknown.items():
        hint = f"; did you mean {nearest}?" if nearest else ""
        click.echo(f"flintmq: unknown setting {key}{hint}", err=True)


def _print(properties: Mapping[str, Any]) -> None:
    for key, value in sorted(properties.items()):
        click.echo(f"{key}={value}")


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


IMPORTANT_KEYS = frozenset(
    {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerClusterName",
        "brokerIP1",
        "brokerIP2",
        "brokerId",
        "brokerName",
        "brokerPermission",
        "brokerRole",
        "brokerTopicEnable",
        "cleanFileForciblyEnable",
        "clusterTopicEnable",
        "defaultTopicQueueNums",
        "deleteCommitLogFilesInterval",
        "deleteConsumeQueueFilesInterval",
        "deleteWhen",
        "destroyMapedFileIntervalForcibly",
        "fetchNamesrvAddrByAddressServer",
        "fileReservedTime",
        "flushCommitLogTimed",
        "flushDiskType",
        "flushIntervalCommitLog",
        "haMasterAddress",
        "haSlaveFallbehindMax",
        "listenPort",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferCountOnMessageInMemory",
        "messageIndexEnable",
        "messageIndexSafe",
        "namesrvAddr",
        "redeleteHangedFileInterval",
        "rejectTransactionMessage",
        "storePathCommitLog",
        "storePathRootDir",
        "traceTopicEnable",
        "transactionCheckInterval",
        "transactionCheckMax",
        "transactionTimeOut",
    }
)
