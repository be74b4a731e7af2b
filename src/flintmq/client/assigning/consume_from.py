"""Where a group starts on a queue that it has never consumed."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from flintmq.client.wall_clock import wall_ms
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.offsets import (
    OffsetResponse,
    QueueBoundRequest,
    SearchOffsetRequest,
)
from flintmq.model.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from flintmq.client.instance import ClientInstance
    from flintmq.model.message_queue import MessageQueue


class ConsumeFrom(Enum):
    """Where a new group starts."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


HALF_AN_HOUR_MS: Final = 30 * 60 * 1000


class QueueBounds:
    """Asks brokers where queues begin and end."""

    def __init__(self, client: ClientInstance) -> None:
        self._client = client

    async def _ask(
        self, queue: MessageQueue, code: int, header: QueueBoundRequest | SearchOffsetRequest
    ) -> int:
        address = await self._client.routes.home(queue)
        answer = await self._client.call(address, code, header)
        return OffsetResponse.decode(answer.ext_fields).offset

    async def end(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue gets."""
        return await self._ask(queue, RequestCode.GET_MAX_OFFSET, _bound(queue))

    async def begin(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue."""
        return await self._ask(queue, RequestCode.GET_MIN_OFFSET, _bound(queue))

    async def by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset nearest to a store time."""
        header = SearchOffsetRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            broker_name=queue.broker_name,
        )
        return await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def start(
        self,
        queue: MessageQueue,
        committed: int | None,
        start: ConsumeFrom,
        timestamp_ms: int | None,
    ) -> int:
        """Return the committed offset; if there is none, the one that ``start`` asks for."""
        if committed is not None and committed >= 0:
            return committed
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if start is ConsumeFrom.FIRST_OFFSET or (is_retry and start is ConsumeFrom.LAST_OFFSET):
            return 0
        if start is ConsumeFrom.LAST_OFFSET or is_retry:
            return await self.end(queue)
        since = wall_ms() - HALF_AN_HOUR_MS
        return await self.by_time(queue, since if timestamp_ms is None else timestamp_ms)


def _bound(queue: MessageQueue) -> QueueBoundRequest:
    return QueueBoundRequest(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
