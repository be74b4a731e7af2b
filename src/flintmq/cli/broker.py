"""``flintmq broker``."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Final

import click

from flintmq.broker import BrokerConfig, misspelt_keys, read_settings, run_broker
from flintmq.cli.exit_codes import EXIT_FINE
from flintmq.cli.running import (
    announce,
    log_level_option,
    print_settings,
    properties_option,
    read_settings_file,
    run_until_stopped,
    set_option,
    start_logging,
    warn_of,
)

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


@click.command("broker")
@properties_option
@click.option("-n", "namesrv", metavar="ADDRS", help="Name servers, with ; between them.")
@click.option("-p", "print_all", is_flag=True, help="Print all settings and exit.")
@click.option("-m", "print_important", is_flag=True, help="Print the important settings and exit.")
@click.option("--stop-with-stdin", is_flag=True, hidden=True)
@set_option
@log_level_option
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
    properties = read_settings_file(config_file, changes)
    if namesrv is not None:
        properties["namesrvAddr"] = namesrv
    warn_of(misspelt_keys(properties))
    broker, store = read_settings(properties)
    if print_all or print_important:
        shown = broker.to_properties() | store.to_properties(java_only=False)
        print_settings({k: v for k, v in shown.items() if print_all or k in IMPORTANT_KEYS})
        return EXIT_FINE
    overlay = config_file and config_file.with_name(config_file.name + ".changes")

    async def serve(stopped: asyncio.Event) -> None:
        if stop_with_stdin:
            _stop_at_end_of(sys.stdin.fileno(), stopped)
        async with run_broker(broker, store, overlay=overlay) as running:
            announce(boot_line(broker, running.address))
            await stopped.wait()

    run_until_stopped(serve)
    return EXIT_FINE


def boot_line(config: BrokerConfig, address: str) -> str:
    """Return the line by which scripts know that a broker is up."""
    servers = config.namesrv_addr
    told = f" and name server is {servers}" if servers else ""
    return f"The broker[{config.name}, {address}] boot success. serializeType=JSON{told}"


def _stop_at_end_of(descriptor: int, stopped: asyncio.Event) -> None:
    """Stop when whoever started this process is gone: then its end of the pipe closes."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stopped.set()

    loop.add_reader(descriptor, read)
