"""Subscription groups in JSON: one configuration, and a table of them with its version."""

from collections.abc import Iterable
from typing import Any

from flintmq.format.wire.bodies.dialect import Members
from flintmq.format.wire.bodies.topics import version_from_json, version_to_json
from flintmq.model.data_version import DataVersion
from flintmq.model.group_config import GroupConfig


def group_to_json(group: GroupConfig) -> dict[str, Any]:
    """Return the JSON members of a group."""
    return {
        "brokerId": group.broker_id,
        "consumeBroadcastEnable": group.consume_broadcast_enable,
        "consumeEnable": group.consume_enable,
        "consumeFromMinEnable": group.consume_from_min_enable,
        "groupName": group.name,
        "notifyConsumerIdsChangedEnable": group.notify_ids_changed_enable,
        "retryMaxTimes": group.retry_max_times,
        "retryQueueNums": group.retry_queue_count,
        "whichBrokerWhenConsumeSlowly": group.slow_broker_id,
    }


def group_from_json(value: Any) -> GroupConfig:
    """Return the group that JSON members describe; what is missing has its default."""
    members = Members(value, "a subscription group")
    return GroupConfig(
        name=members.text("groupName"),
        consume_enable=members.truth("consumeEnable", default=True),
        consume_from_min_enable=members.truth("consumeFromMinEnable", default=True),
        consume_broadcast_enable=members.truth("consumeBroadcastEnable", default=True),
        retry_queue_count=members.integer("retryQueueNums", 1),
        retry_max_times=members.integer("retryMaxTimes", 16),
        broker_id=members.integer("brokerId", 0),
        slow_broker_id=members.integer("whichBrokerWhenConsumeSlowly", 1),
        notify_ids_changed_enable=members.truth("notifyConsumerIdsChangedEnable", default=True),
    )


def group_table_to_json(groups: Iterable[GroupConfig], version: DataVersion) -> dict[str, Any]:
    """Return a table of groups, as subscriptionGroup.json and code 201 have it."""
    return {
        "dataVersion": version_to_json(version),
        "subscriptionGroupTable": {group.name: group_to_json(group) for group in groups},
    }


def group_table_from_json(value: Any) -> tuple[dict[str, GroupConfig], DataVersion]:
    """Return the groups by name, and the version of their table."""
    members = Members(value, "a table of subscription groups")
    groups = map(group_from_json, members.table("subscriptionGroupTable").values())
    version = version_from_json(members.get("dataVersion"))
    return {group.name: group for group in groups}, version
