"""Clients: who is there, who shares a group, who may consume a queue in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.clients import Client
from flintmq.format.bodies.dialect import Members, dumps_body, loads_body, queue_from
from flintmq.format.bodies.heartbeat import decode_heartbeat, subscription_from_json
from flintmq.format.codes import ResponseCode
from flintmq.format.headers.clients import (
    ConsumerGroupRequest,
    NoFields,
    UnregisterClientRequest,
)
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topic_config import TopicSysFlag
from flintmq.model.topics import RETRY_PREFIX
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.format.bodies.heartbeat import ConsumerData


class ClientProcessor:
    """Serves heartbeats and what clients of a group have to know of each other."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def heartbeat(self, request: Request[NoFields]) -> Answer:
        """Take a client in, or refresh it."""
        parts, command = self._parts, request.command
        beat = decode_heartbeat(request.body)
        client = Client(
            request.connection,
            beat.client_id,
            command.language,
            command.version,
            parts.clock.now_ms(),
        )
        for data in beat.consumers:
            self._prepare(data)
            parts.consumers.register(data, client)
        for group in beat.producer_groups:
            parts.producers.register(group, client)
        return Answer()

    def _prepare(self, data: ConsumerData) -> None:
        """Make the group and the topic of its retries, where they may be made."""
        group = self._parts.groups.get(data.group)
        if group is not None:
            flag = TopicSysFlag.UNIT_SUB if data.unit_mode else TopicSysFlag.NONE
            self._parts.topics.ensure(
                RETRY_PREFIX + data.group, group.retry_queue_count, sys_flag=int(flag)
            )

    def unregister(self, request: Request[UnregisterClientRequest]) -> Answer:
        """Take a client out of its groups."""
        header, connection = request.header, request.connection
        if header.producer_group:
            self._parts.producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            self._parts.consumers.unregister(header.consumer_group, connection)
        return Answer()

    def consumer_list(self, request: Request[ConsumerGroupRequest]) -> Answer:
        """Tell the client ids of a group."""
        group = self._parts.consumers.get(request.header.consumer_group)
        if group is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {request.header.consumer_group}",
            )
        ids = [client.client_id for client in group.members.values()]
        return Answer(parts=[dumps_body({"consumerIdList": ids})])

    def check_config(self, request: Request[NoFields]) -> Answer:
        """Tell a client whether its subscription can be served."""
        members = Members(loads_body(request.body), "a client's configuration")
        value = members.get("subscriptionData")
        if value is None or subscription_from_json(value).is_tag:
            return Answer()
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92",
        )

    def lock(self, request: Request[NoFields]) -> Answer:
        """Lock queues for a client."""
        group, client_id, queues = _lock_request(request.body)
        granted = self._parts.locks.lock(group, client_id, queues, self._parts.clock.now_ms())
        return Answer(parts=[dumps_body({"lockOKMQSet": granted})])

    def unlock(self, request: Request[NoFields]) -> Answer:
        """Give locks back."""
        group, client_id, queues = _lock_request(request.body)
        self._parts.locks.unlock(group, client_id, queues)
        return Answer()


def _lock_request(body: bytes) -> tuple[str, str, list[MessageQueue]]:
    members = Members(loads_body(body), "a lock request")
    queues = [queue_from(one) for one in members.items("mqSet")]
    return members.text("consumerGroup"), members.text("clientId"), queues
