"""Commands that write what a cluster knows to files, and that give it to another cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from flintmq.admin.async_admin import AsyncAdmin
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport, change_report
from flintmq.cli.admin.place_options import broker_or_cluster
from flintmq.cli.contexts.context_file import client_options
from flintmq.client.errors import UsageError
from flintmq.settings.durable_file import replace_durably

_DIRECTORY = click.option(
    "-f",
    "--file-path",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where the file goes; here unless given.",
)
_CLUSTER = click.option("-c", "--cluster", required=True, help="The cluster.")


@admin_command("exportMetadata")
@broker_or_cluster
@_DIRECTORY
@click.option("-t", "--topic", "topics_only", is_flag=True, help="Only topics.")
@click.option("-g", "--subscription-group", "groups_only", is_flag=True, help="Only groups.")
@click.option("-s", "--special-topic", is_flag=True, help="Retry and dead-letter topics too.")
async def export_metadata(
    admin: AsyncAdmin,
    *,
    broker: str | None,
    cluster: str | None,
    directory: Path,
    topics_only: bool,
    groups_only: bool,
    special_topic: bool,
) -> CommandReport:
    """Write the topics and groups of a broker or of a cluster to a file."""
    found = await admin.export_metadata(
        cluster=cluster,
        broker=broker,
        with_topics=not groups_only,
        with_groups=not topics_only,
        special_topics=special_topic,
    )
    name = "topic" if topics_only else "subscriptionGroup" if groups_only else "metadata"
    return _written(directory / f"{name}.json", found)


@admin_command("exportConfigs")
@_CLUSTER
@_DIRECTORY
async def export_configs(admin: AsyncAdmin, *, cluster: str, directory: Path) -> CommandReport:
    """Write the settings that matter of a cluster's brokers to a file."""
    return _written(directory / "configs.json", await admin.export_configs(cluster=cluster))


@admin_command("exportMetrics")
@_CLUSTER
@_DIRECTORY
async def export_metrics(admin: AsyncAdmin, *, cluster: str, directory: Path) -> CommandReport:
    """Write how the brokers of a cluster are doing to a file."""
    return _written(directory / "metrics.json", await admin.export_metrics(cluster=cluster))


def _written(path: Path, content: dict[str, Any]) -> CommandReport:
    text = json.dumps(content, indent=2) + "\n"
    try:
        replace_durably(path, text.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    counts = {name: len(one) for name, one in content.items() if isinstance(one, dict)}
    return CommandReport(rows=[{"file": str(path), "entries": counts}])


@admin_command("copy", changes=True)
@click.option("-c", "--cluster", required=True, help="The cluster that is copied.")
@click.option("--to-namesrv", metavar="ADDRS", help="Name servers of the other cluster.")
@click.option("--to-context", metavar="NAME", help="Its context.")
@click.option("--to-cluster", help="Its name; the same unless given.")
@click.option("-t", "--topic", "topics", multiple=True, help="Only this topic; repeatable.")
@click.option("-g", "--group", "groups", multiple=True, help="Only this group; repeatable.")
async def copy_configuration(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    cluster: str,
    to_namesrv: str | None,
    to_context: str | None,
    to_cluster: str | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
) -> CommandReport:
    """Give another cluster the topics and groups of this one; messages are not copied."""
    if to_namesrv is None and to_context is None:
        raise UsageError("name the other cluster: --to-namesrv or --to-context")
    options = client_options(namesrv=to_namesrv, context=to_context)
    # Whoever names topics wants no groups besides, and the other way round.
    is_all = not topics and not groups
    async with AsyncAdmin(options=options) as target:
        changes = await admin.copy_configuration(
            target,
            cluster=cluster,
            target_cluster=to_cluster or cluster,
            topics=None if is_all else topics,
            groups=None if is_all else groups,
            dry_run=dry_run,
        )
    return change_report(changes, copied=len(changes))
