"""Commands about name servers, and about draining brokers through them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport, change_report

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin

_BROKER = click.option("-b", "--broker", required=True, help="Name of the broker.")
_NAMESPACE = click.option("-s", "--namespace", required=True, help="Namespace of the pair.")
_KEY = click.option("-k", "--key", required=True, help="Its key.")


@admin_command("getNamesrvConfig")
async def get_namesrv_config(admin: AsyncAdmin) -> CommandReport:
    """Show the settings of all name servers."""
    answers = await admin.namesrv_config()
    rows = [
        {"namesrv": server, "key": key, "value": value}
        for server, one in answers.found
        for key, value in one.values.items()
    ]
    return CommandReport(
        rows=[one for _, one in answers.found], table_rows=rows, failures=answers.failures
    )


@admin_command("updateNamesrvConfig", changes=True)
@_KEY
@click.option("-v", "--value", required=True, help="Its new value.")
async def update_namesrv_config(
    admin: AsyncAdmin, *, dry_run: bool, key: str, value: str
) -> CommandReport:
    """Change a setting of all name servers while they run."""
    return change_report(await admin.update_namesrv_config({key: value}, dry_run=dry_run))


@admin_command("updateKvConfig", changes=True)
@_NAMESPACE
@_KEY
@click.option("-v", "--value", required=True, help="Its value.")
async def update_kv_config(
    admin: AsyncAdmin, *, dry_run: bool, namespace: str, key: str, value: str
) -> CommandReport:
    """Set a key-value pair on all name servers."""
    return change_report(await admin.put_pair(namespace, key, value, dry_run=dry_run))


@admin_command("deleteKvConfig", changes=True)
@_NAMESPACE
@_KEY
async def delete_kv_config(
    admin: AsyncAdmin, *, dry_run: bool, namespace: str, key: str
) -> CommandReport:
    """Delete a key-value pair from all name servers."""
    return change_report(await admin.delete_pair(namespace, key, dry_run=dry_run))


@admin_command("wipeWritePerm", changes=True)
@_BROKER
async def wipe_write_perm(admin: AsyncAdmin, *, dry_run: bool, broker: str) -> CommandReport:
    """Let nobody send to a broker any more: do it before a restart."""
    return change_report(await admin.wipe_write_permission(broker, dry_run=dry_run))


@admin_command("addWritePerm", changes=True)
@_BROKER
async def add_write_perm(admin: AsyncAdmin, *, dry_run: bool, broker: str) -> CommandReport:
    """Let everybody send to a broker again."""
    return change_report(await admin.add_write_permission(broker, dry_run=dry_run))
