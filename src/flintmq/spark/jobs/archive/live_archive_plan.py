"""Plans which offsets of live queues a run adds to an archive, and tells what is wrong with them.

No record is archived twice.  A record stands in one queue only, the one it names itself,
and a queue gives each of its offsets one record; so ranges of offsets that do not overlap hold
different records, as long as the queue is the one that was archived.  That is proven by the last
record that was archived of it, where the broker still has that record: before a run reads the
queue, and again when it has read it.  (Light queues hold records of other queues once more; they
are refused.)
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from flintmq.client.errors import TopicNotExistError
from flintmq.format.errors import FormatError
from flintmq.format.stored.pulled_records import decode_records
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_manifest import QueueEnd, QueueRun
from flintmq.spark.jobs.archive.live_archive_losses import RunLosses
from flintmq.spark.jobs.archive.live_archive_state import BrokerFacts, ask_broker
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.errors import FalseAnswerError, RefusedReadError, queue_text
from flintmq.spark.live.live_options import LiveOptions
from flintmq.spark.live.live_session import each
from flintmq.spark.live.planning import KnownBounds, resolve
from flintmq.spark.live.ranges import Loss, QueueRange, judge
from flintmq.spark.options.offset_bounds import EARLIEST

_Known = Mapping[MessageQueue, QueueRun]


class PlannedRange(NamedTuple):
    """The range of a queue that is added; ``last`` is the record that was archived before it.

    ``begin`` is the oldest offset that the queue had when the range was planned.
    """

    wanted: QueueRange
    last: QueueEnd | None
    begin: int

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return self.wanted.queue

    @property
    def is_last_there(self) -> bool:
        """Whether the record before the range was there when the range was planned."""
        at = None if self.last is None else self.last.queue_offset
        return at is not None and at == self.wanted.start - 1 and at >= self.begin


class ReadRange(Protocol):
    """What was read of a queue, by its first and its last record; None if there was none.

    One answer of a broker is of one queue: a topic is not made anew in the middle of it.
    """

    @property
    def first(self) -> QueueEnd | None:
        """The first record."""
        ...

    @property
    def last(self) -> QueueEnd | None:
        """The last record."""
        ...

    @property
    def answer_count(self) -> int:
        """How many answers have brought it that no record proves to be of the same queue.

        A proof is the record that comes before: of the answer before, or of the plan.
        """
        ...

    @property
    def begin(self) -> int | None:
        """The lowest offset at which the queue began for any of these answers."""
        ...

    @property
    def is_in_order(self) -> bool:
        """Whether one answer was asked for after the other, the first record before all."""
        ...


class LivePlan(NamedTuple):
    """What a run adds, and what its brokers say of themselves."""

    brokers: dict[str, BrokerFacts]
    ranges: list[PlannedRange]


async def plan_run(
    cluster: Cluster, options: LiveOptions, known: _Known, losses: RunLosses
) -> LivePlan:
    """Return what is new in the queues that options choose; ``known`` is what the archive has.

    Raises:
        ArchiveError: a queue is gone or another one, or messages are gone.
        OptionError: a topic or queue that is named does not exist.
        UnreachableError: a broker is down, also one that was archived before.
    """
    queues = await _present(cluster, options, known, losses)
    homes = {queue.broker_name: queue for queue in queues}
    info = await cluster.info()

    async def ask(queue: MessageQueue) -> BrokerFacts:
        data = info.brokers.get(queue.broker_name)
        name = "" if data is None else data.cluster
        return await ask_broker(cluster, queue, cluster_name=name)

    # Before the ends: groups may not have read further than what is archived.
    facts = await each(homes.values(), ask)
    ranges = await _RangePlanner(cluster, options, known, losses).of(queues)
    return LivePlan(dict(zip(homes, facts, strict=True)), ranges)


async def _present(
    cluster: Cluster, options: LiveOptions, known: _Known, losses: RunLosses
) -> list[MessageQueue]:
    """Return the queues that are there; for each that was archived and is not, tell why."""
    queues = await cluster.told_queues()
    absent = sorted(filter(options.selection.means, known.keys() - set(queues)))
    for queue in absent:
        absence = await cluster.absence(queue, cluster.queues)
        if absence is not None:
            losses.absent(queue, Loss(known[queue].end, absence.value))
    if absent:
        # One that was restarted may be back, and the name server may know what its broker forgot.
        queues = await cluster.queues()
    cluster.require([*queues, *absent])
    return queues


class _RangePlanner:
    """Decides for each queue where a run goes on and where it stops."""

    def __init__(
        self, cluster: Cluster, options: LiveOptions, known: _Known, losses: RunLosses
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._known = known
        self._losses = losses

    async def of(self, queues: Collection[MessageQueue]) -> list[PlannedRange]:
        cluster = self._cluster
        bounds = KnownBounds(await cluster.begins(queues), await cluster.ends(queues))
        begins, ends = bounds
        starts = await self._first_starts(queues, bounds)
        stops = await resolve(cluster, self._options.end, queues, bounds)

        async def plan(queue: MessageQueue) -> PlannedRange:
            begin, end = begins[queue], ends[queue]
            run = self._known.get(queue)
            if run is None:
                start = self._first(queue, starts[queue], begin, end)
                last = await record_at(cluster, queue, start - 1) if start > begin else None
            else:
                start, last = await self._next(queue, run, begin, end)
            stop = min(stops[queue], end)
            return PlannedRange(QueueRange(queue, start, max(start, stop)), last, begin)

        return await each(queues, plan)

    async def _first_starts(
        self, queues: Collection[MessageQueue], bounds: KnownBounds
    ) -> dict[MessageQueue, int]:
        """Return where queues begin that the archive does not know; options speak of these only."""
        choice = self._options.start
        choice.check(queues)
        new = [queue for queue in queues if queue not in self._known]
        named = {
            name
            for queue in new
            for name in ((one, queue.topic, queue.queue_id) for one in (queue.broker_name, None))
        }
        by_queue = {name: one for name, one in choice.by_queue.items() if name in named}
        return await resolve(self._cluster, replace(choice, by_queue=by_queue), new, bounds)

    def _first(self, queue: MessageQueue, start: int, begin: int, end: int) -> int:
        if self._options.start.of(queue).offset == EARLIEST:
            start = max(start, begin)  # Retention may be at work just now.
        return self._judged(queue, start, begin, end)

    def _judged(self, queue: MessageQueue, start: int, begin: int, end: int) -> int:
        loss = judge(start, begin, end)
        if loss is None:
            return start
        self._losses.passed(queue, loss, start)
        return loss.resume

    async def _next(
        self, queue: MessageQueue, run: QueueRun, begin: int, end: int
    ) -> tuple[int, QueueEnd | None]:
        """Return where to go on, and the last archived record if the queue is still the same."""
        difference = await self._difference(queue, run, begin, end)
        if difference is None:
            return self._judged(queue, run.end, begin, end), run.last
        reason = f"it is not the queue that was archived, but made anew: {difference}"
        self._losses.replaced(queue, Loss(begin, reason))
        found = await record_at(self._cluster, queue, begin) if begin < end else None
        # A topic that is made anew has all of its records behind those of the old one.
        if found and run.last and found.physical_offset <= run.last.physical_offset:
            reason = f"{difference}, and begins before that: the broker has another log"
            raise ArchiveError(queue_text(queue), f"{reason}; it needs another archive")
        return begin, None

    async def _difference(
        self, queue: MessageQueue, run: QueueRun, begin: int, end: int
    ) -> str | None:
        """Return what shows that a queue is another one than the one that was archived."""
        if end < run.end:
            return f"it ends at {end}, and {run.end} was archived"
        if run.last is None:
            # Nothing stood before the place where the queue was first looked at.
            return f"it begins at {begin}, and began at {run.start}" if begin < run.start else None
        if run.last.queue_offset >= begin:
            return await _other_record(self._cluster, queue, run.last, begin)
        # The last one has expired.  What follows it in its queue follows it in the log as well.
        found = await record_at(self._cluster, queue, run.end) if begin <= run.end < end else None
        if found is None or found.physical_offset > run.last.physical_offset:
            return None
        return f"its message at {run.end} lies before the one that was archived last"


async def prove_logs(
    cluster: Cluster, ranges: Iterable[PlannedRange], lasts: Mapping[str, QueueEnd]
) -> None:
    """Prove that brokers have the logs that were archived.

    Topics come and go from run to run, so the queues of a run may all be new.  Records of two
    logs have the same physical offsets, and no store can be restored from them.  ``lasts`` is, by
    broker, the record that the archive has from the furthest place of its log.

    Raises ArchiveError if a broker has another record there, or its log ends before.
    """
    homes = {planned.queue.broker_name: planned.queue for planned in ranges}
    for broker in sorted(homes.keys() & lasts.keys()):
        await _prove_log(cluster, homes[broker], lasts[broker])


async def _prove_log(cluster: Cluster, home: MessageQueue, last: QueueEnd) -> None:
    at = last.physical_offset
    bounds = await cluster.log_bounds(home)
    if bounds is None or at < bounds[0]:
        return  # There is nothing to compare with any more.
    record = await cluster.record_in_log(home, at) if at < bounds[1] else b""
    if record is None or last.is_of(record):
        return
    if not record:
        # It may have expired while it was asked for.
        bounds = await cluster.log_bounds(home)
        if bounds is None or at < bounds[0]:
            return
    found = f"the record at {at} of its log is not the one that was archived"
    if at >= bounds[1]:
        found = f"its log ends at {bounds[1]}, and the record at {at} was archived"
    causes = "the log was cut back or emptied, or it is another broker of this name"
    reason = f"{found}: {causes}; it needs another archive, unless it is a slave that is behind"
    raise ArchiveError(f"broker {home.broker_name}", reason)


async def prove_unchanged(
    cluster: Cluster, ranges: Iterable[PlannedRange], archived: Mapping[MessageQueue, ReadRange]
) -> None:
    """Prove that queues were the same ones from the plan until now, while they were read.

    The record before a range was there when the range was planned; a range without one has
    records of its own at both ends, and needs no proof if one answer has brought it whole.  No
    proof is needed either for answers that brought their proof with them.  Where answers came in
    order, the first record is of the oldest queue that was read, so it proves all
    of them.  No queue begins earlier than it did, unless it is another one.

    Raises ArchiveError if a topic was deleted and made anew meanwhile, or a log was cut back.
    """

    async def prove(planned: PlannedRange) -> None:
        read = archived.get(planned.queue)
        if read is None or read.first is None or read.last is None:
            return
        if read.begin is not None and read.begin < planned.begin:
            earlier = f"it begins at {read.begin}, and began at {planned.begin}"
            raise _made_anew(planned.queue, earlier)
        if read.answer_count == (1 if planned.last is None else 0):
            return
        if planned.last is None and read.is_in_order:
            begin, proofs = planned.begin, [read.first]
        else:
            begin = (await cluster.begins([planned.queue]))[planned.queue]
            proofs = [planned.last] if planned.last is not None else []
            if not proofs or proofs[0].queue_offset < begin:
                proofs = [read.first, read.last]
        for proof in proofs:
            difference = await _other_record(cluster, planned.queue, proof, begin)
            if difference is not None:
                raise _made_anew(planned.queue, difference)

    await each(ranges, prove)


def _made_anew(queue: MessageQueue, difference: str) -> ArchiveError:
    reason = f"it was made anew while it was read: {difference}; nothing was added"
    return ArchiveError(queue_text(queue), reason)


async def _other_record(
    cluster: Cluster, queue: MessageQueue, known: QueueEnd, begin: int
) -> str | None:
    """Return what shows that a record of a queue was replaced by another one."""
    if known.queue_offset < begin:
        return None  # There is nothing to compare with any more.
    found = await record_at(cluster, queue, known.queue_offset)
    if found is None or found == known:
        return None
    return f"its message at {found.queue_offset} is another one"


async def record_at(cluster: Cluster, queue: MessageQueue, offset: int) -> QueueEnd | None:
    """Return what a queue has at an offset; None if there is no message, or no queue."""
    try:
        answer = await cluster.puller.pull(queue, offset, 1, everything=True)
        records = decode_records(answer.body)
    except FormatError as error:
        raise FalseAnswerError(queue_text(queue), str(error)) from error
    except RefusedReadError as error:
        if isinstance(error.__cause__, TopicNotExistError):
            return None
        raise
    if not records or records[0].queue_offset != offset:
        return None
    return queue_end(offset, records[0].physical_offset, answer.body[: records[0].size])


def queue_end(queue_offset: int, physical_offset: int, record: bytes) -> QueueEnd:
    """Return what a queue is known by: one of its records."""
    return QueueEnd(
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        size=len(record),
        sha256=hashlib.sha256(record).hexdigest(),
    )
