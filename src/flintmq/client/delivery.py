"""Bringing an envelope to a broker: which queue, which address, and what is tried again."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import (
    ClientError,
    NoRouteError,
    ResponseError,
    SendFailedError,
    UsageError,
)
from flintmq.client.queue_choice import RoundRobin
from flintmq.client.route_causes import explain_no_route
from flintmq.client.sending import STORED_CODES
from flintmq.client.wall_clock import monotonic_ms
from flintmq.format.codes import ResponseCode
from flintmq.remoting import AnswerTimeoutError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.fault_table import FaultTable
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messages import SendResult
    from flintmq.client.sending import Envelope
    from flintmq.model.message_queue import MessageQueue

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRules:
    """How hard a message is tried."""

    attempt_count: int
    retry_when_not_stored_ok: bool = False
    faults: FaultTable | None = None


class Delivery:
    """Delivers for one producer group."""

    def __init__(self, client: ClientInstance, group: str, rules: DeliveryRules) -> None:
        self._client = client
        self._group = group
        self._rules = rules
        self._turns: dict[str, RoundRobin] = {}

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues that a topic can be sent to; NoRouteError if there are none."""
        client = self._client
        found = await client.routes.publish_queues(topic)
        if not found:
            raise await explain_no_route(topic, client.servers, client.routes)
        return found

    async def next_queue(self, topic: str, *, avoid: str | None = None) -> MessageQueue:
        """Return the queue whose turn it is, not of the broker ``avoid`` where possible."""
        queues = await self.queues(topic)
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = RoundRobin()
        faults = self._rules.faults
        is_in_use = None if faults is None else faults.is_in_use
        return turn.choose(queues, avoid=avoid, is_in_use=is_in_use)

    async def address(self, queue: MessageQueue) -> str:
        """Return where messages for a queue go."""
        routes = self._client.routes
        address = routes.master(queue.broker_name)
        if address is None:
            await routes.fetch(queue.topic)
            address = routes.master(queue.broker_name)
        if address is None:
            raise NoRouteError(
                queue.topic,
                f"broker {queue.broker_name} has no master that is registered",
                "start it, or send to another queue",
            )
        if self._client.options.vip_channel:
            host, _, port = address.rpartition(":")
            address = f"{host}:{int(port) - _VIP_PORT_STEP}"
        return address

    async def tell(self, envelope: Envelope, queue: MessageQueue) -> None:
        """Send without waiting for an answer."""
        address = await self.address(queue)
        header = envelope.header(self._group, queue)
        await self._client.remoting.tell(address, envelope.code, header, envelope.body)

    async def deliver(
        self, envelope: Envelope, queue: MessageQueue | None, timeout_ms: int
    ) -> SendResult:
        """Try one queue after the other until one takes the message or time is up.

        A queue that is given is the only one tried.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        is_free = queue is None
        last_broker: str | None = None
        not_ok: SendResult | None = None
        failures: list[str] = []
        for _ in range(self._rules.attempt_count if is_free else 1):
            left_ms = round((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                break
            if is_free:
                queue = await self.next_queue(envelope.topic, avoid=last_broker)
            assert queue is not None
            last_broker = queue.broker_name
            try:
                result = await self._attempt(envelope, queue, left_ms)
            except (RemotingError, ClientError) as error:
                if not _may_retry(error, is_free=is_free):
                    raise
                failures.append(f"{queue.broker_name}: {error}")
                continue
            if result.ok or not self._rules.retry_when_not_stored_ok:
                return result
            not_ok = result
        if not_ok is not None:
            return not_ok
        tried = "; ".join(failures) or f"nothing was answered within {timeout_ms} ms"
        raise SendFailedError(f"message to {envelope.topic} not acknowledged: {tried}")

    async def _attempt(self, envelope: Envelope, queue: MessageQueue, left_ms: int) -> SendResult:
        remoting, faults = self._client.remoting, self._rules.faults
        address = await self.address(queue)
        began = monotonic_ms()
        failed = True
        try:
            answer = await remoting.call(
                address,
                envelope.code,
                envelope.header(self._group, queue),
                envelope.body,
                timeout_ms=left_ms,
            )
            failed = answer.code not in STORED_CODES
        except AnswerTimeoutError:
            # The connection may be dead without either side knowing.
            with contextlib.suppress(RemotingError):
                (await remoting.connect(address)).close()
            raise
        finally:
            if faults is not None:
                faults.note(queue.broker_name, monotonic_ms() - began, failed=failed)
        return envelope.result(answer, queue, address=address)


def _may_retry(error: Exception, *, is_free: bool) -> bool:
    if isinstance(error, NoRouteError | UsageError):
        return False
    if isinstance(error, ResponseError):
        return is_free and error.code in RETRY_CODES
    return True
