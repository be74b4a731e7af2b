"""Pulling ranges of live queues into files of an archive, on executors."""

import asyncio
import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.jobs.archive.archive_columns import ExactRows
from flintmq.spark.jobs.archive.archive_manifest import QueueEnd
from flintmq.spark.jobs.archive.archive_writer import WrittenFiles, write_rows
from flintmq.spark.jobs.archive.live_archive_losses import LossRule
from flintmq.spark.jobs.archive.live_archive_plan import PlannedRange, queue_end
from flintmq.spark.live.fetch import AHEAD_COUNT_MAX, Fetched, IsRecord, RangeFetch
from flintmq.spark.live.live_options import LiveOptions
from flintmq.spark.live.live_rows import JoinedRecords, PulledRows, RangeRecords, Records
from flintmq.spark.live.live_session import LiveSession
from flintmq.spark.live.pulling import LivePuller
from flintmq.spark.live.ranges import QueueRange, split
from flintmq.spark.rows.columns import MESSAGE

TASK_ROWS_MIN: Final = 10_000
"""Fewer messages are not worth a task of their own: each makes a file for each topic and day."""

AHEAD_FIRST: Final = 16
AHEAD_MAX: Final = 128
"""Short ranges that are fetched at the same time; each is one segment at most."""

AHEAD_BYTES: Final = 4 << 20
"""About so many bytes the short ranges have that are fetched at the same time."""


class ArchivedRange(NamedTuple):
    """What was archived of a range: its physical offsets in the log, first and last record.

    ``answer_count`` leaves answers out that were proven to be of the queue of what came before.
    ``begin`` is the lowest offset at which the queue began for any of the answers that brought it.
    ``is_in_order`` says that one answer was asked for after the other.
    """

    queue: MessageQueue
    record_count: int = 0
    start: int = 0
    end: int = 0
    first: QueueEnd | None = None
    last: QueueEnd | None = None
    answer_count: int = 0
    begin: int | None = None
    is_in_order: bool = False

    def added(self, other: "ArchivedRange") -> "ArchivedRange":
        """Return this range with one that follows it in the same queue."""
        count, begin = self.answer_count + other.answer_count, _lower(self.begin, other.begin)
        if not other.record_count:
            return self._replace(answer_count=count, begin=begin)
        if not self.record_count:
            # What has brought nothing does not disturb the order of the rest.
            return other._replace(answer_count=count, begin=begin)
        return ArchivedRange(
            self.queue,
            self.record_count + other.record_count,
            min(self.start, other.start),
            max(self.end, other.end),
            self.first,
            other.last,
            count,
            begin,
        )


def joined(archived: Iterable[ArchivedRange]) -> dict[MessageQueue, ArchivedRange]:
    """Return what was archived of each queue; the ranges of a queue come in their order."""
    found: dict[MessageQueue, ArchivedRange] = {}
    for one in archived:
        found[one.queue] = found.get(one.queue, ArchivedRange(one.queue)).added(one)
    return found


def bundled(
    ranges: Iterable[PlannedRange],
    *,
    options: LiveOptions,
    rule: LossRule,
    slots: int,
    root: str,
) -> list["LiveArchiveTask"]:
    """Return tasks for ranges: long ones are cut, short ones of one broker share a task."""
    planned = list(ranges)
    wanted = [one.wanted for one in planned]
    before = {one.queue: one.last for one in planned if one.last and one.is_last_there}
    total = sum(one.length for one in wanted)
    fair = -(-total // max(1, slots))
    rows_max = min(options.partition_rows_max, max(TASK_ROWS_MIN, fair))
    pieces = split(wanted, partitions_min=options.partitions_min, rows_max=rows_max)
    pieces.sort(key=lambda piece: piece.queue.broker_name)
    # All slots get as many tasks of short ranges, and these are alike in length.
    rounds = max(1, -(-total // (rows_max * max(1, slots))))
    alike = max(TASK_ROWS_MIN, -(-total // (rounds * max(1, slots))))
    short_max = min(rows_max, alike + AHEAD_COUNT_MAX)  # So nothing is left for one more task.
    bundles: list[list[QueueRange]] = []
    for _, of_broker in itertools.groupby(pieces, key=lambda piece: piece.queue.broker_name):
        size = rows_max
        for piece in of_broker:
            if size + piece.length > (short_max if _is_short(piece) else rows_max):
                bundles.append([])
                size = 0
            bundles[-1].append(piece)
            size += piece.length
    starts = {one.queue: one.wanted.start for one in planned}
    return [
        LiveArchiveTask(
            number,
            tuple(bundle),
            {
                piece.queue: before[piece.queue]
                for piece in bundle
                if piece.queue in before and piece.start == starts[piece.queue]
            },
            options,
            rule,
            root,
        )
        for number, bundle in enumerate(bundles)
    ]


@dataclass(frozen=True, slots=True)
class LiveArchiveTask:
    """Archives some ranges of queues of one broker, on an executor.

    ``before`` has the record before a range, where the broker had it when the range was planned.
    """

    number: int
    ranges: Sequence[QueueRange]
    before: Mapping[MessageQueue, QueueEnd]
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
        with closing(self._fetches(session)) as fetches:
            for wanted, fetch in fetches:
                subscription = self.options.subscription(wanted.queue.topic)
                found = ArchivedRange(wanted.queue)
                with closing(fetch.answers()) as given:
                    answers = _NotedAnswers(given)
                    for records in RangeRecords(wanted, subscription, self.rule).of(answers):
                        found = found.added(_archived(wanted.queue, records))
                        yield from joined_records.add(records)
                archived.append(
                    found._replace(
                        answer_count=answers.count,
                        begin=answers.begin,
                        is_in_order=_is_short(wanted),
                    )
                )
        yield from joined_records.rest()

    def _fetches(
        self, session: LiveSession
    ) -> Generator[tuple[QueueRange, RangeFetch], None, None]:
        """Yield the ranges; short ones are fetched at the same time, and before they are wanted."""
        puller = LivePuller(session.client, self.options)
        for is_short, ranges in itertools.groupby(self.ranges, _is_short):
            fetches = ((one, RangeFetch(session, puller, one, self.rule)) for one in ranges)
            yield from self._begun(session, fetches) if is_short else fetches

    def _begun(
        self, session: LiveSession, fetches: Iterator[tuple[QueueRange, RangeFetch]]
    ) -> Iterator[tuple[QueueRange, RangeFetch]]:
        """Yield short ranges that were fetched; while some are looked at, the next are fetched."""
        under_way: list[asyncio.Task[None]] = []

        async def turn(following: list[tuple[QueueRange, RangeFetch]]) -> None:
            """Begin some ranges, and wait for those that were begun before."""
            before = under_way.copy()
            under_way.extend(
                asyncio.create_task(fetch.begin(self._is_before(wanted)))
                for wanted, fetch in following
            )
            await asyncio.gather(*before)
            del under_way[: len(before)]

        async def stop() -> None:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

        try:
            current: list[tuple[QueueRange, RangeFetch]] = []
            count = AHEAD_FIRST
            while True:
                following = list(itertools.islice(fetches, count))
                if following or under_way:
                    session.run(turn(following))
                if current:
                    size = sum(fetch.ahead_bytes for _, fetch in current)
                    count = max(1, min(AHEAD_MAX, AHEAD_BYTES * len(current) // max(1, size)))
                yield from current
                if not following:
                    return
                current = following
        finally:
            if under_way:
                session.run(stop())

    def _is_before(self, wanted: QueueRange) -> IsRecord | None:
        last = self.before.get(wanted.queue)
        return None if last is None else last.is_of


class _NotedAnswers:
    """Passes answers on, and notes how many are not proven and where the queue began for them."""

    def __init__(self, answers: Iterable[Fetched]) -> None:
        self._answers = answers
        self.count = 0
        self.begin: int | None = None

    def __iter__(self) -> Iterator[Fetched]:
        for answer in self._answers:
            self.count += not answer.is_proven
            self.begin = _lower(self.begin, answer.begin)
            yield answer


def _lower(one: int | None, other: int | None) -> int | None:
    return min((offset for offset in (one, other) if offset is not None), default=None)


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
