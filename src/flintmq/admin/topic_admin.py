"""Topics: which there are, where they are, how they are configured, and changing that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from flintmq.admin.admin_base import AdminBase
from flintmq.admin.admin_errors import MissingError, is_absence
from flintmq.admin.changes import AdminChange, PlannedChange, carry_out, plan_each
from flintmq.client.assigning.strategies import allocate, averagely
from flintmq.client.errors import ResponseError, UsageError
from flintmq.client.routing.queue_lists import subscribe_queues
from flintmq.client.searching.broker_places import Answers, BrokerPlace
from flintmq.format.topic_names import name_fault
from flintmq.format.wire.bodies.dialect import Members, loads_body, queue_from
from flintmq.format.wire.bodies.topics import topic_table_from_json, topic_to_json
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.admin import CreateTopicRequest, TopicFilterType, TopicRequest
from flintmq.format.wire.headers.namesrv import (
    ClusterRequest,
    DeleteTopicInNamesrvRequest,
    KvConfigRequest,
    KvConfigResponse,
    PutKvConfigRequest,
)
from flintmq.model.topic_config import QUEUE_COUNT_MAX, Perm, TopicConfig
from flintmq.model.topics import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.model.message_queue import MessageQueue

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Where name servers keep which queues of a topic are used in order."""


NEW_QUEUE_COUNT: Final = 8
"""The queues of a topic of which nothing else is said, as mqadmin makes it."""


class TopicFields(TypedDict, total=False):
    """The fields of `TopicConfig` that an operator may change; those not given stay."""

    read_queue_count: int
    write_queue_count: int
    perm: int
    sys_flag: int


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class TopicUse:
    """A topic of a cluster and one group that consumes it; None where nobody does."""

    cluster: str
    topic: str
    group: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """Where one queue of a topic begins and ends."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_stored_at_ms: int | None
    """When its newest message was stored; None for an empty queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShare:
    """The queues that one client would get."""

    client: str
    queues: tuple[MessageQueue, ...]


def time_or_none(milliseconds: int) -> int | None:
    """Return a time of the wire; None for the zero and the minus one that stand for no time."""
    return milliseconds if milliseconds > 0 else None


class TopicAdmin(AdminBase):
    """Operations on topics."""

    # -- which there are ---------------------------------------------------------------------

    async def topics(self, *, cluster: str | None = None) -> list[str]:
        """Return the names of all topics, or of those of one cluster, sorted."""
        if cluster is None:
            answer = await self.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = ClusterRequest(cluster=cluster)
            answer = await self.ask_namesrv(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return sorted(map(str, Members(loads_body(answer.body), "topics").items("topicList")))

    async def topic_uses(self) -> Answers[str, list[TopicUse]]:
        """Return, by topic, the clusters that have it and the groups that consume it.

        The topics of groups' own retries and dead letters are left out.
        """
        clusters: dict[str, list[str]] = {}
        for cluster in (await self.cluster_info()).clusters:
            for topic in await self.topics(cluster=cluster):
                if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                    clusters.setdefault(topic, []).append(cluster)

        async def groups(topic: str) -> list[str]:
            return await self.groups_of_topic(topic)

        asked = await self.ask_all(sorted(clusters), groups)
        found = [
            (
                topic,
                [
                    TopicUse(cluster=cluster, topic=topic, group=group)
                    for cluster in sorted(clusters[topic])
                    for group in (consumers or (None,))
                ],
            )
            for topic, consumers in asked.found
        ]
        return Answers(found, asked.failures)

    async def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, or have."""

        async def ask(place: BrokerPlace) -> list[str]:
            header = TopicRequest(topic=topic)
            answer = await self.ask(place.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            members = Members(loads_body(answer.body), "groups of a topic")
            return list(map(str, members.items("groupList")))

        answers = (await self.ask_all(await self.topic_places(topic), ask)).or_raise()
        return sorted({group for _, groups in answers for group in groups})

    async def clusters_of_topic(self, topic: str) -> list[str]:
        """Return the clusters that have a topic."""
        route = await self.topic_route(topic)
        return sorted({one.cluster for one in route.brokers})

    # -- how they are ------------------------------------------------------------------------

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Return the configuration of all topics of one broker by name."""
        answer = await self.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        topics, _ = topic_table_from_json(loads_body(answer.body))
        return topics

    async def topic_status(self, topic: str) -> list[QueueStatus]:
        """Return where the queues of a topic begin and end."""
        answers = await self.topic_status_by_broker(topic)
        if answers.failures:
            raise answers.failures[0][1]
        rows = [one for _, found in answers.found for one in found]
        return sorted(rows, key=lambda one: (one.broker, one.queue_id))

    async def topic_status_by_broker(self, topic: str) -> Answers[BrokerPlace, list[QueueStatus]]:
        """Return where the queues of a topic begin and end, and which brokers did not tell."""

        async def ask(place: BrokerPlace) -> list[QueueStatus]:
            header = TopicRequest(topic=topic)
            answer = await self.ask(place.address, RequestCode.GET_TOPIC_STATS_INFO, header)
            table = Members(loads_body(answer.body), "a topic's status").table("offsetTable")
            return [_queue_status(queue_from(key), value) for key, value in table.items()]

        return await self.ask_all(await self.topic_places(topic), ask)

    async def share_queues(self, topic: str, clients: Iterable[str]) -> list[QueueShare]:
        """Return which queues of a topic each of some clients would get."""
        wanted = sorted(set(clients))
        queues = subscribe_queues(topic, await self.topic_route(topic))
        return [
            QueueShare(client=one, queues=tuple(allocate(averagely, one, queues, wanted)))
            for one in wanted
        ]

    # -- changing them -----------------------------------------------------------------------

    async def put_topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        dry_run: bool = False,
        is_ordered: bool = False,
        **fields: Unpack[TopicFields],
    ) -> list[AdminChange]:
        """Create a topic on a broker or on all of a cluster, or change what is given of it.

        Of a topic that is ordered the name servers get to know which queues are used.
        """
        fault = name_fault(topic)
        if fault is not None:
            raise UsageError(fault)
        new = TopicConfig(
            name=topic, read_queue_count=NEW_QUEUE_COUNT, write_queue_count=NEW_QUEUE_COUNT
        )
        queues: list[str] = []

        async def plan(place: BrokerPlace) -> PlannedChange:
            before = (await self.topic_configs(place.address)).get(topic)
            after = replace(before or new, **fields)
            queues.append(f"{place.broker}:{after.write_queue_count}")
            return self._topic_plan(place, before, after)

        places = await self.places(cluster=cluster, broker=broker)
        plans = await plan_each(places, f"topic {topic}", plan)
        if is_ordered:
            plans += await self._order_plans(topic, ";".join(queues))
        return await carry_out(plans, dry_run=dry_run)

    def _topic_plan(
        self, place: BrokerPlace, before: TopicConfig | None, after: TopicConfig
    ) -> PlannedChange:
        change = AdminChange(
            target=place.label,
            subject=f"topic {after.name}",
            old=None if before is None else topic_to_json(before),
            new=topic_to_json(after),
        )
        return PlannedChange(change, lambda: self._create(place.address, after))

    async def _create(self, address: str, config: TopicConfig) -> None:
        header = CreateTopicRequest(
            topic=config.name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_count,
            write_queue_nums=config.write_queue_count,
            perm=config.perm,
            topic_filter_type=TopicFilterType[config.filter_type],
            topic_sys_flag=config.sys_flag,
            order=config.order,
        )
        await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def set_topic_permission(
        self,
        topic: str,
        permission: int,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        dry_run: bool = False,
    ) -> list[AdminChange]:
        """AdminChange what may be done with a topic on a broker or on all of a cluster."""
        if permission not in (Perm.WRITE, Perm.READ, Perm.READ_WRITE):
            raise UsageError(f"a permission is 2 (write), 4 (read) or 6 (both), not {permission}")

        async def plan(place: BrokerPlace) -> PlannedChange | None:
            before = (await self.topic_configs(place.address)).get(topic)
            return None if before is None else self._replacement(place, before, permission)

        places = await self.places(cluster=cluster, broker=broker)
        plans = await plan_each(places, f"topic {topic}", plan)
        if not plans:
            raise MissingError(f"no broker that was named has the topic {topic!r}")
        return await carry_out(plans, dry_run=dry_run)

    def _replacement(
        self, place: BrokerPlace, before: TopicConfig, permission: int
    ) -> PlannedChange:
        change = AdminChange(
            target=place.label,
            subject=f"topic {before.name}",
            old={"perm": int(before.perm)},
            new={"perm": permission},
        )
        after = replace(before, perm=permission)
        return PlannedChange(change, lambda: self._create(place.address, after))

    async def delete_topic(
        self, topic: str, *, cluster: str, dry_run: bool = False
    ) -> list[AdminChange]:
        """Delete a topic from all brokers of a cluster, then from the name servers."""

        async def plan(place: BrokerPlace) -> PlannedChange | None:
            before = (await self.topic_configs(place.address)).get(topic)
            return None if before is None else self._deletion(place, before)

        plans = await plan_each(await self.places(cluster=cluster), f"topic {topic}", plan)
        try:
            await self.topic_route(topic)
        except ResponseError as error:
            if not plans or not is_absence(error):
                raise
        plans += [self._route_deletion(one, topic, cluster) for one in self.name_servers()]
        return await carry_out(plans, dry_run=dry_run)

    def _deletion(self, place: BrokerPlace, before: TopicConfig) -> PlannedChange:
        header = TopicRequest(topic=before.name)
        change = AdminChange(
            target=place.label, subject=f"topic {before.name}", old=topic_to_json(before)
        )
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        return PlannedChange(change, lambda: self.ask(place.address, code, header))

    def _route_deletion(self, server: str, topic: str, cluster: str) -> PlannedChange:
        header = DeleteTopicInNamesrvRequest(topic=topic, cluster_name=cluster)
        change = AdminChange(
            target=f"name server {server}", subject=f"route of {topic}", old={"cluster": cluster}
        )
        code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        return PlannedChange(change, lambda: self.ask(server, code, header))

    # -- order -------------------------------------------------------------------------------

    async def order_configuration(self, topic: str) -> str:
        """Return which queues of a topic are used in order, like ``broker-a:4;broker-b:4``."""
        header = KvConfigRequest(namespace=ORDER_NAMESPACE, key=topic)
        answer = await self.ask_namesrv(RequestCode.GET_KV_CONFIG, header)
        return KvConfigResponse.decode(answer.ext_fields).value or ""

    async def put_order_configuration(
        self, topic: str, queues: str, *, dry_run: bool = False
    ) -> list[AdminChange]:
        """Say which queues of a topic are used in order."""
        for part in queues.split(";"):
            name, _, count = part.partition(":")
            if not name or not count.isdigit() or int(count) > QUEUE_COUNT_MAX:
                raise UsageError(f"not BROKER:COUNT with ; between several: {queues!r}")
        return await carry_out(await self._order_plans(topic, queues), dry_run=dry_run)

    async def delete_order_configuration(
        self, topic: str, *, dry_run: bool = False
    ) -> list[AdminChange]:
        """Forget which queues of a topic are used in order."""
        return await carry_out(await self._order_plans(topic, None), dry_run=dry_run)

    async def _order_plans(self, topic: str, queues: str | None) -> list[PlannedChange]:
        async def plan(server: str) -> PlannedChange:
            return await self._order_plan(server, topic, queues)

        return await plan_each(self.name_servers(), f"order of {topic}", plan)

    async def _order_plan(self, server: str, topic: str, queues: str | None) -> PlannedChange:
        pair = KvConfigRequest(namespace=ORDER_NAMESPACE, key=topic)
        try:
            answer = await self.ask(server, RequestCode.GET_KV_CONFIG, pair)
            before = KvConfigResponse.decode(answer.ext_fields).value
        except ResponseError as error:
            if not is_absence(error):
                raise
            before = None
        change = AdminChange(
            target=f"name server {server}",
            subject=f"order of {topic}",
            old=None if before is None else {"queues": before},
            new=None if queues is None else {"queues": queues},
        )
        if queues is None:
            code = RequestCode.DELETE_KV_CONFIG
            return PlannedChange(change, lambda: self.ask(server, code, pair))
        put = PutKvConfigRequest(namespace=ORDER_NAMESPACE, key=topic, value=queues)
        return PlannedChange(change, lambda: self.ask(server, RequestCode.PUT_KV_CONFIG, put))


def _queue_status(queue: MessageQueue, value: object) -> QueueStatus:
    members = Members(value, "a queue's status")
    return QueueStatus(
        topic=queue.topic,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        min_offset=members.integer("minOffset", 0),
        max_offset=members.integer("maxOffset", 0),
        last_stored_at_ms=time_or_none(members.integer("lastUpdateTimestamp", 0)),
    )
