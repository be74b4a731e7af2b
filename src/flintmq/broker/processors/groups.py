"""Administration of consumer groups: their configuration, members and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.broker.progress import GroupProgress
from flintmq.broker.statistics import GROUP_GET_COUNT
from flintmq.format.bodies.dialect import dumps_body, loads_body
from flintmq.format.bodies.groups import group_from_json, group_table_to_json, group_to_json
from flintmq.format.bodies.heartbeat import subscription_to_json
from flintmq.format.codes import ResponseCode
from flintmq.format.headers.admin import (
    BrokerConsumeStatsRequest,
    CloneGroupOffsetRequest,
    ConsumeStatsRequest,
    ConsumeTimeSpanRequest,
    CorrectionOffsetRequest,
    DeleteGroupRequest,
    GroupConfigRequest,
)
from flintmq.format.headers.clients import (
    ConsumerGroupRequest,
    NoFields,
    ProducerGroupRequest,
)
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.clients import Client
    from flintmq.broker.parts import BrokerParts


class GroupProcessor:
    """Serves what operators ask and order about groups."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._progress = GroupProgress(parts)

    # -- configuration -----------------------------------------------------------------------

    def put(self, request: Request[NoFields]) -> Answer:
        """Create a group or replace its configuration."""
        self._parts.groups.put(group_from_json(loads_body(request.body)))
        return Answer()

    def delete(self, request: Request[DeleteGroupRequest]) -> Answer:
        """Forget a group and, if told so, its offsets."""
        name = request.header.group_name
        self._parts.groups.delete(name)
        if request.header.remove_offset:
            self._parts.offsets.remove_group(name)
        self._parts.statistics.forget_group(name)
        return Answer()

    def all_configs(self, request: Request[NoFields]) -> Answer:
        """Tell the configuration of all groups."""
        groups = self._parts.groups
        return Answer(parts=[dumps_body(group_table_to_json(groups, groups.version))])

    def config(self, request: Request[GroupConfigRequest]) -> Answer:
        """Tell the configuration of one group."""
        group = self._parts.groups.look(request.header.group)
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
        group = self._parts.consumers.get(name)
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
        members = self._parts.producers.members(name)
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
            for group, members in self._parts.producers
        }
        return Answer(parts=[dumps_body({"data": table})])

    # -- progress ----------------------------------------------------------------------------

    def consume_stats(self, request: Request[ConsumeStatsRequest]) -> Answer:
        """Tell how far a group has come."""
        header = request.header
        topics = (
            [header.topic] if header.topic else self._parts.offsets.topics_of(header.consumer_group)
        )
        table: dict[Any, Any] = {}
        rate = 0.0
        for topic in topics:
            if self._progress.is_relevant(header.consumer_group, topic):
                table |= self._progress.queues(header.consumer_group, topic)
                rate += self._rate(header.consumer_group, topic)
        return Answer(parts=[dumps_body({"consumeTps": rate, "offsetTable": table})])

    def _rate(self, group: str, topic: str) -> float:
        counter = self._parts.statistics.get(GROUP_GET_COUNT, f"{topic}@{group}")
        return 0.0 if counter is None else counter.minute.per_second

    def broker_consume_stats(self, request: Request[BrokerConsumeStatsRequest]) -> Answer:
        """Tell how far all groups have come."""
        parts, total = self._parts, 0
        groups: list[dict[str, Any]] = []
        for group in parts.groups:
            rows = []
            for topic in parts.offsets.topics_of(group.name):
                config = parts.topics.get(topic)
                if (
                    config is None
                    or (request.header.is_order and not config.order)
                    or not self._progress.is_relevant(group.name, topic)
                ):
                    continue
                queues = self._progress.queues(group.name, topic)
                total += sum(one["brokerOffset"] - one["consumerOffset"] for one in queues.values())
                rows.append({"consumeTps": self._rate(group.name, topic), "offsetTable": queues})
            groups.append({group.name: rows})
        body = {"brokerAddr": parts.address, "consumeStatsList": groups, "totalDiff": total}
        return Answer(parts=[dumps_body(body)])

    def time_span(self, request: Request[ConsumeTimeSpanRequest]) -> Answer:
        """Tell between which times the messages of a group's queues lie."""
        header = request.header
        if header.topic not in self._parts.topics:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = self._progress.time_spans(header.group, header.topic)
        return Answer(parts=[dumps_body({"consumeTimeSpanSet": spans})])

    def correction_offset(self, request: Request[CorrectionOffsetRequest]) -> Answer:
        """Tell the least offsets of other groups in a topic."""
        header = request.header
        left_out = set(filter(None, (header.filter_groups or "").split(",")))
        offsets = self._progress.least_offsets(header.topic, header.compare_group, left_out)
        return Answer(parts=[dumps_body({"correctionOffsets": offsets})])

    def clone_offset(self, request: Request[CloneGroupOffsetRequest]) -> Answer:
        """Give one group the offsets of another."""
        header, parts = request.header, self._parts
        topics = [header.topic] if header.topic else parts.offsets.topics_of(header.src_group)
        for topic in topics:
            if topic in parts.topics:
                parts.offsets.clone(header.src_group, header.dest_group, topic)
        return Answer()

    def all_offsets(self, request: Request[NoFields]) -> Answer:
        """Tell the offsets of all groups."""
        return Answer(parts=[dumps_body(self._parts.offsets.to_json())])

    def delay_offsets(self, request: Request[NoFields]) -> Answer:
        """Tell how far the delivery of delayed messages has come."""
        progress = self._parts.store.schedule.progress()
        table = {level: offset for level, (offset, _) in progress.items() if offset}
        return Answer(parts=[dumps_body({"offsetTable": table})])


def _connection(client: Client) -> dict[str, Any]:
    return {
        "clientAddr": client.connection.peer_text,
        "clientId": client.client_id,
        "language": client.language.name,
        "version": client.version,
    }
