"""Commands about consumer groups and their configuration, and about producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flintmq.admin.group_admin import GroupFields, own_topics
from flintmq.admin.member_admin import subscription_mismatches
from flintmq.cli.admin.command_frame import admin_command
from flintmq.cli.admin.command_report import CommandReport, answers_report, change_report
from flintmq.cli.admin.place_options import broker_or_cluster, group_option, topic_option
from flintmq.cli.output.plain_values import plain

if TYPE_CHECKING:
    from flintmq.admin.async_admin import AsyncAdmin
    from flintmq.errors import FlintError


@admin_command("getConsumerConfig")
@group_option
async def get_consumer_config(admin: AsyncAdmin, *, group: str) -> CommandReport:
    """Show how a consumer group is configured on each broker."""
    answers = await admin.group_config(group)
    rows = [
        {"broker": one.broker, "key": key, "value": value}
        for _, one in answers.found
        for key, value in _members(one.config).items()
    ]
    return answers_report(answers, table_rows=rows)


def _members(value: object) -> dict[str, object]:
    members = plain(value)
    assert isinstance(members, dict)
    return members


@admin_command("updateSubGroup", changes=True)
@group_option
@broker_or_cluster
@click.option("-s", "--consume-enable", type=bool, help="Whether it may consume.")
@click.option("-m", "--consume-from-min", type=bool, help="Whether it may start at the oldest.")
@click.option("-d", "--consume-broadcast", type=bool, help="Whether it may broadcast.")
@click.option("-q", "--retry-queues", type=click.IntRange(0, 1024), help="Of its retry topic.")
@click.option("-r", "--retry-max-times", type=click.IntRange(min=0), help="Then: dead letters.")
@click.option("-i", "--broker-id", type=click.IntRange(min=0), help="Which broker it consumes of.")
@click.option("-w", "--slow-broker-id", type=click.IntRange(min=0), help="If it is far behind.")
@click.option("-a", "--notify-changed", type=bool, help="Whether members are told of each other.")
async def update_group(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    group: str,
    broker: str | None,
    cluster: str | None,
    consume_enable: bool | None,
    consume_from_min: bool | None,
    consume_broadcast: bool | None,
    retry_queues: int | None,
    retry_max_times: int | None,
    broker_id: int | None,
    slow_broker_id: int | None,
    notify_changed: bool | None,
) -> CommandReport:
    """Create a consumer group, or change what is given of its configuration."""
    said = {
        "consume_enable": consume_enable,
        "consume_from_min_enable": consume_from_min,
        "consume_broadcast_enable": consume_broadcast,
        "retry_queue_count": retry_queues,
        "retry_max_times": retry_max_times,
        "broker_id": broker_id,
        "slow_broker_id": slow_broker_id,
        "notify_ids_changed_enable": notify_changed,
    }
    fields = GroupFields(**{name: one for name, one in said.items() if one is not None})  # type: ignore[typeddict-item]
    return change_report(
        await admin.put_group(group, cluster=cluster, broker=broker, dry_run=dry_run, **fields)
    )


@admin_command("deleteSubGroup", changes=True)
@group_option
@broker_or_cluster
@click.option("-r", "--remove-offset", type=bool, default=False, help="Its offsets too.")
async def delete_group(
    admin: AsyncAdmin,
    *,
    dry_run: bool,
    group: str,
    broker: str | None,
    cluster: str | None,
    remove_offset: bool,
) -> CommandReport:
    """Delete a consumer group; of a whole cluster its retry and dead-letter topics too."""
    changes = await admin.delete_group(
        group, cluster=cluster, broker=broker, remove_offsets=remove_offset, dry_run=dry_run
    )
    if cluster is not None:
        known = set(await admin.topics())
        for topic in own_topics(group):
            if topic in known:
                changes += await admin.delete_topic(topic, cluster=cluster, dry_run=dry_run)
    return change_report(changes)


@admin_command("consumerConnection")
@group_option
@click.option("-b", "--broker", metavar="ADDR|NAME", help="Ask only this broker.")
async def consumer_connection(
    admin: AsyncAdmin, *, group: str, broker: str | None
) -> CommandReport:
    """Show who consumes for a group, and what of."""
    members = await admin.consumer_members(group, broker=broker)
    return CommandReport(
        rows=members.clients,
        summary={
            "group": members.group,
            "consumeType": members.consume_type,
            "messageModel": members.message_model,
            "consumeFrom": members.consume_from,
            "subscriptions": {
                topic: {"type": one.expression_type, "expression": one.expression}
                for topic, one in members.subscriptions.items()
            },
        },
    )


@admin_command("consumerStatus")
@group_option
@click.option("-i", "--client-id", help="Only this client.")
@click.option("-b", "--broker", metavar="ADDR|NAME", help="As mqadmin; any broker knows.")
@click.option("-s", "--jstack", is_flag=True, help="With the stacks of its threads.")
async def consumer_status(
    admin: AsyncAdmin, *, group: str, client_id: str | None, broker: str | None, jstack: bool
) -> CommandReport:
    """Show how the members of a group are doing, and whether they subscribe alike."""
    failures: list[tuple[str, FlintError]] = []
    if client_id is not None:
        consumers = [await admin.running_consumer(group, client_id, with_stacks=jstack)]
    else:
        consumers, failures = await admin.running_consumers(group, with_stacks=jstack)
    mismatches = subscription_mismatches(group, consumers)
    rows = [
        {
            "client": one.client_id,
            "queues": len(one.queues),
            "cachedMessages": sum(queue.cached_message_count for queue in one.queues),
            "subscriptions": dict(one.subscriptions),
            "version": one.properties.get("PROP_CLIENT_VERSION", ""),
        }
        for one in consumers
    ]
    return CommandReport(
        rows=consumers,
        table_rows=rows,
        summary={"subscriptionsAlike": not mismatches, "mismatches": mismatches},
        failures=failures,
    )


@admin_command("producerConnection")
@click.option("-g", "--group", required=True, help="Name of the producer group.")
@topic_option
async def producer_connection(admin: AsyncAdmin, *, group: str, topic: str) -> CommandReport:
    """Show which producers of a group are connected to the brokers of a topic."""
    return CommandReport(rows=await admin.producer_clients(group, topic))


@admin_command("producer")
@click.option("-b", "--broker", metavar="ADDR|NAME", required=True, help="The broker to ask.")
async def producer_list(admin: AsyncAdmin, *, broker: str) -> CommandReport:
    """List all producers that are connected to a broker."""
    return CommandReport(rows=await admin.producers_of(broker))
