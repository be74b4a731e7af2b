"""Numbers for the queues of a split, in the order in which its records name them."""

from typing import Final

import numpy as np

from flintmq.format.java import key_prefix_hash
from flintmq.kernels.compiled import Bytes, Ints
from flintmq.kernels.queue_units import fill_buckets, number_queues
from flintmq.kernels.records import RecordTable
from flintmq.model.topics import DUE_TIME_TOPICS

QUEUES_AT_FIRST: Final = 1024
"""Queues that the tables hold before they grow."""

BUCKETS_PER_QUEUE: Final = 4

_DUE_TIME_TOPICS: Final = frozenset(topic.encode() for topic in DUE_TIME_TOPICS)

QueueName = tuple[bytes, int]
"""Topic as its bytes, and queue id."""


def key_prefix(topic: bytes) -> int:
    """Return the unsigned hash of the text that precedes each key of a topic."""
    return key_prefix_hash(topic.decode("utf-8", "replace"))


class QueueNumbers:
    """Numbers the queues in the order in which the records of a split name them."""

    def __init__(self) -> None:
        self._at = np.empty(QUEUES_AT_FIRST, np.int64)
        self._size = np.empty(QUEUES_AT_FIRST, np.int32)
        self._id = np.empty(QUEUES_AT_FIRST, np.int32)
        self._buckets = np.full(QUEUES_AT_FIRST * BUCKETS_PER_QUEUE, -1, np.int32)
        self.names: list[QueueName] = []
        self.prefixes = np.empty(QUEUES_AT_FIRST, np.int64)
        self.record_counts = np.zeros(QUEUES_AT_FIRST, np.int64)
        """How many records have been numbered, for each queue."""
        self.record_bytes = np.zeros(QUEUES_AT_FIRST, np.int64)
        """How many bytes they have."""

    def number(self, data: Bytes, table: RecordTable) -> Ints:
        """Return the queue number of each record."""
        numbers = np.empty(len(table), np.int32)
        done, count = 0, len(self.names)
        while True:
            done, count = number_queues(
                data,
                table.topic_at,
                table.topic_size,
                table.queue_id,
                table.size,
                done,
                self._at,
                self._size,
                self._id,
                count,
                self._buckets,
                numbers,
                self.record_counts,
                self.record_bytes,
            )
            self._learn(data, count)
            if done == len(table):
                return numbers
            self._grow(data, count)

    def _learn(self, data: Bytes, count: int) -> None:
        """Take down the names of queues that are new."""
        for number in range(len(self.names), count):
            at, size = int(self._at[number]), int(self._size[number])
            topic = data[at : at + size].tobytes()
            self.names.append((topic, int(self._id[number])))
            is_plain = topic.isascii() and topic not in _DUE_TIME_TOPICS
            self.prefixes[number] = key_prefix(topic) if is_plain else -1

    def _grow(self, data: Bytes, count: int) -> None:
        capacity = 2 * len(self._at)
        for name in ("_at", "_size", "_id", "prefixes", "record_counts", "record_bytes"):
            old = getattr(self, name)
            new = np.zeros(capacity, old.dtype)
            new[:count] = old[:count]
            setattr(self, name, new)
        self._buckets = np.full(capacity * BUCKETS_PER_QUEUE, -1, np.int32)
        fill_buckets(data, self._at, self._size, self._id, count, self._buckets)
