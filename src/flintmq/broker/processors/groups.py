"""Administration of consumer groups: their configuration, members and progress."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from flintmq.broker.processors.consume_progress import GroupProgress
from flintmq.broker.processors.request_bodies import BODY_AT_ONCE_MAX
from flintmq.broker.statistics.broker_statistics import GROUP_GET_COUNT
from flintmq.broker.tables.offset_table import SEPARATOR
from flintmq.format.wire.bodies.delays import DelayProgress
from flintmq.format.wire.bodies.dialect import BodyError, dumps_body, dumps_in_steps, loads_body
from flintmq.format.wire.bodies.groups import group_from_json, group_to_json
from flintmq.format.wire.bodies.heartbeat import subscription_to_json
from flintmq.format.wire.bodies.topics import version_to_json
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.admin import (
    BrokerConsumeStatsRequest,
    CloneGroupOffsetRequest,
    ConsumeStatsRequest,
    ConsumeTimeSpanRequest,
    CorrectionOffsetRequest,
    DeleteGroupRequest,
    GroupConfigRequest,
)
from flintmq.format.wire.headers.clients import (
    ConsumerGroupRequest,
    NoFields,
    ProducerGroupRequest,
)
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.broker.tables.client_tables import Client
    from flintmq.model.steps import Steps


class GroupProcessor:
    """Serves what operators ask and order about groups."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._progress = GroupProgress(context)

    # -- configuration -----------------------------------------------------------------------

    def put(self, request: Request[NoFields]) -> Answer:
        """Create a group or replace its configuration."""
        if len(request.body) > BODY_AT_ONCE_MAX:
            raise BodyError(f"a group of {len(request.body)} bytes")
        self._context.groups.put(group_from_json(loads_body(request.body)))
        return Answer()

    async def delete(self, request: Request[DeleteGroupRequest]) -> Answer:
        """Forget a group and, if told so, its offsets."""
        name = request.header.group_name
        self._context.groups.delete(name)
        if request.header.remove_offset:
            self._context.offsets.remove_group(name)
        self._context.fetched.forget_group(name)
        # It goes on though whoever asked for it is gone.
        forgetting = self._context.statistics.forget_group(name)
        cause = "counters of a deleted group"
        await asyncio.shield(self._context.turns.run(forgetting, cause, request.connection))
        return Answer()

    async def all_configs(self, request: Request[NoFields]) -> Answer:
        """Tell the configuration of all groups."""
        return await self._answer(request, self._all_configs(), "configuration of groups")

    def _all_configs(self) -> Steps[bytes]:
        groups, version = self._context.groups, self._context.groups.version
        table: dict[str, Any] = {}
        for group in groups:
            table[group.name] = group_to_json(group)
            yield
        body = {"dataVersion": version_to_json(version), "subscriptionGroupTable": table}
        return (yield from dumps_in_steps(body))

    async def _answer(self, request: Request[Any], body: Steps[bytes], name: str) -> Answer:
        """Answer with a body that may be large, made in slices."""
        return Answer(parts=[await self._context.turns.run(body, name, request.connection)])

    def config(self, request: Request[GroupConfigRequest]) -> Answer:
        """Tell the configuration of one group."""
        group = self._context.groups.look(request.header.group)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group [{request.header.group}] not exist",
            )
        return Answer(parts=[dumps_body(group_to_json(group))])

    # -- members -----------------------------------------------------------------------------

    def consumer_connections(self, request: Request[ConsumerGroupRequest]) -> Answer:
        """Tell who consumes for a group."""
        name = request.header.consumer_group
        group = self._context.consumers.get(name)
        if group is None:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        body = {
            "connectionSet": [_connection(one) for one in group.members.values()],
            "consumeFromWhere": group.consume_from,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {
                topic: subscription_to_json(one) for topic, one in group.subscriptions.items()
            },
        }
        return Answer(parts=[dumps_body(body)])

    def producer_connections(self, request: Request[ProducerGroupRequest]) -> Answer:
        """Tell who produces for a group."""
        name = request.header.producer_group
        members = self._context.producers.members(name)
        if not members:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return Answer(parts=[dumps_body({"connectionSet": list(map(_connection, members))})])

    def all_producers(self, request: Request[NoFields]) -> Answer:
        """Tell all producers by group."""
        table = {
            group: [
                {
                    "clientId": one.client_id,
                    "language": one.language.name,
                    "lastUpdateTimestamp": one.updated_ms,
                    "remoteIP": f"/{one.connection.peer_text}",
                    "version": one.version,
                }
                for one in members
            ]
            for group, members in self._context.producers
        }
        return Answer(parts=[dumps_body({"data": table})])

    # -- progress ----------------------------------------------------------------------------

    async def consume_stats(self, request: Request[ConsumeStatsRequest]) -> Answer:
        """Tell how far a group has come."""
        return await self._answer(
            request, self._group_stats(request.header), "statistics of a group"
        )

    def _group_stats(self, header: ConsumeStatsRequest) -> Steps[bytes]:
        topics = (
            [header.topic]
            if header.topic
            else self._context.offsets.topics_of(header.consumer_group)
        )
        table: dict[Any, Any] = {}
        rate = 0.0
        for topic in topics:
            if self._progress.is_relevant(header.consumer_group, topic):
                table |= yield from self._progress.queues(header.consumer_group, topic)
                rate += self._rate(header.consumer_group, topic)
        return (yield from dumps_in_steps({"consumeTps": rate, "offsetTable": table}))

    def _rate(self, group: str, topic: str) -> float:
        counter = self._context.statistics.get(GROUP_GET_COUNT, f"{topic}@{group}")
        return 0.0 if counter is None else counter.minute.per_second

    async def broker_consume_stats(self, request: Request[BrokerConsumeStatsRequest]) -> Answer:
        """Tell how far all groups have come."""
        steps = self._broker_stats(is_order=request.header.is_order)
        return await self._answer(request, steps, "statistics of all groups")

    def _broker_stats(self, *, is_order: bool) -> Steps[bytes]:
        context, total = self._context, 0
        topics_by_group: dict[str, list[str]] = {}
        for topic, name in context.offsets.pairs():
            topics_by_group.setdefault(name, []).append(topic)
        groups: list[dict[str, Any]] = []
        for group in list(context.groups):
            yield
            rows = []
            for topic in topics_by_group.get(group.name, ()):
                config = context.topics.get(topic)
                if (
                    config is None
                    or (is_order and not config.order)
                    or not self._progress.is_relevant(group.name, topic)
                ):
                    continue
                queues = yield from self._progress.queues(group.name, topic)
                total += sum(one["brokerOffset"] - one["consumerOffset"] for one in queues.values())
                rows.append({"consumeTps": self._rate(group.name, topic), "offsetTable": queues})
            groups.append({group.name: rows})
        body = {"brokerAddr": context.address, "consumeStatsList": groups, "totalDiff": total}
        return (yield from dumps_in_steps(body))

    async def time_span(self, request: Request[ConsumeTimeSpanRequest]) -> Answer:
        """Tell between which times the messages of a group's queues lie."""
        header = request.header
        if header.topic not in self._context.topics:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")

        def steps() -> Steps[bytes]:
            spans = yield from self._progress.time_spans(header.group, header.topic)
            return (yield from dumps_in_steps({"consumeTimeSpanSet": spans}))

        return await self._answer(request, steps(), "time spans of a group")

    async def correction_offset(self, request: Request[CorrectionOffsetRequest]) -> Answer:
        """Tell the least offsets of other groups in a topic."""
        header = request.header
        left_out = set(filter(None, (header.filter_groups or "").split(",")))
        steps = self._progress.least_offsets(header.topic, header.compare_group, left_out)
        offsets = await self._context.turns.run(
            steps, "least offsets of groups", request.connection
        )
        return Answer(parts=[dumps_body({"correctionOffsets": offsets})])

    def clone_offset(self, request: Request[CloneGroupOffsetRequest]) -> Answer:
        """Give one group the offsets of another."""
        header, context = request.header, self._context
        topics = [header.topic] if header.topic else context.offsets.topics_of(header.src_group)
        for topic in topics:
            if topic in context.topics:
                context.offsets.clone(header.src_group, header.dest_group, topic)
        return Answer()

    async def all_offsets(self, request: Request[NoFields]) -> Answer:
        """Tell the offsets of all groups."""
        return await self._answer(request, self._all_offsets(), "offsets of all groups")

    def _all_offsets(self) -> Steps[bytes]:
        # Copied before they are written down: groups go on committing in between.
        table: dict[str, dict[int, int]] = {}
        offsets = self._context.offsets
        for topic, group in offsets.pairs():
            table[f"{topic}{SEPARATOR}{group}"] = dict(offsets.queues(group, topic))
            yield
        return (yield from dumps_in_steps({"offsetTable": table}))

    def delay_offsets(self, request: Request[NoFields]) -> Answer:
        """Tell how far the delivery of delayed messages has come."""
        store = self._context.store
        levels = {
            level: offset for level, (offset, _) in store.schedule.progress().items() if offset
        }
        progress = DelayProgress(levels, store.waiting.progress.saved_json())
        return Answer(parts=[dumps_body(progress.to_json())])


def _connection(client: Client) -> dict[str, Any]:
    return {
        "clientAddr": client.connection.peer_text,
        "clientId": client.client_id,
        "language": client.language.name,
        "version": client.version,
    }
