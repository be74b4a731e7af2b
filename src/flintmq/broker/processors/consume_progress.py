"""How far consumer groups have come in their queues."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flintmq.model.message_queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from flintmq.broker.context import BrokerContext
    from flintmq.model.steps import Steps


class GroupProgress:
    """Compares what groups have committed with what the queues hold."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def is_relevant(self, group_name: str, topic: str) -> bool:
        """Whether a topic exists and the group, if it is online, still subscribes to it."""
        if topic not in self._context.topics:
            return False
        group = self._context.consumers.get(group_name)
        return group is None or topic in group.subscriptions

    def _queue_ids(self, topic: str) -> Iterator[int]:
        config = self._context.topics.get(topic)
        yield from range(0 if config is None else config.read_queue_count)

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._context.config.name, queue_id)

    def queues(self, group: str, topic: str) -> Steps[dict[MessageQueue, dict[str, int]]]:
        """Return, for each queue, its end, the group's offset and the time of its last message."""
        store, found = self._context.store, dict[MessageQueue, dict[str, int]]()
        for queue_id in self._queue_ids(topic):
            consumed = max(self._context.offsets.get(group, topic, queue_id) or 0, 0)
            last = store.reader.unit_store_time(topic, queue_id, consumed - 1) if consumed else 0
            found[self._queue(topic, queue_id)] = {
                "brokerOffset": max(store.max_offset_in_queue(topic, queue_id), 0),
                "consumerOffset": consumed,
                "lastTimestamp": max(last, 0),
            }
            yield
        return found

    def time_spans(self, group: str, topic: str) -> Steps[list[dict[str, Any]]]:
        """Return, for each queue, the times of its oldest and newest message and of the group."""
        store, now_ms = self._context.store, self._context.clock.now_ms()
        spans: list[dict[str, Any]] = []
        for queue_id in self._queue_ids(topic):
            end = store.max_offset_in_queue(topic, queue_id)
            newest = store.reader.unit_store_time(topic, queue_id, end - 1) if end else -1
            consumed = self._context.offsets.get(group, topic, queue_id) or 0
            at = store.reader.unit_store_time(topic, queue_id, consumed - 1) if consumed > 0 else -1
            oldest = store.earliest_time(topic, queue_id)
            next_time = store.reader.unit_store_time(topic, queue_id, max(consumed, 0))
            spans.append(
                {
                    "consumeTimeStamp": at,
                    "consumeTimeStampStr": _time_text(at),
                    "delayTime": now_ms - next_time if 0 <= consumed < end else 0,
                    "maxTimeStamp": newest,
                    "maxTimeStampStr": _time_text(newest),
                    "messageQueue": self._queue(topic, queue_id),
                    "minTimeStamp": oldest,
                    "minTimeStampStr": _time_text(oldest),
                }
            )
            yield
        return spans

    def least_offsets(
        self, topic: str, compare_group: str, left_out: Collection[str]
    ) -> Steps[dict[int, int]]:
        """Return the least offset by queue over groups other than those left out.

        Only queues in which the compared group has an offset are in the result.
        """
        offsets = self._context.offsets
        wanted = offsets.queues(compare_group, topic)
        least: dict[int, int] = {}
        for group in offsets.groups_of(topic):
            if group in left_out:
                continue
            for queue_id, offset in list(offsets.queues(group, topic).items()):
                end = self._context.store.max_offset_in_queue(topic, queue_id)
                if offset <= end and (not wanted or queue_id in wanted):
                    least[queue_id] = min(least.get(queue_id, offset), offset)
            yield
        return least


def _time_text(milliseconds: int) -> str:
    """Return a time as RocketMQ's tools show it: by the clock on this machine's wall."""
    moment = datetime.fromtimestamp(milliseconds // 1000, tz=UTC).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{milliseconds % 1000:03d}"
