"""Looking messages up: by key, by id, by their offset in a queue."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from flintmq.broker.filtering.tag_filter import filter_for
from flintmq.format.errors import CorruptRecordError
from flintmq.format.stored.consume_queue_ext import is_address
from flintmq.format.stored.record import read_record_topic
from flintmq.format.wire.bodies.dialect import dumps_body
from flintmq.format.wire.bodies.heartbeat import subscription_to_json
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.query import (
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.broker.filtering.pull_filter import PullFilter
    from flintmq.format.stored.consume_queue_ext import ExtUnit
    from flintmq.model.subscription import Subscription
    from flintmq.store.files.mapped_file import Slice

UNIT_COUNT_MAX: Final = 1000
"""Units of a queue that one answer shows."""


class QueryProcessor:
    """Serves searches."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def by_key(self, request: Request[QueryMessageRequest]) -> Answer:
        """Tell the messages of a key; clients compare the keys themselves."""
        header, store = request.header, self._context.store
        count_max = min(header.max_num, store.config.query_count_max)
        if header.unique_key_query:
            count_max = store.config.default_query_count_max
        steps = store.key_offsets(
            header.topic, header.key, count_max, header.begin_timestamp, header.end_timestamp
        )
        offsets = await self._context.turns.run(steps, "query by key", request.connection)
        await self._context.cold_loads.load(lambda: store.reader.cold_reads.of_records(offsets))
        found = store.reader.records_at(offsets)
        if self._context.access is not None:
            # The index knows hashes only, and it is easy to find a key with the hash of another.
            _keep_topic(found.slices, header.topic)
        if not found.slices:
            # Who finds nothing is not told either how far the index has come.
            nothing = QueryMessageResponse(
                index_last_update_timestamp=0, index_last_update_phyoffset=0
            )
            remark = "can not find message, maybe time range not correct"
            return Answer(ResponseCode.QUERY_NOT_FOUND, nothing, remark)
        answer = QueryMessageResponse(
            index_last_update_timestamp=found.last_update_timestamp,
            index_last_update_phyoffset=found.last_update_offset,
        )
        views = [piece.view for piece in found.slices]
        return Answer(header=answer, parts=views, release=found.release)

    async def by_offset(self, request: Request[ViewMessageRequest]) -> Answer:
        """Tell the record at a physical offset."""
        offset, store = request.header.offset, self._context.store
        await self._context.cold_loads.load(lambda: store.reader.cold_reads.of_records([offset]))
        is_message = self._context.access is None or self._context.look(offset) is not None
        piece = store.select(offset) if is_message else None
        if piece is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {request.header.offset}",
            )
        return Answer(parts=[piece.view], release=piece.release)

    def queue_units(self, request: Request[QueryConsumeQueueRequest]) -> Answer:
        """Tell units of a queue, judged by a group's subscription if one is named."""
        header, store = request.header, self._context.store
        store.dispatch()
        queue = store.queues.get(header.topic, header.queue_id)
        if queue is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!"
            )
        body: dict[str, Any] = {
            "maxQueueIndex": queue.max_offset,
            "minQueueIndex": queue.min_offset,
        }
        subscription = self._subscription(header)
        if header.consumer_group:
            offline = f"{header.consumer_group}@{header.topic} is not online!"
            body["filterData"] = offline if subscription is None else "null"
        chosen = None if subscription is None else self._filter(header, subscription)
        end = min(header.index + min(max(header.count, 0), UNIT_COUNT_MAX), queue.max_offset)
        if not queue.min_offset <= header.index < queue.max_offset:
            place = f"{header.index} of {header.queue_id}@{header.topic}"
            return Answer(remark=f"Index {place} is not exist!")
        units = []
        for offset in range(header.index, end):
            unit = queue.unit_at(offset)
            if unit is None:
                break
            physical_offset, size, code = unit
            ext = queue.resolve(code)
            matches = chosen is None or chosen.matches_unit(code, ext)
            units.append(
                {
                    "eval": matches and subscription is not None,
                    "physicOffset": physical_offset,
                    "physicSize": size,
                    "tagsCode": code,
                    **_extension_of(code, ext),
                }
            )
        body["queueData"] = units
        if subscription is not None:
            body["subscriptionData"] = subscription_to_json(subscription)
        return Answer(parts=[dumps_body(body)])

    def _filter(
        self, header: QueryConsumeQueueRequest, subscription: Subscription
    ) -> PullFilter | None:
        if subscription.is_tag:
            return filter_for(subscription)
        return self._context.filters.filter_of(header.topic, header.consumer_group or "")

    def _subscription(self, header: QueryConsumeQueueRequest) -> Subscription | None:
        if not header.consumer_group:
            return None
        group = self._context.consumers.get(header.consumer_group)
        return None if group is None else group.subscriptions.get(header.topic)


def _extension_of(code: int, ext: ExtUnit | None) -> dict[str, str]:
    """Return what is told of a unit's extension: filter bits and all, or that it is missing."""
    if ext is None:
        return {"msg": f"Cq extend not exist!addr: {code}"} if is_address(code) else {}
    shown: dict[str, Any] = {"bitMapSize": len(ext.bitmap or b"")}
    told = {}
    if ext.bitmap:
        shown["filterBitMap"] = base64.b64encode(ext.bitmap).decode()
        told["bitMap"] = bits_text(ext.bitmap)
    shown |= {"msgStoreTime": ext.store_time, "size": ext.size, "tagsCode": ext.tags_code}
    return told | {"extendDataJson": dumps_body(shown).decode()}


def bits_text(bitmap: bytes) -> str:
    """Return filter bits as RocketMQ writes them: the last byte first, a line for eight bytes."""
    return "".join(
        f"{byte:08b}" + ("\n" if at % 8 == 0 else "")
        for at, byte in reversed(list(enumerate(bitmap)))
    )


def _keep_topic(pieces: list[Slice], topic: str) -> None:
    """Let go of all records but those of a topic."""
    kept = []
    for piece in pieces:
        if _is_of(piece, topic):
            kept.append(piece)
        else:
            piece.release()
    pieces[:] = kept


def _is_of(piece: Slice, topic: str) -> bool:
    try:
        return read_record_topic(piece.view) == topic
    except CorruptRecordError:
        return False
