"""Which range of a log can hold records of the queue offsets asked for.

Within a queue, offsets ascend with the log, so the unit at the lowest wanted offset and the one
at the highest tell where to begin and where to stop.
"""

from dataclasses import dataclass

from flintmq.offline.layout import QueueKey, StoreLayout
from flintmq.offline.log_files import LogFiles
from flintmq.offline.queue_files import QueueFiles
from flintmq.offline.regions import Regions
from flintmq.spark.options.offset_bounds import OffsetBounds
from flintmq.spark.rows.row_filter import LONG_MAX, LONG_MIN, Bounds, RowFilter


@dataclass(frozen=True, slots=True)
class OffsetReach:
    """Turns bounds of queue offsets into bounds of physical offsets."""

    row_filter: RowFilter
    offsets: OffsetBounds

    def __call__(self, layout: StoreLayout, broker: str | None) -> Bounds:
        """Return where in the log wanted records can be."""
        topics = self.row_filter.topics
        if topics is None or (self.row_filter.queue_offset.is_open and self.offsets.is_open):
            return Bounds()
        keys = [
            key
            for key in layout.queues
            if key[0].encode() in topics and key[1] in self.row_filter.queue_id
        ]
        if topics != {key[0].encode() for key in keys}:
            return Bounds()  # Of a topic without a queue nobody knows where its records are.
        reach = Bounds(LONG_MAX, LONG_MIN)
        with Regions(layout.files) as regions:
            positions = _RecordPositions(QueueFiles(layout, regions), LogFiles(layout, regions))
            for key in keys:
                low, high = self._wanted(broker, key)
                reach.low = min(reach.low, positions.first(key, low))
                reach.high = max(reach.high, positions.last(key, high))
        return reach

    def _wanted(self, broker: str | None, key: QueueKey) -> tuple[int, int]:
        start, end = self.offsets.bounds(broker, key)
        wanted = Bounds(self.row_filter.queue_offset.low, self.row_filter.queue_offset.high)
        if self.row_filter.queue_offset.one_of:
            wanted.at_least(min(self.row_filter.queue_offset.one_of))
            wanted.at_most(max(self.row_filter.queue_offset.one_of))
        if start is not None:
            wanted.at_least(start)
        if end is not None:
            wanted.at_most(end - 1)
        return wanted.low, wanted.high


@dataclass(frozen=True, slots=True)
class _RecordPositions:
    """Where records of queues stand, as far as queue and log agree about it."""

    queues: QueueFiles
    log: LogFiles

    def first(self, key: QueueKey, queue_offset: int) -> int:
        """Return the physical offset before which all queue offsets are lower."""
        if queue_offset <= self.queues.first_offset(key):
            return LONG_MIN
        position = self._position(key, min(queue_offset, self.queues.end(key) - 1))
        return LONG_MIN if position is None else position

    def last(self, key: QueueKey, queue_offset: int) -> int:
        """Return the physical offset behind which all queue offsets are higher."""
        if not 0 <= queue_offset < self.queues.end(key):
            return LONG_MAX
        position = self._position(key, queue_offset)
        return LONG_MAX if position is None else position

    def _position(self, key: QueueKey, queue_offset: int) -> int | None:
        unit = self.queues.unit_at(key, queue_offset) if queue_offset >= 0 else None
        record = None if unit is None else self.log.record_at(unit[0])
        if record is None or (record.topic, record.queue_id) != (key[0].encode(), key[1]):
            return None
        return record.physical_offset if record.queue_offset == queue_offset else None
