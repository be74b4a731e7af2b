"""Delivery of an envelope to a broker: which queue, which address, and what is tried again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from flintmq.client.errors import (
    AccessDeniedError,
    NoNameServerError,
    NoRouteError,
    ResponseError,
    SendFailedError,
    UsageError,
)
from flintmq.client.messaging.envelope import STORED_CODES
from flintmq.client.producing.known_sends import KnownSends
from flintmq.client.producing.queue_choice import RoundRobin
from flintmq.client.routing.route_causes import explain_no_route
from flintmq.client.wall_clock import monotonic_ms
from flintmq.errors import FlintError
from flintmq.format.wire.codes import ResponseCode
from flintmq.remoting import ConnectError, ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.deadline import Deadline
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.envelope import Envelope
    from flintmq.client.messaging.messages import SendResult
    from flintmq.client.producing.fault_table import FaultTable
    from flintmq.format.wire.command import Command
    from flintmq.model.message_queue import MessageQueue
    from flintmq.remoting import Connection, EncodedRequest

RETRY_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""Codes after which another broker is tried.  Java's client gives up when a broker is busy."""

_VIP_PORT_STEP: Final = 2
_PAUSE_SHARES: Final = (0.05, 0.15, 0.3)
"""How long a send waits before it tries the same broker again, as shares of its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRules:
    """How often a message is tried, and which brokers are left out."""

    attempt_count: int
    retry_when_not_stored_ok: bool = False
    faults: FaultTable | None = None


class Attempt(NamedTuple):
    """An attempt after which others may follow; without result and error it was not made."""

    queue: MessageQueue
    result: SendResult | None = None
    error: FlintError | None = None

    @property
    def was_made(self) -> bool:
        """Whether there was an attempt."""
        return self.result is not None or self.error is not None


class Delivery:
    """Delivers for one producer group."""

    def __init__(self, client: ClientInstance, group: str, rules: DeliveryRules) -> None:
        self._client = client
        self._rules = rules
        self._known_sends = KnownSends(group, client.prepare)
        self._turns: dict[str, RoundRobin] = {}
        self._is_closed = False

    def close(self) -> None:
        """Try nothing again from now on."""
        self._is_closed = True

    async def queues(self, topic: str, deadline: Deadline) -> Sequence[MessageQueue]:
        """Return the queues that a topic can be sent to.

        Raises:
            NoRouteError: there are none.
            NoNameServerError: no name server has answered in time.
        """
        known = self._client.routes.known_publish_queues(topic)
        return known if known else await deadline.route(topic, self._ask_for_queues(topic))

    async def _ask_for_queues(self, topic: str) -> Sequence[MessageQueue]:
        client = self._client
        found = await client.routes.publish_queues(topic)
        if not found:
            raise await explain_no_route(topic, client.servers, client.routes)
        return found

    async def next_queue(
        self, topic: str, deadline: Deadline, *, avoid: str | None = None
    ) -> MessageQueue:
        """Return the queue whose turn it is, not of the broker ``avoid`` where possible."""
        known = self._client.routes.known_publish_queues(topic)
        return self._choose(topic, known or await self.queues(topic, deadline), avoid)

    def _choose(
        self, topic: str, queues: Sequence[MessageQueue], avoid: str | None
    ) -> MessageQueue:
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = RoundRobin()
        faults = self._rules.faults
        is_in_use = None if faults is None else faults.is_in_use
        return turn.choose(queues, avoid=avoid, is_in_use=is_in_use)

    async def address(self, queue: MessageQueue, deadline: Deadline) -> str:
        """Return where messages for a queue go."""
        routes = self._client.routes
        address = self._known_address(queue)
        if address is None:
            await deadline.route(queue.topic, routes.fetch(queue.topic))
            address = self._known_address(queue)
        if address is None:
            raise NoRouteError(
                queue.topic,
                f"broker {queue.broker_name} has no master that is registered",
                "start it, or send to another queue",
            )
        return address

    def _known_address(self, queue: MessageQueue) -> str | None:
        """Return where messages for a queue go, if that is known; ask nobody."""
        address = self._client.routes.master(queue.broker_name)
        if address is not None and self._client.options.vip_channel:
            host, _, port = address.rpartition(":")
            address = f"{host}:{int(port) - _VIP_PORT_STEP}"
        return address

    async def tell(self, envelope: Envelope, queue: MessageQueue, deadline: Deadline) -> None:
        """Send without waiting for an answer."""
        address = await self.address(queue, deadline)
        header = self._known_sends.header(envelope, queue)
        await self._client.remoting.tell(
            address, envelope.code, header, envelope.body, timeout_ms=max(deadline.left_ms, 1)
        )

    async def deliver(
        self,
        envelope: Envelope,
        queue: MessageQueue | None,
        deadline: Deadline,
        *,
        introduced: bool = False,
        first: Attempt | None = None,
    ) -> SendResult:
        """Try one queue after the other until one takes the message or time is up.

        A queue that is given is the only one tried.  With ``introduced``, a broker that gets the
        message has heard of this client before.  ``first`` is the attempt that `try_in_thread`
        has made of this envelope.
        """
        is_free = queue is None
        tried_brokers: list[str] = []
        not_ok: SendResult | None = None
        failures: list[str] = []
        for _ in range(self._rules.attempt_count if is_free else 1):
            if first is None or not first.was_made:
                if deadline.left_ms <= 0:
                    break
                if self._is_closed:
                    failures.append("the producer was closed meanwhile")
                    break
            if is_free:
                queue = self._first_try(envelope.topic, first) if not tried_brokers else None
                queue = queue or await self._next_try(envelope.topic, deadline, tried_brokers)
            assert queue is not None
            tried_brokers.append(queue.broker_name)
            try:
                result = _outcome(first)
                if result is None:
                    result = await self._attempt(envelope, queue, deadline, introduced=introduced)
            except FlintError as error:
                if not _may_retry(error, is_free=is_free):
                    raise
                if isinstance(error, ConnectError | ConnectionLostError):
                    self._client.fetch_route_soon(envelope.topic)
                failures.append(f"{queue.broker_name}: {error}")
                continue
            finally:
                first = None
            if result.ok or not self._rules.retry_when_not_stored_ok:
                return result
            not_ok = result
        if not_ok is not None:
            return not_ok
        tried = "; ".join(failures) or f"nothing was answered within {deadline.timeout_ms} ms"
        raise SendFailedError(f"message to {envelope.topic} not acknowledged: {tried}")

    def try_in_thread(
        self, envelope: Envelope, queue: MessageQueue | None, deadline: Deadline
    ) -> SendResult | Attempt | None:
        """Send an envelope from the calling thread, which is not that of the loop.

        If this is no result, `deliver` has to go on from it; None if it is not known where to.
        """
        if self._is_closed or not self._client.has_repeating_headers:
            return None
        queue = queue or self._first_try(envelope.topic)
        address = None if queue is None else self._known_address(queue)
        connection = None if address is None else self._client.remoting.ready(address)
        if queue is None or address is None or connection is None:
            return None if queue is None else Attempt(queue)
        try:
            request = self._known_sends.request(envelope, queue, connection.next_opaque())
            answer = connection.exchange_in_thread(request, timeout_ms=max(deadline.left_ms, 1))
            if answer is None:
                return Attempt(queue)
            result = envelope.result(answer, queue, address=address)
        except FlintError as error:
            return Attempt(queue, error=error)
        is_good = result.ok or not self._rules.retry_when_not_stored_ok
        return result if is_good else Attempt(queue, result)

    def _first_try(self, topic: str, first: Attempt | None = None) -> MessageQueue | None:
        """Return the queue to try first; None if those of the topic are not known yet."""
        if first is not None:
            return first.queue
        known = self._client.routes.known_publish_queues(topic)
        return self._choose(topic, known, None) if known else None

    async def _next_try(
        self, topic: str, deadline: Deadline, tried_brokers: Sequence[str]
    ) -> MessageQueue:
        """Return the queue to try next, after a pause if its broker has just failed."""
        avoid = tried_brokers[-1] if tried_brokers else None
        queue = await self.next_queue(topic, deadline, avoid=avoid)
        failed_count = tried_brokers.count(queue.broker_name)
        if failed_count:
            share = _PAUSE_SHARES[min(failed_count, len(_PAUSE_SHARES)) - 1]
            await asyncio.sleep(min(share * deadline.timeout_ms, max(deadline.left_ms, 0)) / 1000)
        return queue

    async def _attempt(
        self, envelope: Envelope, queue: MessageQueue, deadline: Deadline, *, introduced: bool
    ) -> SendResult:
        remoting, faults = self._client.remoting, self._rules.faults
        address = self._known_address(queue) or await self.address(queue, deadline)
        began = 0 if faults is None else monotonic_ms()
        failed = True
        try:
            if introduced:
                # Half of the time, so that another broker can be tried.
                await self._client.introduce(address, timeout_ms=max(deadline.left_ms // 2, 1))
            connection = remoting.ready(address) or await remoting.connect(
                address, timeout_ms=max(deadline.left_ms, 1)
            )
            answer = await connection.exchange(
                self._request(connection, envelope, queue), timeout_ms=max(deadline.left_ms, 1)
            )
            failed = answer.code not in STORED_CODES
        finally:
            if faults is not None:
                faults.note(queue.broker_name, monotonic_ms() - began, failed=failed)
        return envelope.result(answer, queue, address=address)

    def _request(
        self, connection: Connection, envelope: Envelope, queue: MessageQueue
    ) -> Command | EncodedRequest:
        """Return the request that sends an envelope to a queue."""
        if self._client.has_repeating_headers:
            return self._known_sends.request(envelope, queue, connection.next_opaque())
        header = self._known_sends.header(envelope, queue)
        return connection.new_request(envelope.code, header, envelope.body)


def _outcome(attempt: Attempt | None) -> SendResult | None:
    """Return or raise what came of an attempt; None if none was made."""
    if attempt is None:
        return None
    if attempt.error is not None:
        raise attempt.error
    return attempt.result


def _may_retry(error: Exception, *, is_free: bool) -> bool:
    if isinstance(error, NoRouteError | NoNameServerError | UsageError):
        return False
    if isinstance(error, ResponseError):
        is_denied = isinstance(error, AccessDeniedError)
        return is_free and not is_denied and error.code in RETRY_CODES
    return True
