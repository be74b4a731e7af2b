"""Sends that the calling thread makes by itself, for code without asyncio.

The thread makes the first attempt of a plain send: it chooses the queue, encodes the request, puts
it on the connection, and waits for the answer that the event loop reads.  The loop does the rest:
it connects, asks for routes, tries again, and sends whatever a hook or a trace wants to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.client.deadline import Deadline
from flintmq.client.messaging.envelope import batch_items
from flintmq.client.messaging.messages import SendResult
from flintmq.client.producing.batch_failure import BatchFailedError
from flintmq.client.producing.batches import cut_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.loop_thread import LoopThread
    from flintmq.client.messaging.envelope import Envelope
    from flintmq.client.messaging.messages import Message
    from flintmq.client.producing.delivery import Delivery
    from flintmq.client.producing.producer_settings import ProducerSettings
    from flintmq.client.producing.sealing import Sealing
    from flintmq.model.message_queue import MessageQueue


class ThreadSends:
    """The sends of one producer that threads make by themselves; for several threads at once."""

    def __init__(self, delivery: Delivery, sealing: Sealing, settings: ProducerSettings) -> None:
        self._delivery = delivery
        self._sealing = sealing
        self._timeout_ms = settings.send_timeout_ms

    def send(
        self,
        loop_thread: LoopThread,
        message: Message,
        queue: MessageQueue | None,
        timeout_ms: int | None,
    ) -> SendResult:
        """Send a message without sharding key, as `AsyncProducer.send` does."""
        deadline = self._deadline(timeout_ms)
        return self._deliver(loop_thread, self._sealing.seal(message), queue, deadline)

    def send_batch(
        self,
        loop_thread: LoopThread,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        batch_size: int,
        timeout_ms: int | None,
    ) -> list[SendResult]:
        """Send messages without sharding keys, as `AsyncProducer.send_batch` does."""
        if not messages:
            return []
        batches = cut_batches(queue, messages, batch_items(messages), batch_size)
        envelopes = [self._sealing.seal_batch(one.messages[0], one.items) for one in batches]
        results: list[SendResult] = []
        for envelope in envelopes:
            deadline = self._deadline(timeout_ms)
            try:
                results.append(self._deliver(loop_thread, envelope, queue, deadline))
            except Exception as error:
                if not results:
                    raise
                raise BatchFailedError(results, [one.messages for one in batches]) from error
        return results

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        return Deadline(self._timeout_ms if timeout_ms is None else timeout_ms)

    def _deliver(
        self,
        loop_thread: LoopThread,
        envelope: Envelope,
        queue: MessageQueue | None,
        deadline: Deadline,
    ) -> SendResult:
        first = self._delivery.try_in_thread(envelope, queue, deadline)
        if isinstance(first, SendResult):
            return first
        return loop_thread.run(self._delivery.deliver(envelope, queue, deadline, first=first))
