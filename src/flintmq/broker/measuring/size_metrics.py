"""How large messages are, read from the units of their queues when somebody asks for metrics.

A unit of a queue has the size of its record.  So nothing is counted when a message is sent, and a
scrape looks at the units that have come since the one before it.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Final

from flintmq.broker.measuring.topic_metrics import STEP_COUNT
from flintmq.format.stored.consume_queue import PRE_BLANK_SIZE, UNIT_RECORD_SIZE_AT, UNIT_SIZE
from flintmq.metrics.histograms import Histogram
from flintmq.model.topics import (
    DUE_TIME_TOPICS,
    LMQ_PREFIX,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintmq.metrics.families import FamilyMaker, FamilySource, FamilySteps
    from flintmq.store.message_store import MessageStore
    from flintmq.store.views.queue_table import StoredQueue

SIZE_BOUNDS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
"""The buckets of RocketMQ 5, in bytes."""
UNITS_PER_STEP: Final = 4096
"""Units that are looked at without a pause: a third of a millisecond."""
UNITS_PER_SCRAPE: Final = 4_000_000
"""Units that one scrape looks at; what is left is for the next one."""

_INT_SIZE: Final = 4
_PASSED_THROUGH: Final = DUE_TIME_TOPICS | {TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC}
"""Topics from which a message goes on to its own, where it counts."""


class MessageSizes:
    """Sizes of the messages that have come since this was made, by topic."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._seen = {
            (queue.topic, queue.queue_id): queue.max_offset
            for queue in store.queues
            if _counts(queue.topic)
        }
        """Up to where the units of each queue were looked at."""
        self.by_topic: dict[str, Histogram] = {}

    def read(self) -> Iterator[None]:
        """Look at what has come since the last time; it may be interrupted where it yields."""
        left, there = UNITS_PER_SCRAPE, set[tuple[str, int]]()
        for number, queue in enumerate(self._store.queues):
            if number % STEP_COUNT == 0:
                yield None
            if not _counts(queue.topic):
                continue
            key = (queue.topic, queue.queue_id)
            seen = max(self._seen.get(key, 0), queue.min_offset)
            if seen > queue.max_offset:
                seen = 0  # The topic was deleted, and is there again.
            while seen < queue.max_offset and left > 0:
                count = self._look(queue, seen, min(left, UNITS_PER_STEP))
                if not count:
                    break
                seen, left = seen + count, left - count
                yield None
            self._seen[key] = seen
            there.add(key)
        self._forget_all_but(there)

    def _forget_all_but(self, there: set[tuple[str, int]]) -> None:
        """Forget the queues that were deleted."""
        for key in self._seen.keys() - there:
            del self._seen[key]
        for topic in self.by_topic.keys() - {topic for topic, _ in there}:
            del self.by_topic[topic]

    def _look(self, queue: StoredQueue, offset: int, count_max: int) -> int:
        """Look at some units, and return how many those were."""
        found = queue.units_from(offset)
        if found is None:
            return 0
        file, position, end = found
        try:
            units = bytes(file.view[position : min(end, position + count_max * UNIT_SIZE)])
        finally:
            file.release()
        sizes = self.by_topic.get(queue.topic)
        if sizes is None:
            sizes = self.by_topic[queue.topic] = Histogram(SIZE_BOUNDS)
        for size, count in Counter(_record_sizes(units)).items():
            if 0 < size < PRE_BLANK_SIZE:
                sizes.record(size, count)
        return len(units) // UNIT_SIZE


def _counts(topic: str) -> bool:
    # A light queue is one more way to a message that its own topic has.
    return topic not in _PASSED_THROUGH and not topic.startswith(LMQ_PREFIX)


def _record_sizes(units: bytes) -> array[int]:
    numbers = memoryview(units).cast("i")
    sizes = array(
        "i", numbers[UNIT_RECORD_SIZE_AT // _INT_SIZE :: UNIT_SIZE // _INT_SIZE].tobytes()
    )
    if sys.byteorder == "little":
        sizes.byteswap()
    return sizes


def size_source(store: MessageStore) -> FamilySource:
    """Return what reads how large messages are, and for how long senders wanted them to wait."""
    sizes = MessageSizes(store)

    def read(make: FamilyMaker) -> FamilySteps:
        yield from sizes.read()
        stored = make.histogram(
            "rocketmq_message_size",
            "Bytes of the log that messages take, since the broker started.",
            ["topic"],
            unit=1,
        )
        for topic, histogram in sizes.by_topic.items():
            stored.add_histogram(histogram, topic)
        yield stored
        delays = make.histogram(
            "rocketmq_delay_message_latency",
            "Seconds after which senders wanted messages to be delivered.",
            ["topic"],
            unit=1,
        )
        for topic, histogram in list(store.statistics.delays.items()):
            delays.add_histogram(histogram, topic)
        yield delays

    return read
