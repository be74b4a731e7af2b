"""``flintmq broker promote`` and ``rejoin``: failover by hand."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintmq.access.credentials_file import signer
from flintmq.broker import read_settings
from flintmq.broker.failover.promotion import check_promotion, promoted
from flintmq.broker.failover.rejoin import Rejoining, find_master
from flintmq.cli.exit_codes import EXIT_FINE, EXIT_PROBLEMS
from flintmq.cli.servers.running import (
    NAMESRV_ENVIRONMENT,
    changes_beside,
    read_settings_file,
    start_logging,
)
from flintmq.client.options import ClientOptions
from flintmq.settings import read_properties, write_properties
from flintmq.settings.durable_file import replace_durably

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flintmq.broker import BrokerConfig, StoreConfig
    from flintmq.broker.failover.rejoin import Surplus
    from flintmq.format.wire.command import Command

TOPICS_SHOWN_MAX = 20

_file_option = click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
    help="The properties file of the broker; its role is changed in it.",
)
_namesrv_option = click.option(
    "-n", "namesrv", metavar="ADDRS", help="Name servers, with ; between them."
)


@click.command("promote")
@_file_option
@_namesrv_option
@click.option(
    "--role",
    type=click.Choice(["ASYNC_MASTER", "SYNC_MASTER"]),
    default="ASYNC_MASTER",
    show_default=True,
    help="What the slave becomes.",
)
@click.option(
    "--unchecked",
    is_flag=True,
    help="Do not ask name servers: you know that the old master is down and stays down.",
)
def promote_command(config_file: Path, namesrv: str | None, role: str, unchecked: bool) -> int:
    """Make a stopped slave the master of its group.

    The name servers are asked first: while one of them knows a master of the group, nothing is
    changed.  Start the broker again afterwards.
    """
    start_logging("warning")
    broker, store = _settings(config_file, namesrv)
    asyncio.run(check_promotion(broker, store, asks=not unchecked, sign=_signer()))
    _change_file(config_file, promoted(type(store.broker_role)(role)))
    click.echo(f"{broker.name} is a master now ({role}); start it: flintmq broker -c {config_file}")
    return EXIT_FINE


@click.command("rejoin")
@_file_option
@_namesrv_option
@click.option(
    "--id", "broker_id", type=click.IntRange(1), default=1, show_default=True, help="Its brokerId."
)
@click.option("--yes", is_flag=True, help="Set the surplus aside and change the role.")
def rejoin_command(config_file: Path, namesrv: str | None, broker_id: int, yes: bool) -> int:
    """Make a stopped broker, mostly an old master, a slave of the present master of its group.

    Its log is compared with the master's.  What the master lacks is shown; with --yes it is set
    aside in files below `recovered` in the store, and the log ends before it.
    """
    start_logging("warning")
    broker, store = _settings(config_file, namesrv)
    master = asyncio.run(find_master(broker, store, sign=_signer()))
    with Rejoining.opened(store, master) as rejoining:
        surplus = asyncio.run(rejoining.surplus())
        for line in _surplus_lines(surplus, master.address):
            click.echo(line)
        if not yes:
            click.echo("nothing was changed; say --yes to do it")
            return EXIT_PROBLEMS if surplus.size else EXIT_FINE
        if surplus.size:
            for path in rejoining.cut(surplus):
                click.echo(f"set aside: {path}")
    _change_file(config_file, {"brokerRole": "SLAVE", "brokerId": str(broker_id)})
    click.echo(f"{broker.name} is a slave now; start it: flintmq broker -c {config_file}")
    return EXIT_FINE


def _surplus_lines(surplus: Surplus, address: str) -> list[str]:
    if not surplus.size:
        return [f"the log ends at {surplus.end}, and the master at {address} has all of it"]
    times = [
        datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
        for ms in (surplus.first_ms, surplus.last_ms)
    ]
    lines = [
        f"the master at {address} lacks {surplus.size} bytes from {surplus.begin} to "
        f"{surplus.end}: {surplus.messages.total()} messages, stored from {times[0]} to {times[1]}"
    ]
    shown = surplus.messages.most_common(TOPICS_SHOWN_MAX)
    lines += [f"  {topic}: {count} messages" for topic, count in shown]
    if len(surplus.messages) > len(shown):
        lines.append(f"  and {len(surplus.messages) - len(shown)} more topics")
    return lines


def _settings(config_file: Path, namesrv: str | None) -> tuple[BrokerConfig, StoreConfig]:
    """Return the settings as a start of the broker would find them.

    Name servers that were changed while it ran count too: others may know of no master.
    """
    properties = read_settings_file(config_file, ())
    kept = changes_beside(config_file)
    if kept.exists():
        properties |= read_properties(kept.read_bytes())
    known = namesrv or properties.get("namesrvAddr") or os.environ.get(NAMESRV_ENVIRONMENT)
    return read_settings(properties | ({"namesrvAddr": known} if known else {}))


def _signer() -> Callable[[Command], None] | None:
    """Return what signs requests with the keys of the environment, None if it has none."""
    keys = ClientOptions().signing_credentials
    if keys is None:
        return None
    return signer(
        access_key=keys.access_key,
        secret_key=keys.secret_key,
        security_token=keys.security_token,
    )


def _change_file(config_file: Path, changes: Mapping[str, str]) -> None:
    """Change settings in a file durably; all others stay, their comments do not."""
    properties = read_properties(config_file.read_bytes())
    replace_durably(config_file, write_properties({**properties, **changes}))
