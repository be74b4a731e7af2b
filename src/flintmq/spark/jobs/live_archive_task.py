"""Pulling ranges of live queues into files of an archive, on executors."""

import itertools
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.columns import MESSAGE
from flintmq.spark.jobs.archive_columns import ExactRows
from flintmq.spark.jobs.archive_manifest import QueueEnd
from flintmq.spark.jobs.archive_writer import Written, write_rows
from flintmq.spark.jobs.live_archive_plan import LossRule, queue_end
from flintmq.spark.live.fetch import RangeFetch
from flintmq.spark.live.options import LiveOptions
from flintmq.spark.live.pulling import LivePuller
from flintmq.spark.live.ranges import QueueRange, split
from flintmq.spark.live.rows import RangePart, RangeRows
from flintmq.spark.live.session import LiveSession

TASK_ROWS_MIN: Final = 10_000
"""Fewer messages are not worth a task of their own: each makes a file for each topic and day."""


class RangeTaken(NamedTuple):
    """What was taken of a range: from where to where in the log, and its last record."""

    queue: MessageQueue
    record_count: int = 0
    start: int = 0
    end: int = 0
    last: QueueEnd | None = None

    def added(self, other: "RangeTaken") -> "RangeTaken":
        """Return this with what was taken behind it in the same queue."""
        if not other.record_count:
            return self
        if not self.record_count:
            return other
        return RangeTaken(
            self.queue,
            self.record_count + other.record_count,
            min(self.start, other.start),
            max(self.end, other.end),
            other.last,
        )


def joined(taken: Iterable[RangeTaken]) -> dict[MessageQueue, RangeTaken]:
    """Return what was taken of each queue; the ranges of a queue come in their order."""
    found: dict[MessageQueue, RangeTaken] = {}
    for one in taken:
        found[one.queue] = found.get(one.queue, RangeTaken(one.queue)).added(one)
    return found


def bundled(
    ranges: Iterable[QueueRange],
    *,
    options: LiveOptions,
    rule: LossRule,
    slots: int,
    root: str,
) -> list["LiveArchiveTask"]:
    """Return tasks for ranges: long ones are cut, short ones of one broker share a task."""
    wanted = list(ranges)
    fair = -(-sum(one.length for one in wanted) // max(1, slots))
    rows_max = min(options.partition_rows_max, max(TASK_ROWS_MIN, fair))
    parts = split(wanted, parts_min=options.parts_min, rows_max=rows_max)
    parts.sort(key=lambda part: part.queue.broker_name)
    bundles: list[list[QueueRange]] = []
    for _, of_broker in itertools.groupby(parts, key=lambda part: part.queue.broker_name):
        size = rows_max
        for part in of_broker:
            if size + part.length > rows_max:
                bundles.append([])
                size = 0
            bundles[-1].append(part)
            size += part.length
    return [
        LiveArchiveTask(number, tuple(bundle), options, rule, root)
        for number, bundle in enumerate(bundles)
    ]


@dataclass(frozen=True, slots=True)
class LiveArchiveTask:
    """Archives some ranges of queues of one broker, on an executor."""

    number: int
    ranges: Sequence[QueueRange]
    options: LiveOptions
    rule: LossRule
    root: str

    def run(self) -> tuple[Written, list[RangeTaken]]:
        """Write the rows; return where, and what was taken of each range."""
        store = self.ranges[0].queue.broker_name
        exact = ExactRows(store)
        taken: list[RangeTaken] = []
        with (
            LiveSession(self.options.connection) as session,
            # Who fails half way has the pulls end before their connection does.
            closing(self._rows(session, exact, taken)) as rows,
        ):
            return write_rows(self.root, store, self.number, rows), taken

    def _rows(
        self, session: LiveSession, exact: ExactRows, taken: list[RangeTaken]
    ) -> Generator[pa.RecordBatch, None, None]:
        puller = LivePuller(session.client, self.options)
        for wanted in self.ranges:
            fetch = RangeFetch(session, puller, wanted, self.rule)
            subscription = self.options.subscription(wanted.queue.topic)
            rows = RangeRows(wanted, subscription, MESSAGE.arrow(), self.rule)
            found = RangeTaken(wanted.queue)
            for part in rows.parts(fetch.answers()):
                yield exact.complete(part.rows, part.data, part.table.position)
                found = found.added(_taken(wanted.queue, part))
            taken.append(found)


def _taken(queue: MessageQueue, part: RangePart) -> RangeTaken:
    """Return what is known of some records, which are in the order of their queue."""
    table = part.table
    at, size = int(table.position[-1]), int(table.size[-1])
    last = queue_end(
        int(table.queue_offset[-1]),
        int(table.physical_offset[-1]),
        part.data[at : at + size].tobytes(),
    )
    ends = table.physical_offset + table.size
    return RangeTaken(queue, len(table), int(table.physical_offset.min()), int(ends.max()), last)
