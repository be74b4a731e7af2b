"""Feeds the unit slices of all ranges to a sink of units, as a serial derivation would.

Queues are independent of each other: what a jump of its offsets means depends on the records of
that queue alone.  So the queues can be dealt out to tasks, as long as each task sees the slices of
its queues in log order.
"""

from flintmq.format.stored.consume_queue import UNIT, UNIT_SIZE
from flintmq.kernels.derived_views import UnitSlices
from flintmq.kernels.queue_numbers import QueueName
from flintmq.offline.derive import DerivedQueue, UnitSink


class UnitReplay:
    """Hands slices of units on to ``sink``, and has it judge where they do not continue."""

    def __init__(self, sink: UnitSink) -> None:
        self._sink = sink
        self.queues: dict[QueueName, DerivedQueue] = {}

    def take(self, slices: UnitSlices) -> None:
        """Take the slices of the next range of the log."""
        for number, (queue_number, first) in enumerate(
            zip(slices.slice_queue.tolist(), slices.slice_first.tolist(), strict=True)
        ):
            self.feed(slices.names[queue_number], first, slices.units_of(number).data)

    def feed(self, name: QueueName, first: int, units: memoryview) -> None:
        """Take units of one queue with consecutive offsets from ``first`` on."""
        queue = self.queues.get(name) or self._begin(name, first)
        at = 0
        while first != queue.next:
            physical_offset = UNIT.unpack_from(units, at)[0]
            if self._sink.jump(queue, first, physical_offset):
                assert first >= 0, first
                queue.first = queue.next = first
                break
            at += UNIT_SIZE
            first += 1
            if at == len(units):
                return
        queue.units += units[at:]
        queue.next = first + len(queue.units) // UNIT_SIZE
        self._sink.take(queue)
        queue.last_physical = UNIT.unpack_from(queue.units, len(queue.units) - UNIT_SIZE)[0]
        queue.units.clear()
        queue.first = queue.next

    def _begin(self, name: QueueName, first: int) -> DerivedQueue:
        topic, queue_id = name
        queue = DerivedQueue(topic.decode("utf-8", "replace"), queue_id, max(first, 0))
        self.queues[name] = queue
        self._sink.begin(queue)
        return queue
