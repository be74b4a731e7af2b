"""The pull consumer: each pull is one request, and the caller keeps the offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

from flintmq.client.assigning.consume_from import QueueBounds
from flintmq.client.assigning.offset_store import RemoteOffsets, check_offset
from flintmq.client.errors import UsageError
from flintmq.client.keywords import KeywordSorter
from flintmq.client.namespaces import wrap
from flintmq.client.options import ClientKeywords, ClientOptions, checked_group
from flintmq.client.pulling.puller import PULL_COUNT, Puller, PullResult
from flintmq.client.pulling.send_back import SendBack
from flintmq.client.searching.message_finder import MessageFinder
from flintmq.format.subscription import ExpressionError, build_subscription
from flintmq.model.subscription import EVERYTHING, TAG

if TYPE_CHECKING:
    from flintmq.client.closing_time import ClosingTime
    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.model.message_queue import MessageQueue

COUNT_MAX: Final = 1024
WAIT_MAX_MS: Final = 60_000


class AsyncPullConsumer(MessageFinder):
    """Pulls from queues for a group.  Use it as an async context manager.

    It is no member of the group: it gets no share of queues, and takes none from others.  The
    fields of ``options`` may be given as single keywords too.
    """

    def __init__(
        self,
        *,
        group: str,
        options: ClientOptions | None = None,
        client: ClientInstance | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        sorter = KeywordSorter(AsyncPullConsumer, keywords, ClientOptions)
        super().__init__(client, sorter.fill_if_given(ClientOptions, options))
        self.group = wrap(self.namespace, checked_group(group))

    async def _begin(self, client: ClientInstance) -> None:
        self._puller = Puller(client, self.group)
        self._bounds = QueueBounds(client)
        self._offsets = RemoteOffsets(client, self.group)
        self._send_back = SendBack(client, self.group, times_max=None)

    async def _end(self, client: ClientInstance, closing: ClosingTime, *, is_failed: bool) -> None:
        """Do nothing: a pull consumer has joined no group."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic."""
        return await self.client.routes.subscribe_queues(wrap(self.namespace, topic))

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str = EVERYTHING,
        expression_type: str = TAG,
        count_max: int = PULL_COUNT,
        wait_ms: int = 0,
    ) -> PullResult:
        """Pull from an offset on; with ``wait_ms`` the broker waits so long for a message.

        Its answer has ``request_timeout_ms`` more.  The result says where the next pull starts,
        also when it has no messages.

        Raises:
            ResponseError: the broker refused.
            RemotingError: the broker could not be asked.
        """
        if not 0 < count_max <= COUNT_MAX:
            raise UsageError(f"count_max must be from 1 to {COUNT_MAX}")
        if not 0 <= wait_ms <= WAIT_MAX_MS:
            raise UsageError(f"wait_ms must be from 0 to {WAIT_MAX_MS}")
        try:
            subscription = build_subscription(queue.topic, expression, expression_type)
        except ExpressionError as error:
            raise UsageError(f"{queue.topic}: {error}") from error
        await self.client.routes.subscribe_queues(queue.topic)
        return await self._puller.pull(
            queue,
            offset,
            subscription,
            count_max=count_max,
            suspend_ms=wait_ms,
            with_subscription=True,
            timeout_ms=wait_ms + self._options.request_timeout_ms,
        )

    async def begin_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue."""
        return await self._bounds.begin(queue)

    async def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue gets."""
        return await self._bounds.end(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset nearest to a store time."""
        return await self._bounds.by_time(queue, timestamp_ms)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit how far the group has come, and wait until the broker has it."""
        check_offset(offset)
        await self._offsets.commit(queue, offset)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return what the group has committed; None if nothing."""
        return await self._offsets.read(queue)

    async def lag(self, queue: MessageQueue) -> int:
        """Return how many messages come after what the group has committed."""
        committed = await self._offsets.read(queue)
        start = await self._bounds.begin(queue) if committed is None else committed
        return max(0, await self._bounds.end(queue) - start)

    async def send_back(self, message: ReceivedMessage, *, delay_level: int = 0) -> bool:
        """Have a message delivered to the group again, later; return whether a broker has it."""
        return await self._send_back.give(message, delay_level=delay_level)
