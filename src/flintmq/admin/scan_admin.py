"""Reading queues: the messages of a topic in a range of times or offsets, and raw queue units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from flintmq.admin.admin_errors import MissingError
from flintmq.admin.message_admin import MessageAdmin
from flintmq.client.errors import SystemFailureError, UsageError
from flintmq.client.pulling.pull_consumer import AsyncPullConsumer
from flintmq.client.pulling.puller import PullStatus
from flintmq.client.routing.queue_lists import subscribe_queues
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.query import QueryConsumeQueueRequest
from flintmq.model.message_queue import MessageQueue
from flintmq.model.subscription import EVERYTHING, TAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flintmq.client.messaging.messages import ReceivedMessage

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group that every broker of RocketMQ has for tools."""
PULL_COUNT: Final = 32
SCAN_COUNT_MAX: Final = 1_000_000
PULL_COUNT_MAX: Final = 1_000_000
"""Requests of one scan: a filter may leave nothing of many messages."""
SCAN_SIZE_MAX: Final = 256 << 20
"""Bytes of records that one scan brings; then it ends, and its cursor says where to go on."""


@dataclass(slots=True)
class ScannedRange:
    """A part of a queue, and how far a scan has come in it."""

    queue: MessageQueue
    begin: int
    end: int
    next_offset: int

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is left."""
        return self.next_offset >= self.end


@dataclass(slots=True, kw_only=True)
class QueueScan:
    """What a scan of queues has found so far."""

    ranges: list[ScannedRange]
    messages: list[ReceivedMessage] = field(default_factory=list)
    scanned: int = 0
    stored_size: int = 0
    pull_count: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether everything in the ranges was looked at."""
        return all(one.is_done for one in self.ranges)

    def has_room(self, count_max: int) -> bool:
        """Whether it may bring more."""
        return (
            len(self.messages) < count_max
            and self.stored_size < SCAN_SIZE_MAX
            and self.pull_count < PULL_COUNT_MAX
        )

    @property
    def cursor(self) -> str | None:
        """Where to go on; None at the end."""
        if self.is_complete:
            return None
        return ";".join(
            f"{one.queue.broker_name}:{one.queue.queue_id}={one.next_offset}"
            for one in self.ranges
            if not one.is_done
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUnit:
    """An entry of a consume queue, as a broker shows it."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    is_wanted: bool
    """Whether the subscription of the group that was named lets it pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUnits:
    """Entries of one consume queue, and where it begins and ends."""

    units: Sequence[QueueUnit]
    min_offset: int
    max_offset: int
    expression: str | None
    filter_text: str | None


class ScanAdmin(MessageAdmin):
    """Operations that read queues."""

    async def scan(
        self,
        topic: str,
        *,
        queues: Iterable[MessageQueue] | None = None,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        begin_offset: int | None = None,
        expression: str = EVERYTHING,
        expression_type: str = TAG,
        count_max: int = 1000,
        cursor: str | None = None,
    ) -> QueueScan:
        """Read the messages of a topic that were stored within a range of times.

        At most ``count_max`` are returned; the ``cursor`` of the result says where to go on.
        """
        if not 0 < count_max <= SCAN_COUNT_MAX:
            raise UsageError(f"count_max must be from 1 to {SCAN_COUNT_MAX}")
        route = await self.topic_route(topic)
        known = subscribe_queues(topic, route)
        wanted = list(known if queues is None else queues)
        if queues is not None and not set(wanted) <= set(known):
            raise MissingError(f"{topic} has no such queue; topicStatus shows those that it has")
        starts = None if cursor is None else read_cursor(topic, cursor)
        async with AsyncPullConsumer(group=TOOLS_GROUP, client=self.client) as consumer:
            ranges = []
            for queue in wanted:
                if starts is None or queue in starts:
                    one = await _range(consumer, queue, begin_ms, end_ms, begin_offset)
                    one.next_offset = one.begin if starts is None else starts[queue]
                    ranges.append(one)
            scan = QueueScan(ranges=ranges)
            for one in ranges:
                await _read(consumer, scan, one, expression, expression_type, count_max, begin_ms)
                if not scan.has_room(count_max):
                    break
        return scan

    async def message_at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """Return the message at an offset of a queue; MissingError if there is none."""
        await self.topic_route(queue.topic)
        async with AsyncPullConsumer(group=TOOLS_GROUP, client=self.client) as consumer:
            known = await consumer.queues(queue.topic)
            if queue not in known:
                raise MissingError(f"there is no queue {queue.queue_id} on {queue.broker_name}")
            result = await consumer.pull(queue, offset, count_max=1)
        for message in result.messages:
            if message.queue_offset == offset:
                return message
        raise MissingError(
            f"no message at {offset} of queue {queue.queue_id} on {queue.broker_name}: "
            f"it has {result.min_offset} to {result.max_offset - 1}"
        )

    async def queue_units(
        self,
        topic: str,
        queue_id: int,
        *,
        index: int,
        count: int = 10,
        broker: str | None = None,
        group: str | None = None,
    ) -> QueueUnits:
        """Return raw entries of a consume queue from an offset on."""
        if broker is None:
            address = (await self.topic_places(topic))[0].address
        else:
            address = (await self.places(broker=broker))[0].address
        header = QueryConsumeQueueRequest(
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
        )
        try:
            answer = await self.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        except SystemFailureError as error:
            if "is not exist" not in error.remark:
                raise
            raise MissingError(error.remark) from error
        if not answer.body:
            raise MissingError(answer.remark or f"no entry {index} in queue {queue_id} of {topic}")
        return _units(index, loads_body(answer.body))


async def _range(
    consumer: AsyncPullConsumer,
    queue: MessageQueue,
    begin_ms: int | None,
    end_ms: int | None,
    begin_offset: int | None,
) -> ScannedRange:
    begin, end = await consumer.begin_offset(queue), await consumer.end_offset(queue)
    if begin_ms is not None:
        begin = max(begin, await consumer.offset_at(queue, begin_ms))
    if end_ms is not None:
        # The message of the last moment itself belongs to the range.
        end = min(end, await consumer.offset_at(queue, end_ms) + 1)
    if begin_offset is not None:
        begin = max(begin, begin_offset)
    return ScannedRange(queue, begin, max(begin, end), begin)


async def _read(
    consumer: AsyncPullConsumer,
    scan: QueueScan,
    one: ScannedRange,
    expression: str,
    expression_type: str,
    count_max: int,
    begin_ms: int | None,
) -> None:
    """Read one range until its end, or until the scan has enough."""
    while not one.is_done and scan.has_room(count_max):
        result = await consumer.pull(
            one.queue,
            one.next_offset,
            expression=expression,
            expression_type=expression_type,
            count_max=min(PULL_COUNT, count_max - len(scan.messages)),
        )
        scan.pull_count += 1
        before = one.next_offset
        if result.status is PullStatus.FOUND:
            for message in result.messages:
                is_inside = message.queue_offset < one.end
                if is_inside and (begin_ms is None or message.store_timestamp >= begin_ms):
                    scan.messages.append(message)
                    scan.stored_size += message.store_size
        elif result.next_offset <= before:
            one.next_offset = one.end
            continue
        one.next_offset = max(result.next_offset, before + 1)
        scan.scanned += min(one.next_offset, one.end) - before


def read_cursor(topic: str, cursor: str) -> dict[MessageQueue, int]:
    """Return the offsets that a cursor names; UsageError if it is none."""
    starts = {}
    for part in cursor.split(";"):
        place, _, offset = part.partition("=")
        broker, _, queue_id = place.rpartition(":")
        if not broker or not queue_id.isdigit() or not offset.isdigit():
            raise UsageError(f"not a cursor, as an answer before this gave it: {cursor!r}")
        starts[MessageQueue(topic, broker, int(queue_id))] = int(offset)
    return starts


def _units(index: int, value: Any) -> QueueUnits:
    members = Members(value, "entries of a queue")
    units = []
    for at, one in enumerate(members.items("queueData")):
        unit = Members(one, "an entry of a queue")
        units.append(
            QueueUnit(
                queue_offset=index + at,
                physical_offset=unit.integer("physicOffset", 0),
                size=unit.integer("physicSize", 0),
                tags_code=unit.integer("tagsCode", 0),
                is_wanted=unit.truth("eval", default=False),
            )
        )
    subscription = members.get("subscriptionData")
    expression = subscription.get("subString") if isinstance(subscription, dict) else None
    text = members.get("filterData")
    return QueueUnits(
        units=units,
        min_offset=members.integer("minQueueIndex", 0),
        max_offset=members.integer("maxQueueIndex", 0),
        expression=expression,
        filter_text=None if text is None else str(text),
    )
