"""Feeding the runs of all parts to a sink of units, as a serial derivation would.

Each queue is on its own: what a jump of its offsets means depends on its own records only.  So
the queues can be dealt out to tasks, as long as each sees the runs of its queues in log order.
"""

from flintmq.format.consume_queue import UNIT, UNIT_SIZE
from flintmq.offline.derive import UnitRun, UnitSink
from flintmq.spark.derived import QueueRuns
from flintmq.spark.queue_numbers import QueueName


class UnitReplay:
    """Hands runs of units on to ``sink``, and has it judge where they do not continue."""

    def __init__(self, sink: UnitSink) -> None:
        self._sink = sink
        self.runs: dict[QueueName, UnitRun] = {}

    def take(self, runs: QueueRuns) -> None:
        """Take the runs of the next part of the log."""
        for number, (queue, first) in enumerate(
            zip(runs.run_queue.tolist(), runs.run_first.tolist(), strict=True)
        ):
            self.feed(runs.names[queue], first, runs.run_units(number).data)

    def feed(self, name: QueueName, first: int, units: memoryview) -> None:
        """Take units of one queue with consecutive offsets from ``first`` on."""
        run = self.runs.get(name) or self._begin(name, first)
        at = 0
        while first != run.next:
            physical_offset = UNIT.unpack_from(units, at)[0]
            if self._sink.jump(run, first, physical_offset):
                assert first >= 0, first
                run.first = run.next = first
                break
            at += UNIT_SIZE
            first += 1
            if at == len(units):
                return
        run.units += units[at:]
        run.next = first + len(run.units) // UNIT_SIZE
        self._sink.take(run)
        run.last_physical = UNIT.unpack_from(run.units, len(run.units) - UNIT_SIZE)[0]
        run.units.clear()
        run.first = run.next

    def _begin(self, name: QueueName, first: int) -> UnitRun:
        topic, queue_id = name
        run = UnitRun(topic.decode("utf-8", "replace"), queue_id, max(first, 0))
        self.runs[name] = run
        self._sink.begin(run)
        return run
