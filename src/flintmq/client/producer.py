"""Sending messages."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from flintmq.client.client_user import ClientUser
from flintmq.client.errors import (
    ClientError,
    NoRouteError,
    ResponseError,
    SendFailedError,
    UsageError,
)
from flintmq.client.fault_table import FaultTable
from flintmq.client.messages import Message, SendResult
from flintmq.client.namespaces import wrap
from flintmq.client.options import checked_group
from flintmq.client.queue_choice import RoundRobin, queue_for_key
from flintmq.client.request_reply import reply_envelope, wait_for_reply
from flintmq.client.route_causes import explain_no_route
from flintmq.client.sending import (
    COMPRESS_FROM,
    STORED_CODES,
    Envelope,
    seal,
    seal_batch,
    split_by_size,
)
from flintmq.client.trace import TraceSender, pub_line
from flintmq.client.transactions import (
    TransactionListener,
    TransactionResult,
    TransactionState,
    answer_check,
    ask,
    end_header,
)
from flintmq.client.wall_clock import wall_ms
from flintmq.format.codes import RequestCode, ResponseCode
from flintmq.format.sys_flag import TRANSACTION_PREPARED, CompressionType
from flintmq.model.message_queue import MessageQueue
from flintmq.model.property_names import (
    CORRELATION_ID,
    INSTANCE_ID,
    PRODUCER_GROUP,
    REPLY_TO_CLIENT,
    TRAN_MSG,
    TTL,
)
from flintmq.model.topics import TRACE_TOPIC
from flintmq.remoting import AnswerTimeoutError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flintmq.client.instance import ClientInstance
    from flintmq.client.messages import ReceivedMessage
    from flintmq.remoting import Request

logger = logging.getLogger(__name__)

SEND_TIMEOUT_MS: Final = 3000
RETRY_COUNT: Final = 2
BATCH_SIZE: Final = 1 << 20
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


class SendHook(Protocol):
    """Sees every message before and after it is sent; what it raises before stops the send."""

    def before_send(self, message: Message) -> None:
        """See a message that is about to be sent."""
        ...

    def after_send(
        self, message: Message, result: SendResult | None, error: Exception | None
    ) -> None:
        """See how it went: one of result and error is there."""
        ...


class AsyncProducer(ClientUser):
    """Sends messages of one producer group.

    Use it as an async context manager.  ``client`` shares a client with others; without it the
    producer has one of its own, made from the options.
    """

    _noun = "producer"

    def __init__(
        self,
        *,
        group: str = "flintmq-producer",
        client: ClientInstance | None = None,
        send_timeout_ms: int = SEND_TIMEOUT_MS,
        retries: int = RETRY_COUNT,
        retry_when_not_stored_ok: bool = False,
        compression: CompressionType = CompressionType.ZLIB,
        compress_from: int = COMPRESS_FROM,
        avoid_slow_brokers: bool = False,
        transaction_listener: TransactionListener | None = None,
        hooks: Sequence[SendHook] = (),
        trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        **options: Any,
    ) -> None:
        super().__init__(client, options)
        if send_timeout_ms <= 0 or retries < 0 or compress_from < 0:
            raise UsageError("times, retries and sizes are not negative")
        self.group = wrap(self.namespace, checked_group(group))
        self._is_member = False
        self._timeout_ms = send_timeout_ms
        self._attempt_count = retries + 1
        self._retry_not_ok = retry_when_not_stored_ok
        self._compression = compression
        self._compress_from = compress_from
        self._faults = FaultTable(now_ms=_monotonic_ms) if avoid_slow_brokers else None
        self._listener = transaction_listener
        self._hooks = tuple(hooks)
        self._trace_topic = trace_topic if trace else None
        self._trace: TraceSender | None = None
        self._turns: dict[str, RoundRobin] = {}

    # -- sending -----------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message and return where it was stored.

        Without a queue or a sharding key it goes to the next queue in turn, and on failure to
        one of another broker.

        Raises:
            NoRouteError: nobody has the topic.
            ResponseError: a broker refused the message.
            SendFailedError: no broker acknowledged it in time; it may be stored all the same.
        """
        envelope = self._seal(message)
        if queue is None and message.sharding_key is not None:
            queue = queue_for_key(await self._queues(envelope.topic), message.sharding_key)
        return await self._send_watched(message, envelope, queue, timeout_ms or self._timeout_ms)

    async def _send_watched(
        self, message: Message, envelope: Envelope, queue: MessageQueue | None, timeout_ms: int
    ) -> SendResult:
        """Deliver a message, with hooks before and after, and a line in the trace."""
        for hook in self._hooks:
            hook.before_send(message)
        began, started_ms = _monotonic_ms(), wall_ms()
        result: SendResult | None = None
        failure: Exception | None = None
        try:
            result = await self._deliver(envelope, queue, timeout_ms)
        except (ClientError, RemotingError) as error:
            failure = error
            raise
        finally:
            for hook in self._hooks:
                hook.after_send(message, result, failure)
            if self._trace is not None and (result is None or result.trace_on):
                self._trace.add(
                    pub_line(
                        message,
                        group=self.group,
                        message_id=envelope.message_id,
                        started_ms=started_ms,
                        cost_ms=_monotonic_ms() - began,
                        kind=_trace_kind(message, envelope),
                        result=result,
                        address=self._told_address(result),
                    )
                )
        return result

    def _told_address(self, result: SendResult | None) -> str:
        if result is None:
            return ""
        return self.client.routes.master(result.queue.broker_name) or ""

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        batch_size: int = BATCH_SIZE,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together, cut into batches of at most ``batch_size`` bytes.

        Each batch goes to one queue and is stored as a whole or not at all.
        """
        listed = list(messages)
        if not listed:
            return []
        results = []
        for part in split_by_size(listed, batch_size):
            envelope = self._seal_batch(part)
            results.append(await self._deliver(envelope, queue, timeout_ms or self._timeout_ms))
        return results

    async def send_one_way(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send a message without waiting for an answer: nobody knows whether it is stored."""
        envelope = self._seal(message)
        if queue is None:
            queues = await self._queues(envelope.topic)
            if message.sharding_key is not None:
                queue = queue_for_key(queues, message.sharding_key)
            else:
                queue = self._choose(envelope.topic, queues, None)
        client = self.client
        address = await self._address(queue)
        header = envelope.header(self.group, queue)
        await client.remoting.tell(address, envelope.code, header, envelope.body)

    # -- transactions ------------------------------------------------------------------------

    async def send_in_transaction(
        self, message: Message, argument: Any = None, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message that consumers see only if the listener's local part commits.

        While that is UNKNOWN, or the broker does not hear of it, the broker asks `check`.
        """
        if self._listener is None:
            raise UsageError("a producer of transactions needs a transaction_listener")
        if message.delay_level:
            raise UsageError("a message of a transaction cannot be delayed")
        extra = {TRAN_MSG: "true", PRODUCER_GROUP: self.group}
        envelope = self._seal(message, extra)
        sent = await self._send_watched(message, envelope, None, timeout_ms or self._timeout_ms)
        state = TransactionState.ROLLBACK
        if sent.ok:
            state = await ask(self._listener.execute, message, argument)
        try:
            address = await self._address(sent.queue)
            header = end_header(self.group, sent, state)
            await self.client.remoting.tell(address, RequestCode.END_TRANSACTION, header)
        except (ClientError, RemotingError) as error:
            # The broker will ask.
            logger.warning("end of transaction not told: id=%s %s", sent.message_id, error)
        return TransactionResult(sent=sent, state=state)

    async def check_transaction(self, request: Request[Any]) -> None:
        """Answer a broker that asks how a transaction ended."""
        await answer_check(request, self.group, self._listener)

    # -- request and reply -------------------------------------------------------------------

    async def request(
        self, message: Message, *, timeout_ms: int = SEND_TIMEOUT_MS
    ) -> ReceivedMessage:
        """Send a message and return the reply of the consumer that gets it."""
        client = self.client
        deadline = time.monotonic() + timeout_ms / 1000
        correlation_id, future = client.replies.expect()
        try:
            topic = wrap(self.namespace, message.topic)
            await self._queues(topic)
            # Brokers bring replies only to clients that they know.
            await client.heartbeat()
            extra = {
                CORRELATION_ID: correlation_id,
                REPLY_TO_CLIENT: client.client_id,
                TTL: str(timeout_ms),
            }
            await self._deliver(self._seal(message, extra), None, timeout_ms)
            return await wait_for_reply(future, deadline=deadline, topic=message.topic)
        finally:
            client.replies.forget(correlation_id)

    async def reply(self, asked: ReceivedMessage, body: bytes) -> None:
        """Reply to a message that somebody waits for."""
        envelope = reply_envelope(asked, body, self.client.unique_ids.next())
        queue = MessageQueue(envelope.topic, asked.queue.broker_name, 0)
        await self._deliver(envelope, queue, self._timeout_ms)

    # -- queues ------------------------------------------------------------------------------

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a topic can be sent to."""
        return list(await self._queues(wrap(self.namespace, topic)))

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        client = self.client
        found = await client.routes.publish_queues(topic)
        if not found:
            raise await explain_no_route(topic, client.servers, client.routes)
        return found

    def _choose(
        self, topic: str, queues: Sequence[MessageQueue], avoid: str | None
    ) -> MessageQueue:
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = RoundRobin()
        is_in_use = None if self._faults is None else self._faults.is_in_use
        return turn.choose(queues, avoid=avoid, is_in_use=is_in_use)

    async def _address(self, queue: MessageQueue) -> str:
        routes = self.client.routes
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
        if self._options.vip_channel:
            host, _, port = address.rpartition(":")
            address = f"{host}:{int(port) - _VIP_PORT_STEP}"
        return address

    # -- one message -------------------------------------------------------------------------

    def _extra(self) -> dict[str, str]:
        namespace = self.namespace
        return {INSTANCE_ID: namespace} if namespace else {}

    def _seal(self, message: Message, extra: dict[str, str] | None = None) -> Envelope:
        return seal(
            message,
            self.client.unique_ids.next(),
            topic=wrap(self.namespace, message.topic),
            extra=self._extra() | (extra or {}),
            compression=self._compression,
            compress_from=self._compress_from,
        )

    def _seal_batch(self, messages: Sequence[Message]) -> Envelope:
        unique_ids = self.client.unique_ids
        return seal_batch(
            messages,
            [unique_ids.next() for _ in messages],
            topic=wrap(self.namespace, messages[0].topic),
            extra=self._extra(),
        )

    async def _deliver(
        self, envelope: Envelope, queue: MessageQueue | None, timeout_ms: int
    ) -> SendResult:
        """Try one queue after the other until one takes the message or time is up."""
        deadline = time.monotonic() + timeout_ms / 1000
        is_free = queue is None
        last_broker: str | None = None
        not_ok: SendResult | None = None
        failures: list[str] = []
        for _ in range(self._attempt_count if is_free else 1):
            left_ms = round((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                break
            if is_free:
                queues = await self._queues(envelope.topic)
                queue = self._choose(envelope.topic, queues, last_broker)
            assert queue is not None
            last_broker = queue.broker_name
            try:
                result = await self._attempt(envelope, queue, left_ms)
            except (RemotingError, ClientError) as error:
                if not self._may_retry(error, is_free=is_free):
                    raise
                failures.append(f"{queue.broker_name}: {error}")
                continue
            if result.ok or not self._retry_not_ok:
                return result
            not_ok = result
        if not_ok is not None:
            return not_ok
        tried = "; ".join(failures) or f"nothing was answered within {timeout_ms} ms"
        raise SendFailedError(f"message to {envelope.topic} not acknowledged: {tried}")

    @staticmethod
    def _may_retry(error: Exception, *, is_free: bool) -> bool:
        if isinstance(error, NoRouteError | UsageError):
            return False
        if isinstance(error, ResponseError):
            return is_free and error.code in RETRY_CODES
        return True

    async def _attempt(self, envelope: Envelope, queue: MessageQueue, left_ms: int) -> SendResult:
        client = self.client
        address = await self._address(queue)
        began = _monotonic_ms()
        failed = True
        try:
            answer = await client.remoting.call(
                address,
                envelope.code,
                envelope.header(self.group, queue),
                envelope.body,
                timeout_ms=left_ms,
            )
            failed = answer.code not in STORED_CODES
        except AnswerTimeoutError:
            # The connection may be dead without either side knowing.
            with contextlib.suppress(RemotingError):
                (await client.remoting.connect(address)).close()
            raise
        finally:
            if self._faults is not None:
                elapsed = _monotonic_ms() - began
                self._faults.note(queue.broker_name, elapsed, failed=failed)
        return envelope.result(answer, queue, address=address)

    # -- lifetime ----------------------------------------------------------------------------

    async def _begin(self, client: ClientInstance) -> None:
        client.add_producer(self.group, self)
        self._is_member = True
        if self._trace_topic is not None:
            self._trace = TraceSender(self._send_trace, topic=self._trace_topic)
            self._trace.start()

    async def _send_trace(self, message: Message) -> None:
        await self._deliver(self._seal(message), None, self._timeout_ms)

    async def _end(self, client: ClientInstance, *, is_failed: bool) -> None:
        if self._trace is not None:
            await self._trace.close()
            self._trace = None
        # A group that could not be joined belongs to another producer of a shared client.
        if self._is_member:
            self._is_member = False
            await client.remove_producer(self.group)


def _trace_kind(message: Message, envelope: Envelope) -> int:
    if envelope.sys_flag & TRANSACTION_PREPARED:
        return 1
    return 3 if message.delay_level else 0


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
