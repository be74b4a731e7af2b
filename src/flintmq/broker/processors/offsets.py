"""Offsets: what groups have committed, and where queues begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.offsets import (
    EarliestStoreTimeResponse,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    QueueBoundRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext


class OffsetProcessor:
    """Serves everything about offsets."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def query(self, request: Request[QueryConsumerOffsetRequest]) -> Answer:
        """Tell a committed offset.

        A group without one starts at 0 on a queue that has lost nothing and is still in memory.
        That holds for ``setZeroIfNotFound=false`` too, as in RocketMQ 4.9: clients that send it
        (5.0.0) would begin at the end otherwise, and miss what was sent before.
        """
        header, store = request.header, self._context.store
        found = self._context.offsets.get(header.consumer_group, header.topic, header.queue_id)
        if found is not None and found >= 0:
            return _offset(found)
        is_young = store.min_offset_in_queue(
            header.topic, header.queue_id
        ) <= 0 and not store.reader.is_on_disk(header.topic, header.queue_id, 0)
        if is_young:
            return _offset(0)
        raise RefusedError(ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group boot first")

    def update(self, request: Request[UpdateConsumerOffsetRequest]) -> Answer:
        """Commit an offset, whatever it is."""
        header = request.header
        kept = self._context.offsets.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset
        )
        if not kept:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "the table of offsets is full")
        return Answer()

    def maximum(self, request: Request[QueueBoundRequest]) -> Answer:
        """Tell the offset that the next message of a queue gets."""
        header = request.header
        return _offset(self._context.store.max_offset_in_queue(header.topic, header.queue_id))

    def minimum(self, request: Request[QueueBoundRequest]) -> Answer:
        """Tell the offset of the oldest message of a queue."""
        header = request.header
        return _offset(self._context.store.min_offset_in_queue(header.topic, header.queue_id))

    def by_time(self, request: Request[SearchOffsetRequest]) -> Answer:
        """Tell the offset nearest to a time."""
        header = request.header
        return _offset(
            self._context.store.offset_by_time(header.topic, header.queue_id, header.timestamp)
        )

    def earliest_time(self, request: Request[QueueBoundRequest]) -> Answer:
        """Tell the store time of the oldest message of a queue."""
        header = request.header
        time = self._context.store.earliest_time(header.topic, header.queue_id)
        return Answer(header=EarliestStoreTimeResponse(timestamp=time))


def _offset(offset: int) -> Answer:
    return Answer(header=OffsetResponse(offset=offset))
