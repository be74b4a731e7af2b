"""Sending messages."""

from __future__ import annotations

import itertools
import logging
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from flintmq.client.client_user import ClientUser
from flintmq.client.delivery import Delivery, DeliveryRules
from flintmq.client.errors import ClientError, UsageError
from flintmq.client.fault_table import FaultTable
from flintmq.client.messages import Message, SendResult
from flintmq.client.namespaces import wrap
from flintmq.client.options import checked_group
from flintmq.client.queue_choice import queue_for_key
from flintmq.client.request_reply import reply_envelope, wait_for_reply
from flintmq.client.send_trace import SendTrace
from flintmq.client.sending import (
    COMPRESS_FROM,
    Envelope,
    batch_items,
    seal,
    seal_batch,
    split_by_size,
)
from flintmq.client.trace import TraceSender
from flintmq.client.transactions import (
    TransactionListener,
    TransactionResult,
    TransactionState,
    answer_check,
    ask,
    end_header,
)
from flintmq.client.wall_clock import monotonic_ms, wall_ms
from flintmq.format.codes import RequestCode
from flintmq.format.sys_flag import CompressionType
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
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flintmq.client.instance import ClientInstance
    from flintmq.client.messages import ReceivedMessage
    from flintmq.format.headers.transaction import EndTransactionRequest
    from flintmq.remoting import Request

logger = logging.getLogger(__name__)

SEND_TIMEOUT_MS: Final = 3000
RETRY_COUNT: Final = 2
BATCH_SIZE: Final = 1 << 20


class SendHook(Protocol):
    """Sees every message before and after it is sent; what it raises before stops the send.

    One-way messages are not seen: nothing comes after them.
    """

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
        self._rules = DeliveryRules(
            attempt_count=retries + 1,
            retry_when_not_stored_ok=retry_when_not_stored_ok,
            faults=FaultTable(now_ms=monotonic_ms) if avoid_slow_brokers else None,
        )
        self._compression = compression
        self._compress_from = compress_from
        self._listener = transaction_listener
        self._hooks = tuple(hooks)
        self._trace_topic = trace_topic if trace else None
        self._trace: SendTrace | None = None
        self._opened_delivery: Delivery | None = None

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
            queue = queue_for_key(await self._delivery.queues(envelope.topic), message.sharding_key)
        return await self._send_watched([message], envelope, queue, timeout_ms)

    async def _send_watched(
        self,
        messages: Sequence[Message],
        envelope: Envelope,
        queue: MessageQueue | None,
        timeout_ms: int | None,
    ) -> SendResult:
        """Deliver what goes together, with hooks before and after, and lines in the trace."""
        for hook in self._hooks:
            for message in messages:
                hook.before_send(message)
        began, started_ms = monotonic_ms(), wall_ms()
        result: SendResult | None = None
        failure: Exception | None = None
        try:
            result = await self._delivery.deliver(envelope, queue, timeout_ms or self._timeout_ms)
        except (ClientError, RemotingError) as error:
            failure = error
            raise
        finally:
            for hook in self._hooks:
                for message in messages:
                    hook.after_send(message, result, failure)
            if self._trace is not None:
                cost_ms = monotonic_ms() - began
                self._trace.sent(messages, envelope, result, started_ms=started_ms, cost_ms=cost_ms)
        return result

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
        unique_ids = self.client.unique_ids
        results, rest = [], iter(listed)
        for items in split_by_size(batch_items(listed), batch_size):
            envelope = seal_batch(
                items,
                [unique_ids.next() for _ in items],
                topic=wrap(self.namespace, listed[0].topic),
                wait=listed[0].wait,
                extra=self._extra(),
            )
            part = list(itertools.islice(rest, len(items)))
            results.append(await self._send_watched(part, envelope, queue, timeout_ms))
        return results

    async def send_one_way(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send a message without waiting for an answer: nobody knows whether it is stored."""
        envelope = self._seal(message)
        if queue is None and message.sharding_key is not None:
            queue = queue_for_key(await self._delivery.queues(envelope.topic), message.sharding_key)
        if queue is None:
            queue = await self._delivery.next_queue(envelope.topic)
        await self._delivery.tell(envelope, queue)

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
        sent = await self._send_watched([message], envelope, None, timeout_ms)
        state = TransactionState.ROLLBACK
        if sent.ok:
            state = await ask(self._listener.execute, message, argument)
        try:
            address = await self._delivery.address(sent.queue)
            header = end_header(self.group, sent, state)
            await self.client.remoting.tell(address, RequestCode.END_TRANSACTION, header)
            self._trace_end(message, state, header, address=address)
        except (ClientError, RemotingError) as error:
            # The broker will ask.
            logger.warning("end of transaction not told: id=%s %s", sent.message_id, error)
        return TransactionResult(sent=sent, state=state)

    async def check_transaction(self, request: Request[Any]) -> None:
        """Answer a broker that asks how a transaction ended."""
        checked = await answer_check(request, self.group, self._listener)
        if checked is not None:
            message, state, header = checked
            self._trace_end(message, state, header, address=request.connection.peer_text)

    def _trace_end(
        self,
        message: Message | ReceivedMessage,
        state: TransactionState,
        header: EndTransactionRequest,
        *,
        address: str,
    ) -> None:
        if self._trace is not None:
            self._trace.ended(
                message,
                state,
                message_id=header.msg_id or "",
                transaction_id=header.transaction_id,
                address=address,
                ended_ms=wall_ms(),
                from_check=header.from_transaction_check,
            )

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
            await self._delivery.queues(topic)
            # Brokers bring replies only to clients that they know.
            await client.heartbeat()
            extra = {
                CORRELATION_ID: correlation_id,
                REPLY_TO_CLIENT: client.client_id,
                TTL: str(timeout_ms),
            }
            await self._delivery.deliver(self._seal(message, extra), None, timeout_ms)
            return await wait_for_reply(future, deadline=deadline, topic=message.topic)
        finally:
            client.replies.forget(correlation_id)

    async def reply(self, asked: ReceivedMessage, body: bytes) -> None:
        """Reply to a message that somebody waits for."""
        envelope = reply_envelope(asked, body, self.client.unique_ids.next())
        queue = MessageQueue(envelope.topic, asked.queue.broker_name, 0)
        await self._delivery.deliver(envelope, queue, self._timeout_ms)

    # -- queues ------------------------------------------------------------------------------

    @property
    def _delivery(self) -> Delivery:
        if self._opened_delivery is None:
            raise UsageError("the producer is not open: use it in an async with statement")
        return self._opened_delivery

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a topic can be sent to."""
        return list(await self._delivery.queues(wrap(self.namespace, topic)))

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

    # -- lifetime ----------------------------------------------------------------------------

    async def _begin(self, client: ClientInstance) -> None:
        self._opened_delivery = Delivery(client, self.group, self._rules)
        client.add_producer(self.group, self)
        self._is_member = True
        if self._trace_topic is not None:
            sender = TraceSender(self._send_trace, topic=self._trace_topic)
            sender.start()
            self._trace = SendTrace(sender, client.routes, self.group)

    async def _send_trace(self, message: Message) -> None:
        await self._delivery.deliver(self._seal(message), None, self._timeout_ms)

    async def _end(self, client: ClientInstance, *, is_failed: bool) -> None:
        if self._trace is not None:
            await self._trace.close()
            self._trace = None
        self._opened_delivery = None
        # A group that could not be joined belongs to another producer of a shared client.
        if self._is_member:
            self._is_member = False
            await client.remove_producer(self.group)
