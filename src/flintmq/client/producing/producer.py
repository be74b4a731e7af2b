"""The producer: it sends messages, runs transactions, and asks for replies."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

from flintmq.client.deadline import Deadline
from flintmq.client.errors import ClientError, UsageError
from flintmq.client.keywords import KeywordSorter
from flintmq.client.messaging.envelope import Envelope, batch_items
from flintmq.client.messaging.messages import Message, SendResult
from flintmq.client.messaging.request_reply import make_reply_envelope, wait_for_reply
from flintmq.client.messaging.transaction_listener import (
    TransactionListener,
    TransactionResult,
    TransactionState,
    answer_check,
    ask_listener,
    end_header,
)
from flintmq.client.namespaces import wrap
from flintmq.client.options import ClientOptions, checked_group
from flintmq.client.producing.batch_failure import BatchFailedError
from flintmq.client.producing.batches import Batch, cut_batches
from flintmq.client.producing.delivery import Delivery, DeliveryRules
from flintmq.client.producing.fault_table import FaultTable
from flintmq.client.producing.producer_settings import ProducerArguments, ProducerSettings
from flintmq.client.producing.queue_choice import QueueSelector, queue_for_key, selected_queue
from flintmq.client.producing.sealing import Sealing
from flintmq.client.producing.thread_sends import ThreadSends
from flintmq.client.searching.message_finder import MessageFinder
from flintmq.client.tracing.send_trace import SendTrace
from flintmq.client.tracing.trace import TraceSender
from flintmq.client.wall_clock import monotonic_ms, wall_ms
from flintmq.errors import FlintError
from flintmq.format.wire.codes import RequestCode
from flintmq.model.message_queue import MessageQueue
from flintmq.model.property_names import (
    CORRELATION_ID,
    PRODUCER_GROUP,
    REPLY_TO_CLIENT,
    TIMER_CANCELLED_ID,
    TRAN_MSG,
    TTL,
)
from flintmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from flintmq.client.closing_time import ClosingTime
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.format.wire.headers.transaction import (
        CheckTransactionRequest,
        EndTransactionRequest,
    )
    from flintmq.remoting import Request

logger = logging.getLogger(__name__)

DEFAULT_GROUP: Final = "flintmq-producer"
REQUEST_TIMEOUT_MS: Final = 3000
BATCH_SIZE: Final = 1 << 20
CHECK_COUNT_MAX: Final = 20
"""Transactions about which a listener is asked at once because brokers want to know."""


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
        """See how the send ended: either ``result`` or ``error`` is given."""
        ...


class AsyncProducer(MessageFinder):
    """Sends messages of one producer group.

    Use it as an async context manager.  ``client`` shares a client with others; without it the
    producer has one of its own, made from ``options``.  How it sends is said by ``settings``.
    The fields of both may be given as single keywords too, which come before those of the
    objects.
    """

    _noun = "producer"

    def __init__(
        self,
        *,
        group: str = DEFAULT_GROUP,
        transaction_listener: TransactionListener | None = None,
        hooks: Sequence[SendHook] = (),
        settings: ProducerSettings | None = None,
        options: ClientOptions | None = None,
        client: ClientInstance | None = None,
        **keywords: Unpack[ProducerArguments],
    ) -> None:
        sorter = KeywordSorter(AsyncProducer, keywords, ProducerSettings, ClientOptions)
        self.settings = sorter.fill(ProducerSettings, settings)
        super().__init__(client, sorter.fill_if_given(ClientOptions, options))
        self.group = wrap(self.namespace, checked_group(group))
        self._is_member = False
        self._rules = DeliveryRules(
            attempt_count=self.settings.retries + 1,
            retry_when_not_stored_ok=self.settings.retry_when_not_stored_ok,
            faults=FaultTable(now_ms=monotonic_ms) if self.settings.avoid_slow_brokers else None,
        )
        self._listener = transaction_listener
        self._hooks = tuple(hooks)
        self._trace: SendTrace | None = None
        self._checks = asyncio.Semaphore(CHECK_COUNT_MAX)
        self._opened_delivery: Delivery | None = None
        self._opened_sealing: Sealing | None = None
        self._thread_sends: ThreadSends | None = None

    # -- sending -----------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message and return where it was stored.

        ``queue`` is a queue, or a function that chooses one of the topic's queues.  Without it
        and without a sharding key the message goes to the next queue in turn, and on failure to
        one of another broker.

        Raises:
            NoRouteError: nobody has the topic.
            NoNameServerError: no name server has told in time who has it.
            ResponseError: a broker refused the message.
            SendFailedError: no broker acknowledged it in time; it may be stored all the same.
        """
        deadline = self._deadline(timeout_ms)
        envelope = self._seal(message)
        is_free = queue is None and message.sharding_key is None
        target = None if is_free else await self._target(message, queue, deadline)
        return await self._send([message], envelope, target, deadline)

    async def _target(
        self, message: Message, queue: MessageQueue | QueueSelector | None, deadline: Deadline
    ) -> MessageQueue | None:
        """Return the queue that a message has to go to; None if any of them will do."""
        if isinstance(queue, MessageQueue):
            return queue
        if queue is None and message.sharding_key is None:
            return None
        queues = await self._delivery.queues(wrap(self.namespace, message.topic), deadline)
        if queue is not None:
            return selected_queue(queue, queues, message)
        assert message.sharding_key is not None
        return queue_for_key(queues, message.sharding_key)

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        """Return when a call has to end that was given this time, or none."""
        return Deadline(self.settings.send_timeout_ms if timeout_ms is None else timeout_ms)

    def _send(
        self,
        messages: Sequence[Message],
        envelope: Envelope,
        queue: MessageQueue | None,
        deadline: Deadline,
    ) -> Coroutine[Any, Any, SendResult]:
        """Deliver messages that go together; whoever wants to know of it is told."""
        if self._hooks or self._trace is not None:
            return self._send_watched(messages, envelope, queue, deadline)
        return self._delivery.deliver(envelope, queue, deadline)

    async def _send_watched(
        self,
        messages: Sequence[Message],
        envelope: Envelope,
        queue: MessageQueue | None,
        deadline: Deadline,
    ) -> SendResult:
        """Deliver messages; call hooks before and after, and write the trace."""
        for hook in self._hooks:
            for message in messages:
                hook.before_send(message)
        began, started_ms = monotonic_ms(), wall_ms()
        result: SendResult | None = None
        failure: Exception | None = None
        try:
            result = await self._delivery.deliver(envelope, queue, deadline)
        except FlintError as error:
            failure = error
            raise
        finally:
            self._tell_hooks(messages, result, failure)
            if self._trace is not None:
                cost_ms = monotonic_ms() - began
                self._trace.sent(messages, envelope, result, started_ms=started_ms, cost_ms=cost_ms)
        return result

    def _tell_hooks(
        self, messages: Sequence[Message], result: SendResult | None, failure: Exception | None
    ) -> None:
        for hook in self._hooks:
            for message in messages:
                try:
                    hook.after_send(message, result, failure)
                except Exception:
                    # The caller has to learn how the send ended, not how the hook did.
                    logger.exception("a hook has failed after a send: %r", hook)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | QueueSelector | None = None,
        batch_size: int = BATCH_SIZE,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together, cut into batches of at most ``batch_size`` bytes.

        Each batch goes to one queue and is stored as a whole or not at all; ``timeout_ms`` is for
        each of them.  A function as ``queue`` is asked for each message.  Without it, messages
        with sharding keys go to the queues of their keys: those of one queue together and in
        their order, one queue after the other.

        Raises:
            BatchFailedError: one failed after others were stored; it says which.
            ClientError, RemotingError: the first one failed, as `send` would have.
        """
        listed = list(messages)
        if not listed:
            return []
        results: list[SendResult] = []
        batches = await self._batches(listed, queue, batch_size, timeout_ms)
        # All of them before the first is sent: one that cannot be sent means that none is.
        envelopes = [self._sealing.seal_batch(batch[0], items) for _, batch, items in batches]
        for (target, batch, _), envelope in zip(batches, envelopes, strict=True):
            try:
                result = await self._send(batch, envelope, target, self._deadline(timeout_ms))
            except Exception as error:
                # Whatever it is, a hook may have raised it, the caller has to know what is stored.
                if not results:
                    raise
                raise BatchFailedError(results, [batch for _, batch, _ in batches]) from error
            results.append(result)
        return results

    async def _batches(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | QueueSelector | None,
        batch_size: int,
        timeout_ms: int | None,
    ) -> list[Batch]:
        """Return the batches into which messages are cut, each with the queue it has to go to."""
        all_items = batch_items(messages)
        if queue is None and all([message.sharding_key is None for message in messages]):
            return cut_batches(None, messages, all_items, batch_size)
        deadline = self._deadline(timeout_ms)
        by_queue: dict[MessageQueue | None, list[int]] = {}
        for place, message in enumerate(messages):
            target = await self._target(message, queue, deadline)
            by_queue.setdefault(target, []).append(place)
        return [
            one
            for target, places in by_queue.items()
            for one in cut_batches(
                target, [messages[place] for place in places], all_items.pick(places), batch_size
            )
        ]

    async def send_one_way(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None
    ) -> None:
        """Send a message without waiting for an answer: nobody knows whether it is stored."""
        deadline = self._deadline(None)
        envelope = self._seal(message)
        target = await self._target(message, queue, deadline)
        if target is None:
            target = await self._delivery.next_queue(envelope.topic, deadline)
        await self._delivery.tell(envelope, target, deadline)

    async def cancel(
        self, message: Message, sent: SendResult, *, timeout_ms: int | None = None
    ) -> None:
        """Have a message not delivered that was sent with ``deliver_at_ms`` and still waits.

        Nobody is told if it waits no more, or never did: then nothing happens.

        Raises:
            ResponseError: it is too late, since the message is due now.
            SendFailedError: no broker acknowledged this in time.
        """
        if not message.deliver_at_ms:
            raise UsageError("only a message that was sent with deliver_at_ms can be cancelled")
        # Its body has no meaning; a broker that knows no times of delivery would deliver it.
        notice = Message(topic=message.topic, body=b"-", deliver_at_ms=message.deliver_at_ms)
        envelope = self._seal(notice, {TIMER_CANCELLED_ID: sent.message_id})
        await self._delivery.deliver(envelope, sent.queue, self._deadline(timeout_ms))

    # -- transactions ------------------------------------------------------------------------

    async def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message that consumers see only if the listener's local part commits.

        While its state is UNKNOWN, or was not heard, the broker asks `check` of the listener.
        """
        if self._listener is None:
            raise UsageError("a producer of transactions needs a transaction_listener")
        if message.is_held_back:
            raise UsageError("a message of a transaction cannot be delayed")
        extra = {TRAN_MSG: "true", PRODUCER_GROUP: self.group}
        envelope, sending = self._seal(message, extra), self._deadline(timeout_ms)
        queue = await self._target(message, None, sending)
        sent = await self._send([message], envelope, queue, sending)
        state = TransactionState.ROLLBACK
        if sent.ok:
            state = await ask_listener(self._listener.execute, message, argument)
        try:
            deadline = self._deadline(None)
            address = await self._delivery.address(sent.queue, deadline)
            header = end_header(self.group, sent, state)
            await self.client.remoting.tell(
                address,
                RequestCode.END_TRANSACTION,
                header,
                timeout_ms=max(deadline.left_ms, 1),
            )
            self._trace_end(message, state, header, address=address)
        except (ClientError, RemotingError) as error:
            # The broker asks later how the transaction ended.
            logger.warning("end of transaction not told: id=%s %s", sent.message_id, error)
        return TransactionResult(sent=sent, state=state)

    async def check_transaction(self, request: Request[CheckTransactionRequest]) -> None:
        """Answer a broker that asks how a transaction ended."""
        async with self._checks:
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
        self,
        message: Message,
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> ReceivedMessage:
        """Send a message and return the reply of the consumer that gets it.

        Raises:
            RequestTimeoutError: the message was sent, but nobody has replied in time.
            ClientError, RemotingError: it was not sent, as `send` says.
        """
        client, deadline = self.client, self._deadline(timeout_ms)
        correlation_id, future = client.replies.expect()
        try:
            extra = {
                CORRELATION_ID: correlation_id,
                REPLY_TO_CLIENT: client.client_id,
                TTL: str(timeout_ms),
            }
            envelope = self._seal(message, extra)
            target = await self._target(message, queue, deadline)
            await self._delivery.deliver(envelope, target, deadline, introduced=True)
            return await wait_for_reply(future, timeout_ms=deadline.left_ms, topic=message.topic)
        finally:
            client.replies.forget(correlation_id)

    async def reply(self, asked: ReceivedMessage, body: bytes) -> None:
        """Reply to a message that somebody waits for."""
        envelope = make_reply_envelope(asked, body, self.client.unique_ids.next())
        queue = MessageQueue(envelope.topic, asked.queue.broker_name, 0)
        await self._delivery.deliver(envelope, queue, self._deadline(None))

    # -- queues ------------------------------------------------------------------------------

    @property
    def _delivery(self) -> Delivery:
        if self._opened_delivery is None:
            raise UsageError("the producer is not open: use it in an async with statement")
        return self._opened_delivery

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a topic can be sent to."""
        deadline = self._deadline(None)
        return list(await self._delivery.queues(wrap(self.namespace, topic), deadline))

    # -- one message -------------------------------------------------------------------------

    def _seal(self, message: Message, extra: dict[str, str] | None = None) -> Envelope:
        return self._sealing.seal(message, extra)

    @property
    def _sealing(self) -> Sealing:
        if self._opened_sealing is None:
            raise UsageError("the producer is not open: use it in an async with statement")
        return self._opened_sealing

    # -- lifetime ----------------------------------------------------------------------------

    async def _begin(self, client: ClientInstance) -> None:
        self._opened_delivery = Delivery(client, self.group, self._rules)
        self._opened_sealing = Sealing(client.unique_ids, self.namespace or "", self.settings)
        client.add_producer(self.group, self)
        self._is_member = True
        if self.settings.trace:
            delivery = Delivery(client, self.group, self._rules)

            async def send_trace(message: Message) -> None:
                await delivery.deliver(self._seal(message), None, self._deadline(None))

            sender = TraceSender(send_trace, topic=self.settings.trace_topic)
            sender.start()
            self._trace = SendTrace(sender, client.routes, self.group)
        elif not self._hooks and self._rules.faults is None:
            self._thread_sends = ThreadSends(
                self._opened_delivery, self._opened_sealing, self.settings
            )

    async def _end(self, client: ClientInstance, closing: ClosingTime, *, is_failed: bool) -> None:
        self._thread_sends = None
        delivery, self._opened_delivery = self._opened_delivery, None
        if delivery is not None:
            delivery.close()
        if self._trace is not None:
            await self._trace.close(closing)
            self._trace = None
        # A group that could not be joined belongs to another producer of the shared client.
        if self._is_member:
            self._is_member = False
            leaving = client.remove_producer(self.group)
            await closing.step("brokers that are told of the end", leaving)


def thread_sends(producer: AsyncProducer) -> ThreadSends | None:
    """Return what sends from the calling thread; None if nothing may be sent but by the loop.

    So it is if hooks, a trace or the table of slow brokers see what is sent.
    """
    return producer._thread_sends
