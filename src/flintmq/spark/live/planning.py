"""From what a user asks for to offsets of queues that exist, on the driver."""

import logging
from collections.abc import Collection

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import DataLossError, OptionError
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.errors import queue_text
from flintmq.spark.live.offsets import OffsetChoice, TimeStrategy
from flintmq.spark.live.options import LiveOptions
from flintmq.spark.live.ranges import Loss, Offsets, QueueRange, judge
from flintmq.spark.live.session import each
from flintmq.spark.live.times import first_since
from flintmq.spark.offset_table import EARLIEST, LATEST

logger = logging.getLogger(__name__)


def lose(queue: MessageQueue, loss: Loss, *, fail: bool) -> None:
    """Raise DataLossError, or say in the log what is not there."""
    if fail:
        raise DataLossError(queue_text(queue), loss.reason)
    logger.warning("messages are missing: queue=%s reason=%s", queue_text(queue), loss.reason)


async def resolve(
    cluster: Cluster, choice: OffsetChoice, queues: Collection[MessageQueue]
) -> Offsets:
    """Return the offset that is asked for of each queue.

    Raises:
        OptionError: a queue is named that does not exist, or a time that no message has.
    """
    choice.check(queues)
    wanted = {queue: choice.of(queue) for queue in queues}
    begins = await cluster.begins(
        queue for queue, one in wanted.items() if one.time_ms is not None or one.offset == EARLIEST
    )
    ends = await cluster.ends(
        queue for queue, one in wanted.items() if one.time_ms is not None or one.offset == LATEST
    )

    async def offset_of(queue: MessageQueue) -> int:
        offset, time_ms = wanted[queue]
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


async def batch_ranges(cluster: Cluster, options: LiveOptions) -> list[QueueRange]:
    """Return what a batch reads of each queue."""
    queues = await cluster.queues()
    cluster.require(queues)
    await cluster.check_expression({queue.topic for queue in queues})
    starts = await resolve(cluster, options.start, queues)
    stops = await resolve(cluster, options.end, queues)
    begins, ends = await cluster.begins(queues), await cluster.ends(queues)
    ranges = []
    for queue in queues:
        begin, end = begins[queue], ends[queue]
        start, stop = starts[queue], max(stops[queue], begin)
        if options.start.of(queue).offset == EARLIEST:
            start = max(start, begin)  # Retention may be at work just now.
        for offset in (start, stop):
            loss = judge(offset, begin, end)
            if loss is not None:
                lose(queue, loss, fail=options.fail_on_data_loss)
        start, stop = max(start, begin), min(stop, end)
        ranges.append(QueueRange(queue, start, max(start, stop)))
    return ranges
