"""Commands about access control.  A secret key is never an argument: others could read it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from flintmq.admin.account_admin import AccountSettings
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport, change_report
from flintmq.cli.admin.place_options import broker_or_cluster
from flintmq.client.errors import UsageError

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin

SECRET_ENVIRONMENT: Final = "FLINTMQ_NEW_SECRET_KEY"
SECRET_SIZE_MAX: Final = 4096
_ACCESS_KEY = click.option("-a", "--access-key", required=True, help="Name of the account.")


def read_secret(path: str | None) -> str | None:
    """Return a new secret key from a file, from standard input (``-``) or the environment."""
    if path is None:
        return os.environ.get(SECRET_ENVIRONMENT) or None
    if path == "-":
        text = sys.stdin.readline(SECRET_SIZE_MAX)
    else:
        try:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 - it may be a named pipe
                text = file.read(SECRET_SIZE_MAX)
        except (OSError, ValueError) as error:
            # Who is used to mqadmin may have given the key itself: it is not shown.
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UsageError(
                f"no secret key can be read ({reason}); -s takes a file or - , never the key itself"
            ) from None
    secret = text.strip()
    if not secret:
        raise UsageError("no secret key is in what -s names")
    return secret


@admin_command("updateAclConfig", changes=True)
@broker_or_cluster
@_ACCESS_KEY
@click.option(
    "-s",
    "--secret-file",
    metavar="FILE|-",
    help=f"Where its secret key is; else {SECRET_ENVIRONMENT} of the environment.",
)
@click.option("-w", "--white-address", help="Addresses from which it needs no signature.")
@click.option("-i", "--default-topic-perm", help="DENY, PUB, SUB or PUB|SUB.")
@click.option("-u", "--default-group-perm", help="DENY, PUB, SUB or PUB|SUB.")
@click.option("-t", "--topic-perms", help="topic=PUB|SUB, with , between several.")
@click.option("-g", "--group-perms", help="group=SUB, with , between several.")
@click.option("-m", "--admin", "is_admin", type=bool, default=False, help="Whether it may do all.")
async def update_account(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    broker: str | None,
    cluster: str | None,
    access_key: str,
    secret_file: str | None,
    white_address: str | None,
    default_topic_perm: str | None,
    default_group_perm: str | None,
    topic_perms: str | None,
    group_perms: str | None,
    is_admin: bool,
) -> CommandReport:
    """Add an account to brokers, or change what is said of one."""
    account = AccountSettings(
        access_key=access_key,
        secret_key=read_secret(secret_file),
        white_remote_address=white_address,
        admin=is_admin,
        default_topic_perm=default_topic_perm,
        default_group_perm=default_group_perm,
        topic_perms=None if topic_perms is None else topic_perms.split(","),
        group_perms=None if group_perms is None else group_perms.split(","),
    )
    return change_report(
        await admin.put_account(account, cluster=cluster, broker=broker, dry_run=dry_run)
    )


@admin_command("deleteAclConfig", changes=True)
@broker_or_cluster
@_ACCESS_KEY
async def delete_account(
    admin: AsyncAdmin, *, dry_run: bool, broker: str | None, cluster: str | None, access_key: str
) -> CommandReport:
    """Remove an account from brokers."""
    return change_report(
        await admin.delete_account(access_key, cluster=cluster, broker=broker, dry_run=dry_run)
    )


@admin_command("clusterAclConfigVersion")
@broker_or_cluster
async def access_versions(
    admin: AsyncAdmin, *, broker: str | None, cluster: str | None
) -> CommandReport:
    """Show how often the files of accounts were changed on brokers."""
    answers = await admin.access_versions(cluster=cluster, broker=broker)
    return CommandReport(
        rows=[one for _, found in answers.found for one in found],
        failures=[(place.label, error) for place, error in answers.failures],
    )


@admin_command("updateGlobalWhiteAddr", changes=True)
@broker_or_cluster
@click.option("-g", "--addresses", required=True, help="Addresses, with , between several.")
async def update_white_addresses(
    admin: AsyncAdmin, *, dry_run: bool, broker: str | None, cluster: str | None, addresses: str
) -> CommandReport:
    """Replace the list of addresses from which requests need no account."""
    wanted = [one.strip() for one in addresses.split(",") if one.strip()]
    return change_report(
        await admin.put_white_addresses(wanted, cluster=cluster, broker=broker, dry_run=dry_run)
    )
