"""``flintmq serve``: a name server and brokers as one group."""

from __future__ import annotations

import functools
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintmq.broker import misspelt_keys, run_broker
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.servers.running import (
    announce,
    log_format_option,
    log_level_option,
    metrics_option,
    read_settings_file,
    refuse_unknown,
    run_until_stopped,
    set_option,
    start_logging,
)
from flintmq.cli.servers.serve_plan import Member, ServePlan
from flintmq.kernels.background_load import load_ahead
from flintmq.namesrv import run_namesrv

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence


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
@click.option(
    "--replicas",
    type=click.IntRange(0, 8),
    default=0,
    show_default=True,
    help="Slaves of each broker; --set brokerRole=SYNC_MASTER lets brokers wait for them.",
)
@click.option("--namesrvs", type=click.IntRange(1, 8), default=1, show_default=True)
@set_option
@metrics_option
@log_level_option
@log_format_option
def serve_command(
    data: Path,
    host: str,
    namesrv_port: int,
    broker_port: int,
    count: int,
    replicas: int,
    namesrvs: int,
    changes: tuple[str, ...],
    metrics_port: int | None,
    log_level: str,
    log_format: str,
) -> int:
    """Run a name server and one broker or more, as one group; with --replicas also slaves.

    Port 0 takes free ports.  One line tells when clients can connect.  Several brokers run as
    processes of their own, each with its own store, to use several cores.  Metrics of the first
    broker are on --metrics-port, those of the others and of name servers on the ports behind it.
    """
    start_logging(log_level, log_format)
    settings = read_settings_file(None, changes)
    refuse_unknown(changes, misspelt_keys(settings))
    plan = ServePlan(
        data=data.absolute(),
        host=host,
        namesrv_port=namesrv_port,
        broker_port=broker_port,
        count=count,
        settings=settings,
        replica_count=replicas,
        namesrv_count=namesrvs,
        metrics_port=metrics_port,
    )
    if left := plan.left_out():
        click.echo(f"flintmq: not started, though there from before: {', '.join(left)}", err=True)
    for member in plan.members():
        plan.broker_settings(member, "")  # A bad value is found before anything starts.

    if count > 1 or replicas or namesrvs > 1:
        return _serve_by_processes(plan, ("--log-level", log_level, "--log-format", log_format))
    run_until_stopped(functools.partial(_serve_here, plan))
    return EXIT_FINE


def _serve_by_processes(plan: ServePlan, log_options: Sequence[str]) -> int:
    """Run each broker as a process; return the exit code when all have ended."""
    # Only who runs several needs it.
    from flintmq.cli.servers.supervision import ProcessEndedError, supervise

    async def serve(stopped: asyncio.Event) -> None:
        await supervise(plan, stopped, ready=announce, log_options=log_options)

    try:
        run_until_stopped(serve)
    except ProcessEndedError as error:
        click.echo(f"flintmq: {error}", err=True)
        return EXIT_PROBLEMS
    return EXIT_FINE


async def _serve_here(plan: ServePlan, stopped: asyncio.Event) -> None:
    """Run name server and broker in this process."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(run_namesrv(plan.namesrv_configs()[0]))
        broker, store = plan.broker_settings(Member(0), namesrv.address)
        running = await stack.enter_async_context(
            run_broker(broker, store, overlay=plan.overlay(Member(0)))
        )
        plan.keep_settings(Member(0), running.context.config, store)
        metrics = [running.metrics_address, namesrv.metrics_address]
        announce(plan.ready_line(namesrv.address, [running.address], metrics))
        load_ahead()
        await stopped.wait()
