"""Clients: who is there, who shares a group, who may consume a queue in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.broker.pulling.pull_admission import check_sql_is_served
from flintmq.broker.tables.client_tables import Client
from flintmq.filter.errors import SqlFilterError
from flintmq.format.wire.bodies.dialect import Members, dumps_body, loads_body, queue_from
from flintmq.format.wire.bodies.heartbeat import decode_heartbeat, subscription_from_json
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.clients import (
    ConsumerGroupRequest,
    NoFields,
    UnregisterClientRequest,
)
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topic_config import TopicSysFlag
from flintmq.model.topics import RETRY_PREFIX
from flintmq.remoting import Answer, RefusedError, Request
from flintmq.remoting.fair_turns import finish

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from flintmq.broker.context import BrokerContext
    from flintmq.format.wire.bodies.heartbeat import ConsumerData, Heartbeat
    from flintmq.remoting.fair_turns import Steps

GROUPS_AT_ONCE_MAX: Final = 32
"""Groups of a heartbeat that are taken in within one turn of the loop."""


class ClientProcessor:
    """Serves heartbeats and what clients of a group have to know of each other."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def heartbeat(self, request: Request[NoFields]) -> Answer | Awaitable[Answer]:
        """Take a client in, or refresh it; one of very many groups is taken in in slices.

        So are SQL92 subscriptions, which have to be compiled.
        """
        command = request.command
        beat = decode_heartbeat(request.body)
        client = Client(
            request.connection,
            beat.client_id,
            command.language,
            command.version,
            self._context.clock.now_ms(),
        )
        steps = self._take_in(beat, client)
        compiles = self._context.config.property_filter and bool(beat.consumers)
        if compiles or len(beat.consumers) + len(beat.producer_groups) > GROUPS_AT_ONCE_MAX:
            return self._take_in_slices(request, steps)
        finish(steps)
        return Answer()

    async def _take_in_slices(self, request: Request[NoFields], steps: Steps[None]) -> Answer:
        await self._context.turns.run(steps, "heartbeat", request.connection)
        return Answer()

    def _take_in(self, beat: Heartbeat, client: Client) -> Steps[None]:
        for data in beat.consumers:
            self._prepare(data)
            self._context.consumers.register(data, client)
            yield
        for group in beat.producer_groups:
            self._context.producers.register(group, client)
            yield
        if self._context.config.property_filter:
            for data in beat.consumers:
                yield from self._context.filters.register(data.group, data.subscriptions)

    def _prepare(self, data: ConsumerData) -> None:
        """Make the group and the topic of its retries, where they may be made."""
        group = self._context.groups.get(data.group)
        if group is not None:
            flag = TopicSysFlag.UNIT_SUB if data.unit_mode else TopicSysFlag.NONE
            self._context.topics.ensure(
                RETRY_PREFIX + data.group, group.retry_queue_count, sys_flag=int(flag)
            )

    def unregister(self, request: Request[UnregisterClientRequest]) -> Answer:
        """Take a client out of its groups."""
        header, connection = request.header, request.connection
        if header.producer_group:
            self._context.producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            self._context.consumers.unregister(header.consumer_group, connection)
        return Answer()

    def consumer_list(self, request: Request[ConsumerGroupRequest]) -> Answer:
        """Tell the client ids of a group."""
        group = self._context.consumers.get(request.header.consumer_group)
        if group is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {request.header.consumer_group}",
            )
        # A client that lost its connection in silence has two, until the old one is given up.
        ids = list(dict.fromkeys(client.client_id for client in group.members.values()))
        return Answer(parts=[dumps_body({"consumerIdList": ids})])

    def check_config(self, request: Request[NoFields]) -> Answer:
        """Tell a client whether its subscription can be served."""
        members = Members(loads_body(request.body), "a client's configuration")
        value = members.get("subscriptionData")
        subscription = None if value is None else subscription_from_json(value)
        if subscription is None or subscription.is_tag:
            return Answer()
        check_sql_is_served(self._context, subscription)
        try:
            self._context.filters.compiled(subscription.expression)
        except SqlFilterError as error:
            raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return Answer()

    def lock(self, request: Request[NoFields]) -> Answer:
        """Lock queues for a client."""
        group, client_id, queues = _lock_request(request.body)
        granted = self._context.locks.lock(group, client_id, queues, self._context.clock.now_ms())
        return Answer(parts=[dumps_body({"lockOKMQSet": granted})])

    def unlock(self, request: Request[NoFields]) -> Answer:
        """Give locks back."""
        group, client_id, queues = _lock_request(request.body)
        self._context.locks.unlock(group, client_id, queues)
        return Answer()


def _lock_request(body: bytes) -> tuple[str, str, list[MessageQueue]]:
    members = Members(loads_body(body), "a lock request")
    queues = [queue_from(one) for one in members.items("mqSet")]
    return members.name("consumerGroup"), members.name("clientId"), queues
