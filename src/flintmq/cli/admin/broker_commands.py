"""Commands about brokers: their status, their settings, what they clean up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from flintmq.cli.admin.command_frame import admin_command, interval_option
from flintmq.cli.admin.command_report import CommandReport, answers_report, change_report
from flintmq.cli.admin.place_options import broker_or_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.admin.async_admin import AsyncAdmin
    from flintmq.admin.server_admin import BrokerValues
    from flintmq.client.searching.broker_places import Answers, BrokerPlace

_SUMMARY: Final = (
    *("cluster", "broker", "brokerId", "address", "version", "inPerSecond", "sendQueueSize"),
    *("sendQueueWaitMs", "outPerSecond", "pullQueueSize", "pullQueueWaitMs", "pageCacheLockMs"),
    *("earliestStoredAt", "diskRatio"),
)
_TOTALS: Final = (
    *("cluster", "broker", "brokerId", "inYesterday", "outYesterday", "inToday", "outToday"),
)


@admin_command("clusterList")
@click.option("-m", "--more-stats", is_flag=True, help="Totals of yesterday and today.")
@interval_option
async def cluster_list(admin: AsyncAdmin, *, more_stats: bool) -> CommandReport:
    """List all brokers with their rates, waiting times and disks."""
    columns = _TOTALS if more_stats else _SUMMARY
    return answers_report(await admin.broker_summaries(), columns=columns)


@admin_command("brokerStatus")
@broker_or_cluster
async def broker_status(
    admin: AsyncAdmin, *, broker: str | None, cluster: str | None
) -> CommandReport:
    """Show how a broker, or each of a cluster, is doing."""
    answers = await admin.broker_status(cluster=cluster, broker=broker)
    return answers_report(answers, table_rows=_pairs(answers))


@admin_command("getBrokerConfig")
@broker_or_cluster
async def get_broker_config(
    admin: AsyncAdmin, *, broker: str | None, cluster: str | None
) -> CommandReport:
    """Show the settings of a broker, or of all masters and slaves of a cluster."""
    answers = await admin.broker_config(cluster=cluster, broker=broker)
    return answers_report(answers, table_rows=_pairs(answers))


def _pairs(answers: Answers[BrokerPlace, BrokerValues]) -> Iterator[dict[str, object]]:
    """Yield each value of each broker as a row of its own."""
    for place, found in answers.found:
        for key, value in found.values.items():
            yield {"broker": place.label, "key": key, "value": value}


@admin_command("updateBrokerConfig", changes=True)
@broker_or_cluster
@click.option("-k", "--key", required=True, help="Name of the setting.")
@click.option("-v", "--value", required=True, help="Its new value.")
async def update_broker_config(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    broker: str | None,
    cluster: str | None,
    key: str,
    value: str,
) -> CommandReport:
    """Change a setting of a broker, or of all of a cluster, while they run."""
    return change_report(
        await admin.update_broker_config(
            {key: value}, cluster=cluster, broker=broker, dry_run=dry_run
        )
    )


@admin_command("cleanExpiredCQ", changes=True)
@broker_or_cluster
async def clean_expired_queues(
    admin: AsyncAdmin, *, dry_run: bool, broker: str | None, cluster: str | None
) -> CommandReport:
    """Have brokers delete consume queues of which no message is left."""
    return change_report(
        await admin.clean_expired_queues(cluster=cluster, broker=broker, dry_run=dry_run)
    )


@admin_command("deleteExpiredCommitLog", changes=True)
@broker_or_cluster
async def delete_expired_log(
    admin: AsyncAdmin, *, dry_run: bool, broker: str | None, cluster: str | None
) -> CommandReport:
    """Have brokers delete commit-log files that are old enough, now."""
    return change_report(
        await admin.delete_expired_log(cluster=cluster, broker=broker, dry_run=dry_run)
    )


@admin_command("cleanUnusedTopic", changes=True)
@broker_or_cluster
async def clean_unused_topics(
    admin: AsyncAdmin, *, dry_run: bool, broker: str | None, cluster: str | None
) -> CommandReport:
    """Have brokers delete the queues of topics that do not exist any more."""
    return change_report(
        await admin.clean_unused_topics(cluster=cluster, broker=broker, dry_run=dry_run)
    )
