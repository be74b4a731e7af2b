"""Exports: topics, groups and settings of a cluster; and copying them to another."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flintmq.admin.admin_errors import MissingError
from flintmq.admin.changes import AdminChange
from flintmq.admin.group_admin import GroupFields
from flintmq.admin.probe_admin import ProbeAdmin
from flintmq.admin.server_admin import ServerAdmin
from flintmq.admin.topic_admin import TopicFields
from flintmq.format.wire.bodies.groups import group_to_json
from flintmq.format.wire.bodies.topics import topic_to_json
from flintmq.model.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flintmq.client.searching.broker_places import BrokerPlace
    from flintmq.model.group_config import GroupConfig
    from flintmq.model.topic_config import TopicConfig

_Config = TypeVar("_Config")

NEEDED_SETTINGS: Final = (
    *("brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime"),
    *("filterServerNums", "flushDiskType", "maxMessageSize", "messageDelayLevel"),
    *("msgTraceTopicName", "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS"),
    *("autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
)
"""The settings that ``exportConfigs`` keeps, as mqadmin does."""

SYSTEM_GROUPS: Final = frozenset(
    {
        *("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"),
        *("CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"),
    }
)
"""Groups that every broker has for itself."""


class ExportAdmin(ProbeAdmin, ServerAdmin):
    """Operations that take over what a cluster knows."""

    async def own_topics(self, address: str) -> dict[str, TopicConfig]:
        """Return the topics of a broker that users have made."""
        places = await self.all_places()
        names = {one.broker for one in places} | {one.cluster for one in places}
        topics = await self.topic_configs(address)
        return {name: one for name, one in topics.items() if not is_system_topic(name, names)}

    async def own_groups(self, address: str) -> dict[str, GroupConfig]:
        """Return the groups of a broker that users have made."""
        groups = await self.group_configs(address)
        return {name: one for name, one in groups.items() if not is_system_group(name)}

    async def export_metadata(
        self,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        with_topics: bool = True,
        with_groups: bool = True,
        special_topics: bool = False,
    ) -> dict[str, Any]:
        """Return topics and groups of a broker, or of a cluster with the queues of all brokers."""
        topics: dict[str, TopicConfig] = {}
        groups: dict[str, GroupConfig] = {}
        for place in await self.places(cluster=cluster, broker=broker):
            found = await self.own_topics(place.address)
            for name, one in found.items() if with_topics else ():
                if special_topics or not name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                    topics[name] = _joined(topics.get(name), one)
            if with_groups:
                for name, group in (await self.own_groups(place.address)).items():
                    groups[name] = _joined_groups(groups.get(name), group)
        exported: dict[str, Any] = {"exportTime": now_ms()}
        if with_topics:
            exported["topicConfigTable"] = {k: topic_to_json(v) for k, v in sorted(topics.items())}
        if with_groups:
            exported["subscriptionGroupTable"] = {
                k: group_to_json(v) for k, v in sorted(groups.items())
            }
        return exported

    async def export_configs(self, *, cluster: str) -> dict[str, Any]:
        """Return how many servers a cluster has, and the settings that matter of its brokers."""
        places = await self.places(cluster=cluster, masters_only=False)
        configs: dict[str, Any] = {}
        for place in places:
            settings = await self.settings_of(place.address)
            kept = {key: settings[key] for key in NEEDED_SETTINGS if key in settings}
            configs[_key(place)] = kept
        masters = [one for one in places if one.is_master]
        return {
            "exportTime": now_ms(),
            "clusterScale": {
                "namesrvSize": len(self.name_servers()),
                "masterBrokerSize": len(masters),
                "slaveBrokerSize": len(places) - len(masters),
            },
            "brokerConfigs": configs,
        }

    async def copy_configuration(
        self,
        target: ExportAdmin,
        *,
        cluster: str,
        target_cluster: str,
        topics: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        dry_run: bool = False,
    ) -> list[AdminChange]:
        """Give another cluster the topics and groups of this one; messages are not copied.

        Without names all that users have made is copied, but no retry and dead-letter topics.
        """
        found = await self._configuration(cluster)
        wanted = _chosen(found[0], topics), _chosen(found[1], groups)
        changes: list[AdminChange] = []
        for topic in wanted[0]:
            fields = TopicFields(
                read_queue_count=topic.read_queue_count,
                write_queue_count=topic.write_queue_count,
                perm=int(topic.perm),
                sys_flag=int(topic.sys_flag),
            )
            changes += await target.put_topic(
                topic.name, cluster=target_cluster, dry_run=dry_run, **fields
            )
        for group in wanted[1]:
            changes += await target.put_group(
                group.name, cluster=target_cluster, dry_run=dry_run, **_group_fields(group)
            )
        return changes

    async def _configuration(
        self, cluster: str
    ) -> tuple[dict[str, TopicConfig], dict[str, GroupConfig]]:
        topics: dict[str, TopicConfig] = {}
        groups: dict[str, GroupConfig] = {}
        for place in await self.places(cluster=cluster):
            found = await self.own_topics(place.address)
            own = {k: v for k, v in found.items() if not k.startswith((RETRY_PREFIX, DLQ_PREFIX))}
            topics = own | topics
            groups = await self.own_groups(place.address) | groups
        return topics, groups


def is_system_topic(name: str, servers: Iterable[str] = ()) -> bool:
    """Whether a topic belongs to the system: by its name, or as that of a broker or cluster."""
    return (
        name in SYSTEM_TOPICS
        or name.startswith(SYSTEM_PREFIX)
        or name in servers
        or name.removesuffix("_REPLY_TOPIC") in servers
    )


def is_system_group(name: str) -> bool:
    """Whether a group belongs to the system."""
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def _joined(one: TopicConfig | None, other: TopicConfig) -> TopicConfig:
    """Return a topic of several brokers as one with the queues of all of them."""
    if one is None:
        return other
    return replace(
        one,
        read_queue_count=one.read_queue_count + other.read_queue_count,
        write_queue_count=one.write_queue_count + other.write_queue_count,
    )


def _joined_groups(one: GroupConfig | None, other: GroupConfig) -> GroupConfig:
    if one is None:
        return other
    return replace(one, retry_queue_count=one.retry_queue_count + other.retry_queue_count)


def _group_fields(group: GroupConfig) -> GroupFields:
    return GroupFields(
        consume_enable=group.consume_enable,
        consume_from_min_enable=group.consume_from_min_enable,
        consume_broadcast_enable=group.consume_broadcast_enable,
        retry_queue_count=group.retry_queue_count,
        retry_max_times=group.retry_max_times,
        broker_id=group.broker_id,
        slow_broker_id=group.slow_broker_id,
        notify_ids_changed_enable=group.notify_ids_changed_enable,
    )


def _chosen(found: Mapping[str, _Config], names: Iterable[str] | None) -> list[_Config]:
    wanted = sorted(found) if names is None else list(names)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise MissingError(f"the cluster has no {', '.join(missing)}")
    return [found[name] for name in wanted]


def _key(place: BrokerPlace) -> str:
    """Return the name of a master, and of a slave the name with its id."""
    return place.broker if place.is_master else f"{place.broker}:{place.broker_id}"


def now_ms() -> int:
    """Return the time of this machine."""
    return time.time_ns() // 1_000_000
