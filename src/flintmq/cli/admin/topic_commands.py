"""Commands about topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from flintmq.admin.topic_admin import TopicFields
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport, change_report
from flintmq.cli.admin.place_options import broker_or_cluster, topic_option
from flintmq.client.errors import UsageError
from flintmq.model.topic_config import QUEUE_COUNT_MAX, TopicSysFlag

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin

_QUEUES: Final = click.IntRange(0, QUEUE_COUNT_MAX)


@admin_command("topicList")
@click.option("-c", "--cluster-model", "with_groups", is_flag=True, help="With cluster and groups.")
@click.option("--cluster", help="Only topics of this cluster.")
async def topic_list(admin: AsyncAdmin, *, with_groups: bool, cluster: str | None) -> CommandReport:
    """List the names of all topics."""
    if with_groups:
        answers = await admin.topic_uses()
        uses = [one for _, found in answers.found for one in found]
        uses.sort(key=lambda one: (one.cluster, one.topic, one.group or ""))
        return CommandReport(
            rows=[one for one in uses if cluster in (None, one.cluster)],
            failures=answers.failures,
        )
    return CommandReport(rows=[{"topic": name} for name in await admin.topics(cluster=cluster)])


@admin_command("updateTopic", changes=True)
@topic_option
@broker_or_cluster
@click.option("-r", "--read-queues", type=_QUEUES, help="8 for a new topic unless given.")
@click.option("-w", "--write-queues", type=_QUEUES, help="8 for a new topic unless given.")
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), help="W, R, both.")
@click.option("-o", "--order", type=bool, default=False, help="Whether queues are kept in order.")
@click.option("-u", "--unit", type=bool, help="Whether it belongs to a unit.")
@click.option("-s", "--has-unit-sub", type=bool, help="Whether a unit subscribes to it.")
async def update_topic(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    topic: str,
    broker: str | None,
    cluster: str | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    order: bool,
    unit: bool | None,
    has_unit_sub: bool | None,
) -> CommandReport:
    """Create a topic, or change what is given of its configuration."""
    fields = TopicFields()
    if read_queues is not None:
        fields["read_queue_count"] = read_queues
    if write_queues is not None:
        fields["write_queue_count"] = write_queues
    if perm is not None:
        fields["perm"] = int(perm)
    if unit is not None or has_unit_sub is not None:
        fields["sys_flag"] = (TopicSysFlag.UNIT if unit else 0) | (
            TopicSysFlag.UNIT_SUB if has_unit_sub else 0
        )
    return change_report(
        await admin.put_topic(
            topic, cluster=cluster, broker=broker, dry_run=dry_run, is_ordered=order, **fields
        )
    )


@admin_command("deleteTopic", changes=True)
@topic_option
@click.option("-c", "--cluster", required=True, help="The cluster that it is deleted from.")
async def delete_topic(
    admin: AsyncAdmin, *, dry_run: bool, topic: str, cluster: str
) -> CommandReport:
    """Delete a topic from all brokers of a cluster, and from the name servers."""
    return change_report(await admin.delete_topic(topic, cluster=cluster, dry_run=dry_run))


@admin_command("updateTopicPerm", changes=True)
@topic_option
@broker_or_cluster
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), required=True, help="W, R, both.")
async def update_topic_perm(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    topic: str,
    broker: str | None,
    cluster: str | None,
    perm: str,
) -> CommandReport:
    """Change what may be done with a topic."""
    return change_report(
        await admin.set_topic_permission(
            topic, int(perm), cluster=cluster, broker=broker, dry_run=dry_run
        )
    )


@admin_command("topicRoute")
@topic_option
@click.option("-l", "--list", "as_list", is_flag=True, help="As mqadmin; a table is always shown.")
async def topic_route(admin: AsyncAdmin, *, topic: str, as_list: bool) -> CommandReport:
    """Show which brokers have a topic, with how many queues."""
    route = await admin.topic_route(topic)
    addresses = {one.broker_name: one for one in route.brokers}
    rows = []
    for one in sorted(route.queues, key=lambda queue: queue.broker_name):
        broker = addresses.get(one.broker_name)
        rows.append(
            {
                "cluster": None if broker is None else broker.cluster,
                "broker": one.broker_name,
                "readQueues": one.read_queue_count,
                "writeQueues": one.write_queue_count,
                "perm": int(one.perm),
                "addresses": {} if broker is None else dict(sorted(broker.addresses.items())),
            }
        )
    summary: dict[str, object] = {
        "readQueues": sum(one.read_queue_count for one in route.queues),
        "writeQueues": sum(one.write_queue_count for one in route.queues),
    }
    if route.order_topic_conf:
        summary["order"] = route.order_topic_conf
    return CommandReport(rows=rows, summary=summary)


@admin_command("topicStatus")
@topic_option
async def topic_status(admin: AsyncAdmin, *, topic: str) -> CommandReport:
    """Show where the queues of a topic begin and end."""
    answers = await admin.topic_status_by_broker(topic)
    rows = [one for _, found in answers.found for one in found]
    rows.sort(key=lambda one: (one.broker, one.queue_id))
    kept = sum(one.max_offset - one.min_offset for one in rows)
    return CommandReport(
        rows=rows,
        summary={"messages": kept},
        failures=[(place.label, error) for place, error in answers.failures],
    )


@admin_command("topicClusterList")
@topic_option
async def topic_cluster_list(admin: AsyncAdmin, *, topic: str) -> CommandReport:
    """List the clusters that have a topic."""
    return CommandReport(rows=[{"cluster": one} for one in await admin.clusters_of_topic(topic)])


@admin_command("updateOrderConf", changes=True)
@topic_option
@click.option("-m", "--method", type=click.Choice(["put", "get", "delete"]), required=True)
@click.option("-v", "--order-conf", "queues", help="BROKER:COUNT, with ; between several.")
async def update_order_conf(
    admin: AsyncAdmin, *, dry_run: bool, topic: str, method: str, queues: str | None
) -> CommandReport:
    """Show, set or delete which queues of a topic are used in order."""
    if method == "get":
        found = await admin.order_configuration(topic)
        return CommandReport(rows=[{"topic": topic, "queues": found}])
    if method == "delete":
        return change_report(await admin.delete_order_configuration(topic, dry_run=dry_run))
    if queues is None:
        raise UsageError("put needs the queues: -v BROKER:COUNT")
    return change_report(await admin.put_order_configuration(topic, queues, dry_run=dry_run))


@admin_command("allocateMQ")
@topic_option
@click.option("-i", "--ip-list", "clients", required=True, help="Clients, with , between them.")
async def allocate_queues(admin: AsyncAdmin, *, topic: str, clients: str) -> CommandReport:
    """Show which queues of a topic each of some clients would get."""
    shares = await admin.share_queues(topic, filter(None, clients.split(",")))
    rows = [
        {"client": one.client, "broker": queue.broker_name, "queueId": queue.queue_id}
        for one in shares
        for queue in one.queues
    ]
    return CommandReport(rows=shares, table_rows=rows)
