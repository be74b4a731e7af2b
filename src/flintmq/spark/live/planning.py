"""From what a user asks for to offsets of queues that exist, on the driver."""

import logging
from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import DataLossError, OptionError
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.errors import queue_text
from flintmq.spark.live.fetch import OnLoss
from flintmq.spark.live.live_options import LiveOptions
from flintmq.spark.live.live_session import each
from flintmq.spark.live.offset_choice import OffsetChoice, TimeStrategy
from flintmq.spark.live.places import ProvenRange, QueuePlace
from flintmq.spark.live.queue_identity import difference, record_before
from flintmq.spark.live.ranges import Loss, Offsets, QueueRange, judge
from flintmq.spark.live.times import first_since
from flintmq.spark.options.offset_bounds import EARLIEST, LATEST

logger = logging.getLogger(__name__)

_OTHER: Final = "it is not the queue that was read"
_CAUSES: Final = (
    ", as in a topic that was deleted and made anew, or in a store that was emptied or cut back"
)


def lose(queue: MessageQueue, loss: Loss, *, fail: bool) -> None:
    """Raise DataLossError, or say in the log what is not there."""
    if fail:
        raise DataLossError(queue_text(queue), loss.reason)
    logger.warning("messages are missing: queue=%s reason=%s", queue_text(queue), loss.reason)


class KnownBounds(NamedTuple):
    """Where queues begin and end, as somebody has asked already."""

    begins: Offsets
    ends: Offsets


async def resolve(
    cluster: Cluster,
    choice: OffsetChoice,
    queues: Collection[MessageQueue],
    bounds: KnownBounds | None = None,
) -> Offsets:
    """Return the offset that is asked for of each queue; brokers are not asked for ``bounds``.

    Raises:
        OptionError: a queue is named that does not exist, or a time that no message has.
    """
    choice.check(queues)
    wanted = {queue: choice.of(queue) for queue in queues}
    begins, ends = bounds or (
        await cluster.begins(
            queue
            for queue, one in wanted.items()
            if one.time_ms is not None or one.offset == EARLIEST
        ),
        await cluster.ends(
            queue
            for queue, one in wanted.items()
            if one.time_ms is not None or one.offset == LATEST
        ),
    )

    async def offset_of(queue: MessageQueue) -> int:
        offset, time_ms, _ = wanted[queue]
        if time_ms is None:
            return {EARLIEST: begins, LATEST: ends}[offset][queue] if offset < 0 else offset
        least, end = begins[queue], ends[queue]
        found = await first_since(cluster.puller, queue, time_ms, least=least, end=end)
        if found == end and choice.strategy is TimeStrategy.ERROR:
            raise OptionError(
                f"{choice.option}: {queue_text(queue)} has no message since {time_ms}; "
                "startingOffsetsByTimestampStrategy=latest starts at its end"
            )
        return found

    listed = list(queues)
    return dict(zip(listed, await each(listed, offset_of), strict=True))


async def make_place(
    cluster: Cluster, queue: MessageQueue, offset: int, begin: int, start: int | None = None
) -> QueuePlace:
    """Return the place at an offset of a queue that begins at ``begin`` now."""
    last = await record_before(cluster.puller, queue, offset)
    return QueuePlace(offset, start, last, last is None and 0 < offset <= begin)


async def find_loss(
    cluster: Cluster, queue: MessageQueue, place: QueuePlace, begin: int, end: int
) -> Loss | None:
    """Return what is lost where a reader goes on at a place; None if nothing is.

    ``begin`` and ``end`` are the bounds of the queue now.  Where the queue is another one than the
    place is of, or went backwards, a reader goes on with the first message that was stored after
    the last one it has read.
    """
    last = place.last
    loss = judge(place.offset, begin, end)
    if place.is_first and begin < place.offset:
        found = f"it begins at {begin} now, and began at {place.offset} when it was read"
        return Loss(begin, f"{_OTHER}: {found}{_CAUSES}")
    if last is None or (loss is not None and place.offset <= end):
        return loss
    if loss is None:
        change = await difference(cluster.puller, queue, place.offset, last)
        if change is None:
            return None
        reason = f"{_OTHER} up to {place.offset}: {change}{_CAUSES}"
    else:
        reason = loss.reason
    resume = await first_since(cluster.puller, queue, last.store_time_ms, least=begin, end=end)
    return Loss(resume, reason)


async def batch_ranges(
    cluster: Cluster, options: LiveOptions, on_loss: OnLoss | None = None
) -> list[ProvenRange]:
    """Return what a batch reads of each queue; ``on_loss`` is told of what is gone already."""
    tell = on_loss or partial(lose, fail=options.fail_on_data_loss)
    queues = await cluster.queues()
    cluster.require(queues)
    await cluster.check_expression({queue.topic for queue in queues})
    starts = await resolve(cluster, options.start, queues)
    stops = await resolve(cluster, options.end, queues)
    begins, ends = await cluster.begins(queues), await cluster.ends(queues)

    async def plan(queue: MessageQueue) -> ProvenRange:
        begin, end = begins[queue], ends[queue]
        stop = QueuePlace(max(stops[queue], begin), last=options.end.of(queue).last)
        start = QueuePlace(starts[queue], last=options.start.of(queue).last)
        if options.start.of(queue).offset == EARLIEST:
            # Retention may be at work just now.
            start = QueuePlace(max(start.offset, begin))
        for place in (start, stop):
            loss = await find_loss(cluster, queue, place, begin, end)
            if loss is not None:
                tell(queue, loss)
                if place is start:
                    start = QueuePlace(max(begin, min(loss.resume, end)))
                else:
                    stop = QueuePlace(end)
        return await _proven(cluster, queue, start, stop)

    return await each(queues, plan)


async def _proven(
    cluster: Cluster, queue: MessageQueue, start: QueuePlace, stop: QueuePlace
) -> ProvenRange:
    wanted = QueueRange(queue, start.offset, max(start.offset, stop.offset))
    if not wanted.length:
        return ProvenRange(wanted)
    last = stop.last or await record_before(cluster.puller, queue, wanted.end)
    bounds = ((wanted.end, last), (wanted.start, start.last))
    return ProvenRange(wanted, tuple((at, proof) for at, proof in bounds if proof is not None))
