"""``flintmq broker``."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Final

import click

from flintmq.broker import BrokerConfig, misspelt_keys, read_settings, run_broker
from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.lazy_group import LazyGroup
from flintmq.cli.servers.running import (
    NAMESRV_ENVIRONMENT,
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
from flintmq.kernels.background_load import load_ahead
from flintmq.settings.metrics_settings import metrics_at

if TYPE_CHECKING:
    from pathlib import Path

IMPORTANT_KEYS: Final = frozenset(
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


@click.group(
    "broker",
    cls=LazyGroup,
    commands_at={
        "promote": "flintmq.cli.servers.role_commands:promote_command",
        "rejoin": "flintmq.cli.servers.role_commands:rejoin_command",
    },
    invoke_without_command=True,
    subcommand_metavar="[promote|rejoin] ...",
)
@properties_option
@click.option("-n", "namesrv", metavar="ADDRS", help="Name servers, with ; between them.")
@host_option
@click.option("-p", "print_all", is_flag=True, help="Print all settings and exit.")
@click.option("-m", "print_important", is_flag=True, help="Print the important settings and exit.")
@click.option("--stop-with-stdin", is_flag=True, hidden=True)
@set_option
@metrics_option
@log_level_option
@log_format_option
@click.pass_context
def broker_command(
    context: click.Context,
    config_file: Path | None,
    namesrv: str | None,
    host: str | None,
    print_all: bool,
    print_important: bool,
    stop_with_stdin: bool,
    changes: tuple[str, ...],
    metrics_port: int | None,
    log_level: str,
    log_format: str,
) -> int:
    """Run a broker; or, with a command, change the role of one that does not run."""
    if context.invoked_subcommand is not None:
        return EXIT_FINE
    start_logging(log_level, log_format)
    properties = read_settings_file(config_file, changes)
    if host is not None:
        properties["bindAddress"] = host
    if metrics_port is not None:
        properties |= metrics_at(metrics_port)
    known_servers = namesrv or properties.get("namesrvAddr") or os.environ.get(NAMESRV_ENVIRONMENT)
    if known_servers:
        properties["namesrvAddr"] = known_servers
    unknown = misspelt_keys(properties)
    refuse_unknown(changes, unknown)
    warn_of(unknown)
    broker, store = read_settings(properties)
    if print_all or print_important:
        shown = broker.to_properties() | store.to_properties(java_only=False)
        print_settings({k: v for k, v in shown.items() if print_all or k in IMPORTANT_KEYS})
        return EXIT_FINE
    beside = store.root / "config" / "broker.conf" if config_file is None else config_file
    overlay = changes_beside(beside)

    async def serve(stopped: asyncio.Event) -> None:
        if stop_with_stdin:
            _stop_at_end_of(sys.stdin.fileno(), stopped)
        async with run_broker(broker, store, overlay=overlay) as running:
            announce(boot_line(broker, running.address), metrics=running.metrics_address)
            load_ahead()
            await stopped.wait()

    run_until_stopped(serve)
    return EXIT_FINE


def boot_line(config: BrokerConfig, address: str) -> str:
    """Return the line by which scripts know that a broker is up."""
    servers = config.namesrv_addr
    told = f" and name server is {servers}" if servers else ""
    kind = config.serialize_type.value
    return f"The broker[{config.name}, {address}] boot success. serializeType={kind}{told}"


def _stop_at_end_of(descriptor: int, stopped: asyncio.Event) -> None:
    """Stop when whoever started this process is gone: then its end of the pipe closes."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stopped.set()

    loop.add_reader(descriptor, read)
