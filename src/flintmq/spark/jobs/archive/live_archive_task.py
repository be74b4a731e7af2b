"""Pulling ranges of live queues into files of an archive, on executors."""

import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.jobs.archive.archive_columns import ExactRows
from flintmq.spark.jobs.archive.archive_manifest import QueueEnd
from flintmq.spark.jobs.archive.archive_writer import WrittenFiles, write_rows
from flintmq.spark.jobs.archive.live_archive_plan import LossRule, queue_end
from flintmq.spark.live.fetch import AHEAD_COUNT_MAX, RangeFetch
from flintmq.spark.live.live_options import LiveOptions
from flintmq.spark.live.live_rows import JoinedRecords, PulledRows, RangeRecords, Records
from flintmq.spark.live.live_session import LiveSession, each
from flintmq.spark.live.pulling import LivePuller
from flintmq.spark.live.ranges import QueueRange, split
from flintmq.spark.rows.columns import MESSAGE

TASK_ROWS_MIN: Final = 10_000
"""Fewer messages are not worth a task of their own: each makes a file for each topic and day."""

AHEAD_MAX: Final = 8
"""Short ranges that are fetched at the same time; each is one segment at most."""


class ArchivedRange(NamedTuple):
    """What was archived of a range: its physical offsets in the log, first and last record."""

    queue: MessageQueue
    record_count: int = 0
    start: int = 0
    end: int = 0
    first: QueueEnd | None = None
    last: QueueEnd | None = None

    def added(self, other: "ArchivedRange") -> "ArchivedRange":
        """Return this range with one that follows it in the same queue."""
        if not other.record_count:
            return self
        if not self.record_count:
            return other
        return ArchivedRange(
            self.queue,
            self.record_count + other.record_count,
            min(self.start, other.start),
            max(self.end, other.end),
            self.first,
            other.last,
        )


def joined(archived: Iterable[ArchivedRange]) -> dict[MessageQueue, ArchivedRange]:
    """Return what was archived of each queue; the ranges of a queue come in their order."""
    found: dict[MessageQueue, ArchivedRange] = {}
    for one in archived:
        found[one.queue] = found.get(one.queue, ArchivedRange(one.queue)).added(one)
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
    pieces = split(wanted, partitions_min=options.partitions_min, rows_max=rows_max)
    pieces.sort(key=lambda piece: piece.queue.broker_name)
    bundles: list[list[QueueRange]] = []
    for _, of_broker in itertools.groupby(pieces, key=lambda piece: piece.queue.broker_name):
        size = rows_max
        for piece in of_broker:
            if size + piece.length > rows_max:
                bundles.append([])
                size = 0
            bundles[-1].append(piece)
            size += piece.length
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

    def run(self) -> tuple[WrittenFiles, list[ArchivedRange]]:
        """Write the rows; return where, and what was archived of each range."""
        store = self.ranges[0].queue.broker_name
        exact = ExactRows(store)
        archived: list[ArchivedRange] = []
        with (
            LiveSession(self.options.connection) as session,
            # If writing fails half way, the pulls end before their connection does.
            closing(self._rows(session, exact, archived)) as rows,
        ):
            return write_rows(self.root, store, self.number, rows), archived

    def _rows(
        self, session: LiveSession, exact: ExactRows, archived: list[ArchivedRange]
    ) -> Generator[pa.RecordBatch, None, None]:
        rows = PulledRows(exact.store, MESSAGE.arrow(), self.rule)
        for records in self._records(session, archived):
            for some in rows.of(records):
                yield exact.complete(some.rows, some.data, some.table.position)

    def _records(
        self, session: LiveSession, archived: list[ArchivedRange]
    ) -> Generator[Records, None, None]:
        """Yield the records of all ranges, those of short ones joined."""
        joined_records = JoinedRecords()
        for wanted, fetch in self._fetches(session):
            subscription = self.options.subscription(wanted.queue.topic)
            found = ArchivedRange(wanted.queue)
            with closing(fetch.answers()) as answers:
                for records in RangeRecords(wanted, subscription, self.rule).of(answers):
                    found = found.added(_archived(wanted.queue, records))
                    yield from joined_records.add(records)
            archived.append(found)
        yield from joined_records.rest()

    def _fetches(self, session: LiveSession) -> Iterator[tuple[QueueRange, RangeFetch]]:
        """Yield the ranges; short ones that follow each other are fetched at the same time."""
        puller = LivePuller(session.client, self.options)
        for is_short, ranges in itertools.groupby(self.ranges, _is_short):
            while some := list(itertools.islice(ranges, AHEAD_MAX if is_short else 1)):
                fetches = [RangeFetch(session, puller, wanted, self.rule) for wanted in some]
                if is_short:
                    session.run(each(fetches, RangeFetch.begin))
                yield from zip(some, fetches, strict=True)


def _is_short(wanted: QueueRange) -> bool:
    return wanted.length <= AHEAD_COUNT_MAX


def _archived(queue: MessageQueue, some: Records) -> ArchivedRange:
    """Return what is known of some records, which are in the order of their queue."""
    table = some.table
    first, last = (
        queue_end(
            int(table.queue_offset[row]),
            int(table.physical_offset[row]),
            some.data[int(table.position[row]) :][: int(table.size[row])].tobytes(),
        )
        for row in (0, -1)
    )
    ends = table.physical_offset + table.size
    start, end = int(table.physical_offset.min()), int(ends.max())
    return ArchivedRange(queue, len(table), start, end, first, last)
