"""Clients: who is there, who shares a group, who may consume a queue in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from flintmq.broker.processors.request_bodies import BODY_AT_ONCE_MAX, LargeBodies
from flintmq.broker.pulling.pull_admission import check_sql_is_served
from flintmq.broker.tables.client_tables import Client
from flintmq.filter.errors import SqlFilterError
from flintmq.format.wire.bodies.dialect import (
    Members,
    dumps_body,
    dumps_in_steps,
    loads_body,
    queue_from,
)
from flintmq.format.wire.bodies.heartbeat import decode_heartbeat, subscription_from_json
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.clients import (
    ConsumerGroupRequest,
    NoFields,
    UnregisterClientRequest,
)
from flintmq.model.message_queue import MessageQueue
from flintmq.model.steps import finish
from flintmq.model.topic_config import TopicSysFlag
from flintmq.model.topics import RETRY_PREFIX
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from flintmq.broker.context import BrokerContext
    from flintmq.broker.processors.request_bodies import DecodesBody
    from flintmq.format.wire.bodies.heartbeat import ConsumerData, Heartbeat
    from flintmq.model.steps import Steps
    from flintmq.model.subscription import Subscription

GROUPS_AT_ONCE_MAX: Final = 32
"""Groups of a heartbeat that are taken in within one turn of the loop."""
QUEUES_AT_ONCE_MAX: Final = 1024
"""Queues that are locked or given back within one turn of the loop."""
QUEUES_IN_A_STEP: Final = 64

_T = TypeVar("_T")


class ClientProcessor:
    """Serves heartbeats and what clients of a group have to know of each other."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._large_bodies = LargeBodies()

    def _read(
        self,
        request: Request[NoFields],
        decode: DecodesBody[_T],
        serve: Callable[[Request[NoFields], _T], Answer | Awaitable[Answer]],
    ) -> Answer | Awaitable[Answer]:
        """Serve a request by what its body says, which takes longer to read if it is large."""
        body = request.body  # It is let go when this returns.
        if len(body) <= BODY_AT_ONCE_MAX:
            return serve(request, decode(body, loads=loads_body))

        async def read_and_serve() -> Answer:
            outcome = serve(request, await self._large_bodies.read(body, decode))
            return outcome if isinstance(outcome, Answer) else await outcome

        return read_and_serve()

    def heartbeat(self, request: Request[NoFields]) -> Answer | Awaitable[Answer]:
        """Take a client in, or refresh it."""
        return self._read(request, decode_heartbeat, self._beat)

    def _beat(self, request: Request[NoFields], beat: Heartbeat) -> Answer | Awaitable[Answer]:
        """Take a client in; one of very many groups is taken in in slices.

        So are SQL92 subscriptions, which have to be compiled.
        """
        command = request.command
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

    def check_config(self, request: Request[NoFields]) -> Answer | Awaitable[Answer]:
        """Tell a client whether its subscription can be served."""
        return self._read(request, _checked_subscription, self._check)

    def _check(
        self, request: Request[NoFields], subscription: Subscription | None
    ) -> Answer | Awaitable[Answer]:
        if subscription is None or subscription.is_tag:
            return Answer()
        check_sql_is_served(self._context, subscription)
        steps = self._check_in_steps(subscription.expression)
        if self._context.filters.takes_long(subscription.expression):
            return self._context.turns.run(steps, "SQL92 expression", request.connection)
        return finish(steps)

    def _check_in_steps(self, expression: str) -> Steps[Answer]:
        try:
            yield from self._context.filters.compile(expression)
        except SqlFilterError as error:
            raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return Answer()

    def lock(self, request: Request[NoFields]) -> Answer | Awaitable[Answer]:
        """Lock queues for a client."""
        return self._read(request, _lock_request, self._lock)

    def _lock(self, request: Request[NoFields], asked: _LockRequest) -> Answer | Awaitable[Answer]:
        return self._run(request, asked, self._lock_in_steps(asked))

    def _run(
        self, request: Request[NoFields], asked: _LockRequest, steps: Steps[Answer]
    ) -> Answer | Awaitable[Answer]:
        """Do at once what is asked for few queues, and in slices what is for many."""
        if len(asked.queues) <= QUEUES_AT_ONCE_MAX:
            return finish(steps)
        return self._context.turns.run(steps, "locks of queues", request.connection)

    def _lock_in_steps(self, asked: _LockRequest) -> Steps[Answer]:
        locks, now_ms = self._context.locks, self._context.clock.now_ms()
        granted: list[MessageQueue] = []
        for some in _pieces(asked.queues):
            granted += locks.lock(asked.group, asked.client_id, some, now_ms)
            yield
        return Answer(parts=[(yield from dumps_in_steps({"lockOKMQSet": granted}))])

    def unlock(self, request: Request[NoFields]) -> Answer | Awaitable[Answer]:
        """Give locks back."""
        return self._read(request, _lock_request, self._unlock)

    def _unlock(
        self, request: Request[NoFields], asked: _LockRequest
    ) -> Answer | Awaitable[Answer]:
        return self._run(request, asked, self._unlock_in_steps(asked))

    def _unlock_in_steps(self, asked: _LockRequest) -> Steps[Answer]:
        for some in _pieces(asked.queues):
            self._context.locks.unlock(asked.group, asked.client_id, some)
            yield
        return Answer()


class _LockRequest(NamedTuple):
    group: str
    client_id: str
    queues: list[MessageQueue]


def _pieces(queues: list[MessageQueue]) -> Iterator[list[MessageQueue]]:
    for first in range(0, len(queues), QUEUES_IN_A_STEP):
        yield queues[first : first + QUEUES_IN_A_STEP]


def _checked_subscription(body: bytes, *, loads: Callable[[bytes], Any]) -> Subscription | None:
    value = Members(loads(body), "a client's configuration").get("subscriptionData")
    return None if value is None else subscription_from_json(value)


def _lock_request(body: bytes, *, loads: Callable[[bytes], Any]) -> _LockRequest:
    members = Members(loads(body), "a lock request")
    queues = [queue_from(one) for one in members.items("mqSet")]
    return _LockRequest(members.name("consumerGroup"), members.name("clientId"), queues)
